"""Counts of a profile as a density that can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from geoattn.statistics.histograms import EDGES, quantiles

__all__ = ["Grid", "density", "grid_of"]

_LOWEST = -4.0  # a tail below it is told in words
_RARE = 0.01


@dataclass(frozen=True)
class Grid:
    """Bins of one width for a picture: from ``start`` to 1."""

    start: float
    width: float
    bins: int

    @property
    def edges(self) -> Float[np.ndarray, " k"]:
        """Borders of the bins."""
        return self.start + self.width * np.arange(self.bins + 1)


def grid_of(counts: Sequence[np.ndarray]) -> Grid:
    """Bins that show all but the rarest values of all the given distributions, (bins,) each."""
    lows = [float(quantiles(c, np.array([_RARE]))[0]) for c in counts if c.sum()]
    low = max(_LOWEST, min([*lows, 0.98]) - 0.04)
    span = 1.0 - low
    width = 0.01 if span <= 1 else 0.02 if span <= 2.2 else 0.05
    bins = int(np.ceil(span / width - 1e-9))
    return Grid(1.0 - bins * width, width, bins)


def density(counts: np.ndarray, grid: Grid) -> tuple[Float[np.ndarray, " k"], float]:
    """Density in each bin of the grid, and the share of values below it. Within a bin of the profile it is even."""
    total = counts.sum()
    if total == 0:
        return np.zeros(grid.bins), 0.0
    left = EDGES.copy()
    left[0] = left[1] * 1.05
    below = np.concatenate([[0.0], np.cumsum(counts)]) / total
    heights = np.interp(grid.edges, left, below)
    return np.diff(heights) / grid.width, float(heights[0])
