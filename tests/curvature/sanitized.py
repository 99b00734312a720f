"""Run the hostile sweep and the training kernels under another build of the kernel: sanitized.py FOLDER [arguments].

The kernel of the folder takes the place of the installed one before anything imports it. `make sanitize` calls this.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

SWEEP = [
    *(
        f"tests/curvature/test_{part}.py"
        for part in ("exactness", "exact_conventions", "extreme_values", "starts", "gradient")
    ),
    "tests/models/test_fused_step.py",
    "tests/training/test_variance_short.py",
]


def main() -> int:
    """The exit code of pytest, which captures nothing: a sanitizer writes its report when it ends the process."""
    (kernel,) = Path(sys.argv[1]).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("geoattn._native", kernel)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["geoattn._native"] = module
    spec.loader.exec_module(module)
    return int(pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-s", *(sys.argv[2:] or SWEEP)]))


if __name__ == "__main__":
    sys.exit(main())
