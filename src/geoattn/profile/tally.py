"""Means over samples, streamed, with bootstrap intervals whose memory does not grow with the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Key", "Moments", "Tally", "interval", "resampling_weights"]


class Moments(NamedTuple):
    """What a lens saw of b samples and h heads: ``counts`` (b, h) of what is averaged, and totals by statistic."""

    counts: Float[np.ndarray, "b h"]
    totals: dict[str, Float[np.ndarray, "b h"]]


class Key(NamedTuple):
    """What is averaged."""

    layer: int
    lens: str
    convention: str
    statistic: str


@dataclass(eq=False)
class Sums:
    """Totals and counts by head, of the data and of each resampling."""

    total: Float[np.ndarray, " h"]
    count: Float[np.ndarray, " h"]
    totals: Float[np.ndarray, "h r"]
    counts: Float[np.ndarray, "h r"]


class Tally:
    r"""Ratios of sums, :math:`\sum_s w_s T_s / \sum_s w_s C_s`, for the data (w = 1) and for r resamplings.

    The Poisson bootstrap: in each resampling a sample counts :math:`w_s \sim` Poisson(1) times, drawn from the seed and
    the number of the sample alone. So the samples stream, batches of any size give the same interval, all layers and
    heads are resampled together, and two models that saw the same samples can be compared pair by pair. The unit is the
    sample: edges of one map are not independent. Memory O(r) per head and statistic.

    Reference: Chamandy, Muralidharan, Najmi and Naidu, Estimating uncertainty for massive data streams, 2012.
    """

    def __init__(self, resamplings: int, seed: int) -> None:
        self.resamplings, self._seed = resamplings, seed
        self.sums: dict[Key, Sums] = {}

    def add(
        self, layer: int, lens: str, convention: str, samples: np.ndarray, heads: slice, h: int, seen: Moments
    ) -> None:
        """Add what a lens saw of the given samples (numbers) and heads of a layer with h heads."""
        weights = resampling_weights(samples, self.resamplings, self._seed)
        counts = seen.counts.T @ weights
        for statistic, total in seen.totals.items():
            key = Key(layer, lens, convention, statistic)
            if key not in self.sums:
                nothing = np.zeros((h, self.resamplings))
                self.sums[key] = Sums(np.zeros(h), np.zeros(h), nothing, nothing.copy())
            sums = self.sums[key]
            sums.total[heads] += total.sum(axis=0)
            sums.count[heads] += seen.counts.sum(axis=0)
            sums.totals[heads] += total.T @ weights
            sums.counts[heads] += counts


def resampling_weights(samples: np.ndarray, resamplings: int, seed: int) -> Float[np.ndarray, "b r"]:
    """How often each sample counts in each resampling."""
    rows = [np.random.default_rng([seed, int(s)]).poisson(1.0, resamplings) for s in samples]
    return np.array(rows, dtype=np.float64).reshape(len(rows), resamplings)


def interval(totals: Float[np.ndarray, " r"], counts: Float[np.ndarray, " r"], level: float) -> tuple[float, float]:
    """Percentile interval of the resampled ratios; NaN when too few resamplings saw anything."""
    seen = counts > 0
    if seen.sum() < max(20, 0.5 * len(counts)):
        return float("nan"), float("nan")
    low, high = np.quantile(totals[seen] / counts[seen], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
