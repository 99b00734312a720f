"""All-pairs shortest paths in float64, with no threshold on the lengths."""

from __future__ import annotations

import os

import numpy as np
from jaxtyping import Float

from geoattn import _native
from geoattn._core.errors import GeoattnError

__all__ = ["default_threads", "shortest_paths"]


def default_threads() -> int:
    """As many threads as the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shortest_paths(
    lengths: Float[np.ndarray, "n n"], *, directed: bool = False, threads: int | None = None
) -> Float[np.ndarray, "n n"]:
    """d(i, j): the length of the shortest path from i to j; infinite where there is none, 0 on the diagonal.

    Floyd-Warshall, O(n^3), vectorised and tiled. Lengths are non-negative, infinite where there is no edge; an edge of
    1e-300 counts (SciPy's dense routine drops edges below about 1e-8). The diagonal is ignored.

    >>> import numpy as np
    >>> lengths = np.array([[0, 1e-300, 5.0], [1e-300, 0, 1.0], [5.0, 1.0, 0]])
    >>> shortest_paths(lengths)[0]
    array([0.e+000, 1.e-300, 1.e+000])
    """
    distances = np.array(lengths, dtype=np.float64, order="C")
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise GeoattnError(f"lengths must have shape (n, n); got {distances.shape}.")
    np.fill_diagonal(distances, 0.0)
    if np.isnan(distances).any() or (distances < 0).any():
        raise GeoattnError(
            "lengths must be non-negative numbers, infinite where there is no edge; got a negative or NaN."
        )
    if not directed and not np.array_equal(distances, distances.T):
        raise GeoattnError("lengths of an undirected graph must be symmetric; pass directed=True for a directed one.")
    _native.shortest_paths(distances, directed=directed, threads=threads or default_threads())
    return distances
