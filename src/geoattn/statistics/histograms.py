"""Counts of curvature values in fixed bins: distributions that add up over batches, heads and layers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Real

__all__ = ["EDGES", "count_values", "quantiles"]

_STEP = 0.01
# 0.01 wide from -1 to 1; below -1, where only a tail can be, 5 % wide down to -1e6; the first bin takes the rest.
_TAIL = -np.geomspace(1.0, 1e6, 284)[:0:-1]
#: Borders of the bins, ascending; bin k holds EDGES[k] <= kappa < EDGES[k + 1], the last one also 1 itself.
EDGES: Float[np.ndarray, " k"] = np.concatenate([[-np.inf], _TAIL, np.round(np.arange(-1.0, 1.0, _STEP), 2), [1.0]])


def count_values(
    values: Float[np.ndarray, " e"], row: Int[np.ndarray, " e"], rows: int
) -> Int[np.ndarray, "rows bins"]:
    """The number of values of each row in each bin.

    The bins are 0.01 wide from -1 to 1 and wider below -1; ``row`` (e,) says to which of ``rows`` rows a value belongs.
    Counts of parts add up to the counts of the whole.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import count_values
    >>> counts = count_values(np.array([0.5, 0.505, -0.2, 1.0]), np.array([0, 0, 0, 1]), 2)
    >>> counts.sum(axis=1), counts.max(axis=1)
    (array([3, 1]), array([2, 1]))
    """
    bins = len(EDGES) - 1
    # 1 itself, and what rounding put above it, belongs to the last bin; a nudge keeps 0.29 from falling into 0.28.
    place = np.clip(np.searchsorted(EDGES, values + 1e-12, side="right") - 1, 0, bins - 1)
    return np.bincount(row * bins + place, minlength=rows * bins).reshape(rows, bins)


def quantiles(counts: Real[np.ndarray, " bins"], levels: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """Quantiles from the counts of `count_values`, linear within a bin; the error is at most the width of the bin.

    Counts may be weighted, so that they need not be integers. The quantile of a level q is that of the first bin up to
    which a share of at least q of the values lies. Without any value the quantiles are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import count_values, quantiles
    >>> values = np.repeat([0.205, 0.805], 50)  # two modes, nothing between them
    >>> counts = count_values(values, np.zeros(100, dtype=int), 1)[0]
    >>> quantiles(counts, np.array([0.25, 0.75]))
    array([0.205, 0.805])
    """
    total = counts.sum()
    if total == 0:
        return np.full(len(levels), np.nan)
    left = EDGES.copy()
    left[0] = left[1]  # the open bin has no other end
    below = np.cumsum(counts)
    bins = np.maximum(np.searchsorted(below, levels * total), np.flatnonzero(counts)[0])
    share = (levels * total - (below - counts)[bins]) / counts[bins]
    return left[bins] + share * np.diff(left)[bins]
