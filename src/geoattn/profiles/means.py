"""Means over samples, streamed, with bootstrap intervals whose memory does not grow with the number of samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from geoattn.profiles.lens import Lens, Row
from geoattn.profiles.pieces import Piece

__all__ = ["MeanLens", "Means", "Moments", "interval", "resampling_weights"]

_BLOCK = 64  # samples that are folded into the sums together


class Moments(NamedTuple):
    """The sums of a lens over b samples and h heads, from which means are made; see `MeanLens`.

    ``counts`` (b, h) are the numbers of what is averaged, and ``totals`` has (b, h) sums by name of the statistic.

    Examples
    --------
    Two maps of three rows each, with the row entropies of each map added up:

    >>> import numpy as np
    >>> from geoattn.profiles import Moments
    >>> moments = Moments(np.array([[3.0], [3.0]]), {"row_entropy": np.array([[2.1], [2.7]])})
    >>> float(moments.totals["row_entropy"].sum() / moments.counts.sum())
    0.8
    """

    counts: Float[np.ndarray, "b h"]
    totals: dict[str, Float[np.ndarray, "b h"]]


@dataclass(eq=False)
class Means:
    r"""Ratios of sums, :math:`\sum_s w_s T_s / \sum_s w_s C_s`, for the data (w = 1) and for r resamplings.

    The Poisson bootstrap: in each resampling a sample counts :math:`w_s \sim` Poisson(1) times, drawn from the seed and
    the number of the sample alone. So samples stream, all layers and heads are resampled together, and two models that
    saw the same samples can be compared pair by pair. The unit is the sample, as edges of one map are not independent.

    ``waiting`` holds (2, heads) totals and counts by sample and statistic until a block of samples is folded into
    ``sums`` (2, heads) and ``resamples`` (2, heads, r). Memory O(r) per head and statistic.

    Reference: Chamandy, Muralidharan, Najmi and Naidu, Estimating uncertainty for massive data streams, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.profiles import Means, Moments
    >>> means = Means(heads=2, resamplings=200, seed=0)
    >>> counts, totals = np.ones((3, 2)), np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]])
    >>> means.add(np.arange(3), slice(0, 2), Moments(counts, {"size": totals}))
    >>> (total, count), resampled = means.estimate("size")
    >>> total / count, resampled.shape
    (array([3., 1.]), (2, 2, 200))
    """

    heads: int
    resamplings: int
    seed: int
    waiting: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    resamples: dict[str, np.ndarray] = field(default_factory=dict)
    folded: int = 0

    def add(self, samples: np.ndarray, heads: slice, seen: Moments) -> None:
        """Add what was seen of samples, by number, and of some heads."""
        for k, sample in enumerate(samples):
            mine = self.waiting.setdefault(int(sample), {})
            for statistic, total in seen.totals.items():
                if statistic not in mine:
                    mine[statistic] = np.zeros((2, self.heads))
                mine[statistic][0, heads] += total[k]
                mine[statistic][1, heads] += seen.counts[k]

    def merge(self, other: "Means", *, fold: bool = True) -> "Means":
        """Take what another one has; without ``fold`` samples stay apart."""
        for sample, statistics in other.waiting.items():
            mine = self.waiting.setdefault(sample, {})
            for statistic, both in statistics.items():
                mine[statistic] = mine[statistic] + both if statistic in mine else both.copy()
        for name in ("sums", "resamples"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for statistic, values in theirs.items():
                mine[statistic] = mine[statistic] + values if statistic in mine else values.copy()
        self.folded += other.folded
        while fold and len(self.waiting) >= _BLOCK:
            self._fold(list(self.waiting)[:_BLOCK])
        return self

    def estimate(self, statistic: str) -> tuple[Float[np.ndarray, "2 h"], Float[np.ndarray, "2 h r"]]:
        """Totals and counts by head, of the data and of each resampling."""
        if self.waiting:
            self._fold(list(self.waiting))
        return self.sums[statistic], self.resamples[statistic]

    @property
    def statistics(self) -> list[str]:
        """Names of what is averaged."""
        return list(dict.fromkeys([*self.sums, *(name for one in self.waiting.values() for name in one)]))

    @property
    def samples(self) -> int:
        """How many samples it has seen."""
        return self.folded + len(self.waiting)

    def _fold(self, samples: list[int]) -> None:
        rows = [self.waiting.pop(sample) for sample in samples]
        self.folded += len(rows)
        weights = np.stack([resampling_weights(self.seed, sample, self.resamplings) for sample in samples])
        nothing = np.zeros((2, self.heads))
        for statistic in dict.fromkeys(name for row in rows for name in row):
            block = np.stack([row.get(statistic, nothing) for row in rows])
            if statistic not in self.sums:
                self.sums[statistic] = nothing.copy()
                self.resamples[statistic] = np.zeros((2, self.heads, self.resamplings))
            self.sums[statistic] += block.sum(axis=0)
            self.resamples[statistic] += np.tensordot(block, weights, axes=(0, 0))


class MeanLens(Lens):
    """A lens that averages numbers over samples; a subclass gives `measure`, and this class does the rest.

    Examples
    --------
    The largest weight of a row, averaged over the rows:

    >>> import geoattn as ga
    >>> class LargestWeight(ga.profiles.MeanLens):
    ...     name = "largest"
    ...
    ...     def measure(self, piece):
    ...         largest = piece.attention.amax(-1).double().cpu().numpy() * piece.valid
    ...         return ga.profiles.Moments(piece.valid.sum(-1), {"largest_weight": largest.sum(-1)})
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4)
    >>> profile = ga.profile(model, digits, lenses=["weights", LargestWeight()])
    >>> value, low, high = profile.value("largest_weight", layer=0, lens="largest")
    >>> bool(0 < low <= value <= high < 1)
    True
    """

    #: Whether samples are folded into sums; without it the numbers of each sample stay in the state.
    fold = True

    def __init__(self, *, resamplings: int = 1000, seed: int = 0) -> None:
        self.resamplings, self.seed = resamplings, seed

    @abstractmethod
    def measure(self, piece: Piece) -> Moments | Iterable[Moments]:
        """Counts (b, h) and totals (b, h) by statistic, of the maps ``piece.attention`` (b, h, n, n).

        ``piece.valid`` (b, h, n) is True for tokens of the graph. Statistics with other counts go into Moments of
        their own.
        """

    def see(self, piece: Piece) -> Means:
        """Means of one piece."""
        state = Means(piece.head_count, self.resamplings, self.seed)
        seen = self.measure(piece)
        for moments in [seen] if isinstance(seen, Moments) else seen:
            state.add(piece.numbers, piece.heads, moments)
        return state

    def merge(self, one: Means, other: Means) -> Means:
        """Both together."""
        return one.merge(other, fold=self.fold)

    def rows(self, states: Sequence[Means], heads: slice, level: float) -> Iterator[Row]:
        """Pooled ratios with percentile intervals of the bootstrap; NaN bounds when there is one sample."""
        yield from mean_rows(states, heads, level)

    def resampled(self, state: Means) -> dict[str, np.ndarray]:
        """Totals and counts (2, r) of the layer, by statistic."""
        return {statistic: state.estimate(statistic)[1].sum(axis=1) for statistic in state.statistics}


def mean_rows(states: Sequence[Means], heads: slice, level: float, lens: str | None = None) -> Iterator[Row]:
    """A row for each statistic of some heads of some layers, pooled."""
    for statistic in dict.fromkeys(name for state in states for name in state.statistics):
        parts = [state.estimate(statistic) for state in states if statistic in state.statistics]
        total, count = np.sum([sums[:, heads].sum(axis=1) for sums, _ in parts], axis=0)
        totals, counts = np.sum([many[:, heads].sum(axis=1) for _, many in parts], axis=0)
        several = any(state.samples > 1 for state in states)
        low, high = interval(totals, counts, level) if several else (float("nan"), float("nan"))
        yield Row(statistic, float(total / count) if count else float("nan"), low, high, int(count), lens)


@lru_cache(maxsize=4096)  # all lenses and layers ask for the same samples
def resampling_weights(seed: int, sample: int, resamplings: int) -> Float[np.ndarray, " r"]:
    """How often a sample counts in each resampling."""
    return np.random.default_rng([seed, sample]).poisson(1.0, resamplings).astype(np.float64)


def interval(totals: Any, counts: Any, level: float) -> tuple[float, float]:
    """Percentile interval of the resampled ratios; NaN when too few resamplings saw anything."""
    seen = counts > 0
    if seen.sum() < max(20, 0.5 * len(counts)):
        return float("nan"), float("nan")
    low, high = np.quantile(totals[seen] / counts[seen], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
