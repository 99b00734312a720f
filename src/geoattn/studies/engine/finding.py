"""A finding: a claim, the mean difference that speaks to it, and its 95 % interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

__all__ = ["Finding", "interval", "judge"]


@dataclass(frozen=True)
class Finding:
    """A claim of a paper and what came out: the mean difference with a 95 % interval over ``trials`` pairs.

    ``verdict`` is ``replicated`` (the interval lies on the claimed side of 0), ``contradicted`` (on the other side) or
    ``not replicated`` (it contains 0, or there are too few trials for one). ``convention`` names the preset under which
    curvature was measured, where the claim is about curvature: a claim whose verdicts differ between presets depends on
    the convention. ``measure`` says in words what the difference is a difference of; ``number``, ``more`` and ``less``
    name it for the endpoints of `geoattn.studies.claims`. ``p``: of no effect, two-sided. ``detectable``: the smallest
    true effect that so many trials with such a spread find with a power of 80 %, before any correction.
    ``bootstrap_low``, ``bootstrap_high``: of a bootstrap over whole seeds, where observations of a seed are pooled; the
    t interval judges. ``freedom``: the degrees of freedom of the interval, where they are not ``trials`` - 1.
    """

    claim: str
    data: str
    difference: float
    low: float
    high: float
    trials: int
    verdict: Literal["replicated", "not replicated", "contradicted"]
    convention: str | None = None
    measure: str = ""
    number: str = ""
    more: str = ""
    less: str = ""
    p: float | None = None
    detectable: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    freedom: int | None = None


def interval(values: Float[np.ndarray, " k"]) -> tuple[float, float, float]:
    """Mean and 95 % interval by Student's t; an interval without bounds for fewer than two values.

    >>> import numpy as np
    >>> interval(np.array([1.0, 2.0, 3.0]))
    (2.0, -0.484, 4.484)
    """
    from scipy.stats import t

    mean = float(values.mean())
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def judge(claim: str, data: str, differences: Any, *, convention: str | None = None, measure: str = "") -> Finding:
    """The finding for a claim that the differences, one per seed, are above 0."""
    values = np.asarray(differences, dtype=np.float64)
    mean, low, high = interval(values)
    verdict = "replicated" if low > 0 else "contradicted" if high < 0 else "not replicated"
    return Finding(claim, data, mean, low, high, len(values), verdict, convention, measure)
