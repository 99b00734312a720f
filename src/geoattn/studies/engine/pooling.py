"""Statistics of the ledger: pooled effects, the effect that a design can see, correction for many claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from geoattn.statistics.clusters import cluster_counts

__all__ = ["Pooled", "critical", "detectable", "holm", "p_value", "pool", "seed_bootstrap", "t_test", "usable_groups"]


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


def pool(groups: Mapping[str, Mapping[Any, float]]) -> Pooled:
    r"""Random-effects mean over data sets of paired differences, by data set and then by seed.

    The model is :math:`x_{ds} = \mu + u_d + e_{ds}` with one u for each of the D data sets. These have equal weights,

    .. math:: \hat\mu = \frac{1}{D} \sum_d \bar x_d, \qquad
              \mathrm{error}^2 = \max\Big( \frac{1}{D} \mathrm{var}_d(\bar x_d),\;
              \frac{1}{D^2} \sum_d \frac{s_d^2}{n_d},\; \frac{S}{S - 1} \sum_s \Big( \sum_d
              \frac{x_{ds} - \bar x_d}{D n_d} \Big)^2 \Big)

    for S seeds. Weights by precision would need the variance of u, which two or three data sets do not give: the one
    with the least noise then decides alone. The second term keeps the error from being small because a few means happen
    to agree. The third is the error of whole seeds: runs of one seed may share weights and order over data sets, so
    that their differences are not independent. The degrees of freedom are those of the fewer of data sets and seeds,
    less one. Data sets with one seed have no spread and are left out. A single data set gives its t-test, and so do
    data sets of which none has two seeds: each is then one observation.

    >>> found = pool({"a": {0: 1.0, 1: 1.2, 2: 0.8}, "b": {0: 1.1, 1: 0.9, 2: 1.0}})
    >>> round(found.effect, 2), found.freedom
    (1.0, 1)
    """
    usable = usable_groups(groups)
    if len(usable) <= 1 or all(len(values) < 2 for values in usable.values()):
        return t_test(np.array([v for values in usable.values() for v in values.values()], dtype=np.float64))
    sets = [np.array(list(values.values()), dtype=np.float64) for values in usable.values()]
    means = np.array([values.mean() for values in sets])
    spread = means.var(ddof=1) / len(means)
    within = sum(float(values.var(ddof=1)) / len(values) for values in sets) / len(means) ** 2
    scores: dict[Any, float] = {}
    for middle, values in zip(means, usable.values(), strict=True):
        for seed, value in values.items():
            scores[seed] = scores.get(seed, 0.0) + (value - middle) / (len(values) * len(means))
    seeds = len(scores)
    whole = seeds / (seeds - 1) * sum(score**2 for score in scores.values())
    return _with_t(float(means.mean()), float(np.sqrt(max(spread, within, whole))), min(len(means), seeds) - 1)


def usable_groups(groups: Mapping[str, Mapping[Any, float]]) -> dict[str, dict[Any, float]]:
    """The data sets that `pool` counts: those with two seeds or more, or all where there is none."""
    several = {name: dict(values) for name, values in groups.items() if len(values) >= 2}
    return several or {name: dict(values) for name, values in groups.items() if values}


def seed_bootstrap(
    groups: Mapping[str, Mapping[Any, float]], *, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile interval of the pooled mean when seeds are drawn, each with all of its data sets.

    It is about these data sets, where `pool` is about data sets like them. With fewer than ten seeds or so it is too
    narrow: it stands beside the interval of Student's t, which judges. There is none (infinite bounds) with fewer than
    three seeds.

    >>> low, high = seed_bootstrap({"a": {0: 1.0, 1: 1.2, 2: 0.8}, "b": {0: 1.1, 1: 0.9, 2: 1.0}})
    >>> 0.8 < low < 1.0 < high < 1.2
    True
    """
    usable = usable_groups(groups)
    labels = [unit for values in usable.values() for unit in values]
    if len(set(labels)) < 3:
        return -np.inf, np.inf
    order = {unit: place for place, unit in enumerate(dict.fromkeys(labels))}
    counts = cluster_counts([order[unit] for unit in labels], resamples=resamples, seed=seed)
    sums, shares, start = np.zeros(resamples), np.zeros(resamples), 0
    for values in usable.values():
        own = counts[:, start : start + len(values)]
        start += len(values)
        there = own.sum(1)
        mean = own @ np.array(list(values.values())) / np.maximum(there, 1)
        sums += np.where(there > 0, mean, 0.0)
        shares += there > 0
    low, high = np.quantile(sums[shares > 0] / shares[shares > 0], [0.025, 0.975])
    return float(low), float(high)


def detectable(error: float, freedom: int, *, power: float = 0.8, level: float = 0.05) -> float:
    """The smallest true effect that a two-sided t-test with this standard error finds with the given power.

    >>> round(detectable(1.0, 4), 2)  # five pairs: dz = 1.68
    3.76
    """
    if freedom < 1 or not np.isfinite(error):
        return float("inf")
    return 0.0 if error == 0 else error * _shift(freedom, power, level)


@cache
def _shift(freedom: int, power: float, level: float) -> float:
    """The effect in standard errors; it depends on the design alone."""
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    border = t.ppf(1 - level / 2, freedom)

    def missing(shift: float) -> float:
        return float(nct.sf(border, freedom, shift)) - power  # the other tail is below 1e-3 where the power is 80 %

    root: Any = brentq(missing, 1e-3, 6.0 * border + 10.0)
    return float(root)


def critical(freedom: int, level: float = 0.05) -> float:
    """The two-sided quantile of Student's t.

    >>> round(critical(4), 3)
    2.776
    """
    from scipy.stats import t

    return float(t.ppf(1 - level / 2, freedom))


def p_value(effect: float, half: float, freedom: int) -> float:
    """Two-sided, of no effect, from half the width of the 95 % interval.

    >>> round(p_value(1.0, 1.0, 4), 3)
    0.05
    """
    from scipy.stats import t

    if half == 0:
        return 0.0 if effect else 1.0
    return float(2 * t.sf(abs(effect) * critical(freedom) / half, freedom))


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
    half = critical(freedom) * error
    return Pooled(mean, mean - half, mean + half, p_value(mean, half, freedom), error, freedom)
