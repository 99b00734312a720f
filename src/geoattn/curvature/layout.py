"""Which edges, and their values in the shape of the attention: dense with NaN, or sampled with an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Int

from geoattn.curvature.transport import Status
from geoattn.errors import GeoattnError
from geoattn.graph.inputs import Weights

# Types for editors and checkers; at run time the arguments are checked at the door, with an error in words.
if TYPE_CHECKING:
    Edges = Literal["all"] | int | np.ndarray
    Count = int
else:
    Edges = Count = Any

__all__ = ["Count", "Edges", "lay_out", "read_count", "read_edges"]


def read_count(name: str, value: Any, *, least: int, instead: str = "") -> int:
    """A whole number of at least `least`, from Python or NumPy."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < 2**31:
        raise GeoattnError(f"{name} must be {instead}a whole number of at least {least}, below 2^31; got {value!r}.")
    return int(value)


def read_edges(edges: Any) -> int | None:
    """None for all edges, or how many to draw from each graph."""
    if isinstance(edges, str) and edges == "all":
        return None
    return read_count("edges", edges, least=1, instead="'all' or ")


def lay_out(
    columns: dict[str, np.ndarray],
    graph: Int[np.ndarray, " e"],
    pairs: Int[np.ndarray, "e 2"],
    weights: Weights,
    *,
    dense: bool,
) -> dict[str, Any]:
    """The columns in the layout of `Curvature`, with ``shape`` and ``index``, as keywords for a result.

    Dense: (..., n, n), each undirected edge in both triangles; floats are NaN elsewhere, ``status`` says why.
    Sampled: the columns as they are, and an index (e, batch axes + 2).
    """
    n, shape = weights.n, (*weights.shape, weights.n, weights.n)
    if not dense:
        place = np.unravel_index(graph, weights.shape) if weights.shape else ()
        return {**columns, "shape": shape, "index": np.stack([*place, *pairs.T], axis=1).astype(np.int64)}
    count = int(np.prod(weights.shape, dtype=int))
    valid = weights.valid.reshape(count, -1, n)[:, 0]
    x, y = pairs.T.astype(np.int64)
    # One look-up table, and each column is taken once: quicker than to put each into both triangles.
    table = np.full(count * n * n, len(pairs), dtype=np.int64)
    table[(graph * n + x) * n + y] = np.arange(len(pairs))
    if not weights.convention.directed:
        table[(graph * n + y) * n + x] = np.arange(len(pairs))
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        array = np.append(values, values.dtype.type(Status.NO_EDGE) if name == "status" else np.nan)[table]
        if name == "status" and not valid.all():
            missing = ~(valid[:, :, None] & valid[:, None, :]).ravel()
            array[missing & (table == len(pairs))] = Status.MISSING_TOKEN
        arrays[name] = array.reshape(shape)
    return {**arrays, "shape": shape, "index": None}
