"""Statistics of the ledger: pooled effects, the effect that a design can see, correction for many claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from geoattn.statistics.clusters import cluster_counts

__all__ = ["Pooled", "detectable", "holm", "pool", "seed_bootstrap", "t_test", "usable_groups"]


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

    The variance between data sets is that of DerSimonian and Laird, the error that of Hartung and Knapp. Runs of one
    seed may share weights and order over data sets, so that their differences are not independent. The error is
    therefore never below the one of whole seeds,

    .. math:: \frac{S}{S - 1} \sum_s \Big( \sum_d \frac{w_d}{n_d} (x_{ds} - \bar x_d) \Big)^2

    for S seeds and weights w that sum to 1, and the degrees of freedom are those of the fewer of data sets and seeds,
    less one. Data sets with one seed have no spread and are left out. A single data set gives its t-test, and so do
    data sets of which none has two seeds: each is then one observation.

    >>> found = pool({"a": {0: 1.0, 1: 1.2, 2: 0.8}, "b": {0: 1.1, 1: 0.9, 2: 1.0}})
    >>> round(found.effect, 2), found.freedom
    (1.0, 1)
    """
    usable = usable_groups(groups)
    if len(usable) <= 1 or all(len(values) < 2 for values in usable.values()):
        return t_test(np.array([v for values in usable.values() for v in values.values()], dtype=np.float64))
    means, errors, weights = _weights(usable)
    mean = float(weights @ means)
    scale = 1 / (1 / errors).sum()
    spread = (weights * (means - mean) ** 2).sum() / (len(means) - 1)
    scores: dict[Any, float] = {}
    for weight, middle, values in zip(weights, means, usable.values(), strict=True):
        for seed, value in values.items():
            scores[seed] = scores.get(seed, 0.0) + weight * (value - middle) / len(values)
    seeds = len(scores)
    whole = seeds / (seeds - 1) * sum(score**2 for score in scores.values())
    # never narrower than without heterogeneity: with few data sets the spread may be small by chance
    return _with_t(mean, float(np.sqrt(max(spread, scale, whole))), min(len(means), seeds) - 1)


def usable_groups(groups: Mapping[str, Mapping[Any, float]]) -> dict[str, dict[Any, float]]:
    """The data sets that `pool` counts: those with two seeds or more, or all where there is none."""
    several = {name: dict(values) for name, values in groups.items() if len(values) >= 2}
    return several or {name: dict(values) for name, values in groups.items() if values}


def seed_bootstrap(
    groups: Mapping[str, Mapping[Any, float]], *, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile interval of the pooled mean when seeds are drawn, each with all of its data sets.

    Data sets keep their weights, so that it is about these data sets, where `pool` is about data sets like them. With
    fewer than ten seeds or so it is too narrow: it stands beside the interval of Student's t, which judges. There is
    none (infinite bounds) with fewer than three seeds.

    >>> low, high = seed_bootstrap({"a": {0: 1.0, 1: 1.2, 2: 0.8}, "b": {0: 1.1, 1: 0.9, 2: 1.0}})
    >>> 0.8 < low < 1.0 < high < 1.2
    True
    """
    usable = usable_groups(groups)
    labels = [unit for values in usable.values() for unit in values]
    if len(set(labels)) < 3:
        return -np.inf, np.inf
    single = all(len(values) < 2 for values in usable.values())
    weights = np.full(len(usable), 1 / len(usable)) if len(usable) == 1 or single else _weights(usable)[2]
    order = {unit: place for place, unit in enumerate(dict.fromkeys(labels))}
    counts = cluster_counts([order[unit] for unit in labels], resamples=resamples, seed=seed)
    sums, shares, start = np.zeros(resamples), np.zeros(resamples), 0
    for weight, values in zip(weights, usable.values(), strict=True):
        own = counts[:, start : start + len(values)]
        start += len(values)
        there = own.sum(1)
        mean = own @ np.array(list(values.values())) / np.maximum(there, 1)
        sums += np.where(there > 0, weight * mean, 0.0)
        shares += np.where(there > 0, weight, 0.0)
    low, high = np.quantile(sums[shares > 0] / shares[shares > 0], [0.025, 0.975])
    return float(low), float(high)


def _weights(usable: dict[str, dict[Any, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the data sets, their variances with that between data sets, and their weights, which sum to 1."""
    values = [np.array(list(group.values()), dtype=np.float64) for group in usable.values()]
    means = np.array([v.mean() for v in values])
    errors = np.array([max(v.std(ddof=1) ** 2 / len(v), 1e-30) for v in values])
    weights = 1 / errors
    fixed = (weights * means).sum() / weights.sum()
    q = (weights * (means - fixed) ** 2).sum()
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    errors = errors + max(0.0, (q - (len(means) - 1)) / scale)
    return means, errors, 1 / errors / (1 / errors).sum()


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
