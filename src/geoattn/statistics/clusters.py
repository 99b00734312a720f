"""The bootstrap by clusters: observations that share a seed are drawn together or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.errors import GeoattnError

__all__ = ["cluster_counts", "weighted_rank_correlations"]


def cluster_counts(clusters: Any, *, resamples: int = 2000, seed: int = 0) -> Int[np.ndarray, "r n"]:
    """How often each observation comes in each resampling of whole clusters, drawn with replacement.

    ``clusters`` (n,) has a label for each observation, such as the seed of its run. Runs of one seed share weights and
    order, and so their numbers are not independent; a bootstrap over single observations would be too narrow. The
    number of clusters is what counts: with fewer than about ten a percentile interval is too narrow all the same, and
    Student's t over clusters is better.

    Examples
    --------
    >>> counts = cluster_counts(["a", "a", "b", "c"], resamples=100)
    >>> counts.shape, bool((counts[:, 0] == counts[:, 1]).all())
    ((100, 4), True)
    """
    labels = np.asarray(clusters)
    if labels.ndim != 1 or len(labels) == 0:
        raise GeoattnError(f"clusters must be one label for each observation; got shape {labels.shape}.")
    names, place = np.unique(labels, return_inverse=True)
    drawn = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return drawn[:, place.reshape(-1)]


def weighted_rank_correlations(
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
    counts: Int[np.ndarray, "r n"],
) -> Float[np.ndarray, " r"]:
    """Spearman's correlation within groups of each resampling, where observation i comes ``counts[:, i]`` times.

    Ranks are those of the resampled observations, ties shared, centred within each group; NaN for a resampling in which
    a number takes one value only.
    """
    same = groups[:, None] == groups[None, :]
    ranks = []
    for values in (x, y):
        below = ((values[:, None] > values[None, :]) + 0.5 * (values[:, None] == values[None, :])) * same
        rank = counts @ below.T
        total = counts @ same
        middle = (counts * rank) @ same / np.maximum(total, 1)
        ranks.append(rank - middle)
    a, b = ranks
    scale = np.sqrt((counts * a * a).sum(1) * (counts * b * b).sum(1))
    return np.where(scale > 1e-12, (counts * a * b).sum(1) / np.where(scale > 1e-12, scale, 1.0), np.nan)
