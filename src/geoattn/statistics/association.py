"""Does one number of a run predict another? Rank correlation over runs, and differences between paired runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.statistics.clusters import cluster_counts, weighted_rank_correlations

__all__ = ["Association", "PairedDifference", "paired_difference", "rank_correlation"]

_FEWEST = 4  # runs


@dataclass(frozen=True, repr=False)
class Association(Displayed):
    """Spearman's rank correlation over runs, with a bootstrap interval and a permutation p-value.

    There are ``runs`` runs in ``groups`` groups. ``method`` says how ``low`` and ``high`` were made. Where resampling
    cannot give them they are NaN, and ``method`` says why.

    Examples
    --------
    >>> from geoattn.statistics import rank_correlation
    >>> found = rank_correlation([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 4, 3, 5, 6, 8, 7])
    >>> round(found.correlation, 4), found.low < found.correlation <= found.high, found.method
    (0.9524, True, 'bootstrap over runs')
    """

    correlation: float
    low: float
    high: float
    p_value: float
    runs: int
    groups: int
    level: float
    method: str
    settings: dict[str, Any] = field(default_factory=dict)


def rank_correlation(
    x: Any,
    y: Any,
    groups: Any = None,
    *,
    clusters: Any = None,
    level: float = 0.95,
    resamples: int = 5000,
    seed: int = 0,
) -> Association:
    r"""Spearman's rank correlation of two numbers per run, for example curvature and rho.

    Parameters
    ----------
    x, y
        (runs,) finite numbers, in the same order.
    groups
        (runs,) a label per run, for example the data set: ranks are then taken, and centred, within each group before
        they are correlated, and runs are resampled and permuted within it. Without it, data sets that differ in both
        numbers make a correlation where none of them has one. Groups of one run carry no information and are refused.
    clusters
        (runs,) a label per run, for example its seed, where several runs share one: whole clusters are then resampled,
        and ``p_value`` is twice the smaller share of resamples on one side of 0. With fewer than four clusters there is
        no interval.
    level, resamples, seed
        Percentile bootstrap over runs, and as many permutations; p is at least 1 / (resamples + 1), two-sided. With
        fewer than 7 runs in all the permutations are few; p can then not be small whatever the data.

    Notes
    -----
    The unit is the run: two checkpoints of one training are not two runs. Resamples in which a number takes one value
    only have no correlation and are left out; ``method`` counts them.

    Examples
    --------
    >>> from geoattn.statistics import rank_correlation
    >>> found = rank_correlation([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [8, 7, 6, 4, 5, 3, 1, 2])
    >>> round(found.correlation, 3), found.high < 0, found.p_value < 0.01
    (-0.952, True, True)
    """
    a, b = _read("x", x), _read("y", y)
    _check(a, b, level, resamples)
    labels = np.zeros(len(a), dtype=int) if groups is None else _read_groups(groups, len(a))
    parts = [np.flatnonzero(labels == g) for g in range(labels.max() + 1)]
    found = float(_correlate(_ranks(a[None], parts), _ranks(b[None], parts))[0])
    settings = {"resamples": resamples, "seed": seed}
    if not np.isfinite(found):
        nan = float("nan")
        why = "none: one of the numbers is the same in all runs"
        return Association(nan, nan, nan, nan, len(a), len(parts), level, why, settings)
    if clusters is not None:
        return _by_clusters(found, a, b, labels, clusters, level, settings)
    rng = np.random.default_rng(seed)
    draws = np.empty((resamples, len(a)), dtype=np.int64)
    mixed = np.empty_like(draws)
    for part in parts:
        draws[:, part] = part[rng.integers(0, len(part), (resamples, len(part)))]
        mixed[:, part] = rng.permuted(np.broadcast_to(part, (resamples, len(part))), axis=1)
    spread = _correlate(_ranks(a[draws], parts), _ranks(b[draws], parts))
    good = spread[np.isfinite(spread)]
    low, high = map(float, np.quantile(good, [(1 - level) / 2, (1 + level) / 2]))
    method = "bootstrap over runs" + ("" if len(good) == resamples else f", {resamples - len(good)} constant left out")
    one, other = _ranks(a[None], parts), _ranks(b[None], parts)
    null = _correlate(np.broadcast_to(one, mixed.shape), other[0][mixed])
    p = (1 + int((np.abs(null) >= abs(found) - 1e-12).sum())) / (resamples + 1)
    return Association(found, low, high, p, len(a), len(parts), level, method, settings)


def _by_clusters(
    found: float,
    a: np.ndarray,
    b: np.ndarray,
    labels: np.ndarray,
    clusters: Any,
    level: float,
    settings: dict[str, Any],
) -> Association:
    """The interval of a bootstrap over clusters."""
    names = np.asarray(clusters)
    if names.shape != a.shape:
        raise GeoattnError(f"clusters must be one label for each of the {len(a)} runs; got shape {names.shape}.")
    count, groups, nan = len(np.unique(names)), int(labels.max()) + 1, float("nan")
    if count < _FEWEST:
        why = f"none: {count} clusters are too few to resample"
        return Association(found, nan, nan, nan, len(a), groups, level, why, settings)
    counts = cluster_counts(names, resamples=settings["resamples"], seed=settings["seed"])
    spread = weighted_rank_correlations(a, b, labels, counts)
    good = spread[np.isfinite(spread)]
    low, high = map(float, np.quantile(good, [(1 - level) / 2, (1 + level) / 2]))
    side = 1 + min(int((good <= 0).sum()), int((good >= 0).sum()))
    left = f", {len(spread) - len(good)} constant left out" if len(good) < len(spread) else ""
    method = f"bootstrap over {count} clusters{left}"
    return Association(found, low, high, min(1.0, 2 * side / (len(good) + 1)), len(a), groups, level, method, settings)


@dataclass(frozen=True, repr=False)
class PairedDifference(Displayed):
    """Mean of second - first over pairs, by seed for example, with intervals and a sign test.

    ``low``, ``high``: Student's t; ``bootstrap_low``, ``bootstrap_high``: percentile bootstrap over pairs, which is
    too narrow for fewer than about ten pairs. ``up``, ``down``, ``ties`` count the signs; ``p_value`` is the exact
    two-sided sign test, ties left out.

    Examples
    --------
    >>> from geoattn.statistics import paired_difference
    >>> found = paired_difference([0.9, 0.88, 0.91, 0.87], [0.85, 0.86, 0.86, 0.85])
    >>> round(found.difference, 4), (found.up, found.down, found.ties), found.p_value
    (-0.035, (0, 4, 0), 0.125)
    >>> found.low < found.bootstrap_low < found.difference < found.bootstrap_high < found.high
    True
    """

    difference: float
    low: float
    high: float
    bootstrap_low: float
    bootstrap_high: float
    pairs: int
    up: int
    down: int
    ties: int
    p_value: float
    level: float
    settings: dict[str, Any] = field(default_factory=dict)


def paired_difference(
    first: Any, second: Any, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> PairedDifference:
    """How a number changes from one treatment to another, over runs that share everything else.

    Parameters
    ----------
    first, second
        (pairs,) the number under each treatment, pair by pair: the same seed, data and start.

    Notes
    -----
    The sign test assumes nothing but independent pairs; with k pairs its smallest p is 2^(1-k): 0.0625 for 5, 0.002
    for 10. The t interval assumes normal differences and has no width when all differences are equal.

    Examples
    --------
    >>> from geoattn.statistics import paired_difference
    >>> found = paired_difference([0.90, 0.88, 0.91, 0.87, 0.90, 0.92], [0.85, 0.86, 0.86, 0.85, 0.87, 0.90])
    >>> round(found.difference, 4), found.high < 0, found.p_value
    (-0.0317, True, 0.03125)
    """
    a, b = _read("first", first), _read("second", second)
    _check(a, b, level, resamples)
    change, n = b - a, len(a)
    mean = float(change.mean())
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * change.std(ddof=1) / np.sqrt(n))
    index = np.random.default_rng(seed).integers(0, n, (resamples, n))
    low, high = map(float, np.quantile(change[index].mean(1), [(1 - level) / 2, (1 + level) / 2]))
    up, down = int((change > 0).sum()), int((change < 0).sum())
    p = float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0
    settings = {"resamples": resamples, "seed": seed}
    return PairedDifference(
        mean, mean - half, mean + half, low, high, n, up, down, n - up - down, p, level, settings
    )  # fmt: skip


def _ranks(values: Float[np.ndarray, "r n"], parts: list[np.ndarray]) -> Float[np.ndarray, "r n"]:
    """Ranks within each part, ties shared, centred."""
    ranks = np.empty(values.shape)
    for part in parts:
        own = stats.rankdata(values[:, part], axis=1)
        ranks[:, part] = own - (len(part) + 1) / 2
    return ranks


def _correlate(a: Float[np.ndarray, "r n"], b: Float[np.ndarray, "r n"]) -> Float[np.ndarray, " r"]:
    """Cosine of centred ranks, row by row; NaN for a row without spread."""
    scale = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.where(scale > 0, (a * b).sum(1) / np.where(scale > 0, scale, 1.0), np.nan)


def _read(name: str, values: Any) -> Float[np.ndarray, " n"]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise GeoattnError(f"{name} must be numbers, one per run; got {array.dtype} {array.shape}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array))
        raise GeoattnError(f"{name} must be finite; run {bad[0]} has {array[bad[0]]}. Leave out failed runs in pairs.")
    return array


def _check(a: np.ndarray, b: np.ndarray, level: float, resamples: int) -> None:
    if len(a) != len(b):
        raise GeoattnError(f"both numbers must be of the same runs; got {len(a)} and {len(b)}.")
    if len(a) < _FEWEST:
        raise GeoattnError(f"at least {_FEWEST} runs are needed for a statement with an interval; got {len(a)}.")
    if not 0 < level < 1:
        raise GeoattnError(f"level must lie between 0 and 1; got {level!r}.")
    if resamples < 100:
        raise GeoattnError(f"resamples must be at least 100; got {resamples!r}.")


def _read_groups(groups: Any, count: int) -> Int[np.ndarray, " n"]:
    array = np.asarray(groups)
    if array.shape != (count,):
        raise GeoattnError(f"groups must be one label for each of the {count} runs; got shape {array.shape}.")
    names, index, sizes = np.unique(array, return_inverse=True, return_counts=True)
    if (sizes < 2).any():
        raise GeoattnError(f"group {names[sizes < 2][0]} has one run, which says nothing about order within it.")
    return index.reshape(-1)
