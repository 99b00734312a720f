"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: the first call loads the kernel, and machines differ. The same examples each time where results must not
# depend on luck (continuous integration sets CI; `HYPOTHESIS_PROFILE=search` looks for new ones).
settings.register_profile(
    "steady", deadline=None, max_examples=50, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", deadline=None, max_examples=500, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
