"""Counts of curvature values in fixed bins: distributions that add up over batches, heads and layers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

__all__ = ["EDGES", "count_values", "quantiles"]

_STEP = 0.01
# 0.01 wide from -1 to 1; below -1, where only a tail can be, 5 % wide down to -1e6; the first bin takes the rest.
_TAIL = -np.geomspace(1.0, 1e6, 284)[:0:-1]
#: Borders of the bins, ascending; bin k holds EDGES[k] <= kappa < EDGES[k + 1], the last one also 1 itself.
EDGES: Float[np.ndarray, " k"] = np.concatenate([[-np.inf], _TAIL, np.round(np.arange(-1.0, 1.0, _STEP), 2), [1.0]])


def count_values(
    values: Float[np.ndarray, " e"], row: Int[np.ndarray, " e"], rows: int
) -> Int[np.ndarray, "rows bins"]:
    """How many values of each row fall into each bin."""
    bins = len(EDGES) - 1
    # 1 itself, and what rounding put above it, belongs to the last bin; a nudge keeps 0.29 from falling into 0.28.
    place = np.clip(np.searchsorted(EDGES, values + 1e-12, side="right") - 1, 0, bins - 1)
    return np.bincount(row * bins + place, minlength=rows * bins).reshape(rows, bins)


def quantiles(counts: Int[np.ndarray, " bins"], levels: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """Quantiles from the counts, linear within a bin: off by at most the width of the bin."""
    total = counts.sum()
    if total == 0:
        return np.full(len(levels), np.nan)
    left = EDGES.copy()
    left[0] = left[1]  # the open bin has no other end
    heights = np.concatenate([[0.0], np.cumsum(counts) / total])
    seen = np.concatenate([[True], np.diff(heights) > 0])
    first = np.flatnonzero(counts)[0]
    seen[: first + 1] = False
    seen[first] = True  # start at the left border of the first bin with a value in it
    return np.interp(levels, heights[seen], left[seen])
