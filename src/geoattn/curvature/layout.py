"""Which edges, and their values in the shape of the attention: dense with NaN, or sampled with an index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Int

from geoattn import _native
from geoattn._core.arguments import read_count
from geoattn.curvature.transport import Status
from geoattn.graph.inputs import Weights

# Types for editors and checkers; at run time the arguments are checked at the door, with an error in words.
if TYPE_CHECKING:
    Edges = Literal["all"] | int | np.ndarray
else:
    Edges = Any

__all__ = ["Edges", "flat_places", "lay_out", "read_edges"]


def read_edges(edges: Any) -> int | None:
    """None for all edges, or how many to draw from each graph."""
    if isinstance(edges, str) and edges == "all":
        return None
    return read_count("edges", edges, least=1, instead="'all' or ")


def lay_out(
    columns: dict[str, np.ndarray], places: Int[np.ndarray, " e"], weights: Weights, *, dense: bool
) -> dict[str, Any]:
    """The columns in the layout of `Curvature`, with ``shape`` and ``index``, as keywords for a result.

    ``places`` says where each edge is in (graphs, n, n), flat and ascending.
    Dense: (..., n, n), each undirected edge in both triangles; floats are NaN elsewhere, ``status`` says why.
    Sampled: the columns as they are, and an index (e, batch axes + 2).
    """
    n, shape = weights.n, (*weights.shape, weights.n, weights.n)
    if not dense:
        return {**columns, "shape": shape, "index": np.stack(np.unravel_index(places, shape), axis=1)}
    graphs = math.prod(weights.shape)
    maps = {name: np.empty((graphs, n, n), dtype=values.dtype) for name, values in columns.items()}
    directed = weights.convention.directed
    _native.lay_out(list(columns.values()), places, list(maps.values()), directed, Status.NO_EDGE.value)
    if "status" in maps and weights.padded:
        valid = weights.valid.reshape(graphs, -1, n)[:, 0]
        missing = ~(valid[:, :, None] & valid[:, None, :]) & (maps["status"] == Status.NO_EDGE)
        maps["status"][missing] = Status.MISSING_TOKEN
    arrays = {name: values.reshape(shape) for name, values in maps.items()}
    return {**arrays, "shape": shape, "index": None}


def flat_places(graph: Int[np.ndarray, " e"], pairs: Int[np.ndarray, "e 2"], n: int) -> Int[np.ndarray, " e"]:
    """Where the pairs of each graph are in (graphs, n, n), flat."""
    return (graph * n + pairs[:, 0]) * n + pairs[:, 1]
