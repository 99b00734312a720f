"""Statistics of the ledger: pooled effects, the effect that a design can see, correction for many claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["Pooled", "detectable", "holm", "pool", "t_test"]


@dataclass(frozen=True)
class Pooled:
    """A mean effect with its 95 % interval, the p-value of no effect, and the standard error behind them."""

    effect: float
    low: float
    high: float
    p: float
    error: float
    freedom: int


def t_test(values: Float[np.ndarray, " k"]) -> Pooled:
    """Mean of paired differences with Student's t.

    >>> import numpy as np
    >>> found = t_test(np.array([1.0, 2.0, 3.0]))
    >>> round(float(found.low), 3), round(float(found.p), 4)
    (-0.484, 0.0742)
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Pooled(mean, -np.inf, np.inf, 1.0, np.inf, 0)
    return _with_t(mean, float(np.std(values, ddof=1)) / np.sqrt(count), count - 1)


def pool(groups: Mapping[str, Any]) -> Pooled:
    r"""Random-effects mean over data sets of the differences of each, seed by seed.

    The variance between data sets is that of DerSimonian and Laird; error and interval are those of Hartung and Knapp,
    with as many degrees of freedom as data sets less one. Runs of one seed are paired within a data set only: seeds
    are not shared between data sets. A single data set gives its t-test.

    >>> import numpy as np
    >>> found = pool({"a": np.array([1.0, 1.2, 0.8]), "b": np.array([1.1, 0.9, 1.0])})
    >>> round(found.effect, 2), found.freedom
    (1.0, 1)
    """
    usable = {name: np.asarray(values, dtype=np.float64) for name, values in groups.items() if len(values) >= 2}
    if len(usable) <= 1:
        return t_test(next(iter(usable.values())) if usable else np.concatenate([*map(np.atleast_1d, groups.values())]))
    means = np.array([values.mean() for values in usable.values()])
    errors = np.array([max(values.std(ddof=1) ** 2 / len(values), 1e-30) for values in usable.values()])
    weights = 1 / errors
    fixed = (weights * means).sum() / weights.sum()
    q = (weights * (means - fixed) ** 2).sum()
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    between = max(0.0, (q - (len(means) - 1)) / scale)
    weights = 1 / (errors + between)
    mean = float((weights * means).sum() / weights.sum())
    spread = (weights * (means - mean) ** 2).sum() / (len(means) - 1) / weights.sum()
    # never narrower than without heterogeneity: with few data sets the spread may be small by chance
    return _with_t(mean, float(np.sqrt(max(spread, 1 / weights.sum()))), len(means) - 1)


def detectable(error: float, freedom: int, *, power: float = 0.8, level: float = 0.05) -> float:
    """The smallest true effect that a two-sided t-test with this standard error finds with the given power.

    >>> round(detectable(1.0, 4), 2)  # five pairs: dz = 1.68
    3.76
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if freedom < 1 or not np.isfinite(error):
        return float("inf")
    if error == 0:
        return 0.0
    border = t.ppf(1 - level / 2, freedom)

    def missing(shift: float) -> float:
        return float(nct.sf(border, freedom, shift)) - power  # the other tail is below 1e-3 where the power is 80 %

    root: Any = brentq(missing, 1e-3, 6.0 * border + 10.0)
    return error * float(root)


def holm(values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(values)
    corrected, largest = np.empty(len(values)), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return [float(f"{value:.12g}") for value in corrected]


def _with_t(mean: float, error: float, freedom: int) -> Pooled:
    from scipy.stats import t

    if error == 0:
        return Pooled(mean, mean, mean, 0.0 if mean else 1.0, 0.0, freedom)
    half = float(t.ppf(0.975, freedom)) * error
    return Pooled(mean, mean - half, mean + half, float(2 * t.sf(abs(mean) / error, freedom)), error, freedom)
