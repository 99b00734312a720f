"""The sparse solver's Python side: a sparse graph and pairs in, transport distances with certificates out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geoattn import _native
from geoattn.curvature.transport import IDLE_MASS, Status, Transport
from geoattn.graph.shortest_paths import default_threads
from geoattn.graph.sparse_build import SparseGraph
from geoattn.graph.sparse_rows import SparseRows

__all__ = ["solve_rows", "solve_sparse"]


def solve_sparse(
    graph: SparseGraph,
    pairs: Int[np.ndarray, "e 2"],
    entries: Int[np.ndarray, " e"],
    *,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
    upstream: Float[np.ndarray, " e"] | None = None,
) -> tuple[Transport, tuple[np.ndarray, np.ndarray] | None]:
    """Exact W1 of edges of the graph; ``entries`` are their places in ``graph.lengths``.

    With ``upstream`` = dL / dkappa also the gradients by each length and each mass.
    """
    convention = graph.convention
    return solve_rows(
        graph.lengths,
        graph.measures,
        pairs,
        graph.lengths.value[entries],
        directed=convention.directed,
        near=graph.near,
        per_length=convention.denominator == "length",
        floor=convention.floor,
        idle=IDLE_MASS if convention.alpha == "limit" else 0.0,
        threads=threads,
        progress=progress,
        upstream=upstream,
    )


def solve_rows(
    lengths: SparseRows,
    measures: SparseRows,
    pairs: Int[np.ndarray, "e 2"],
    edge_lengths: Float[np.ndarray, " e"],
    *,
    directed: bool,
    near: bool,
    seconds: SparseRows | None = None,
    per_length: bool = False,
    floor: float = 0.0,
    idle: float = 0.0,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
    upstream: Float[np.ndarray, " e"] | None = None,
) -> tuple[Transport, tuple[np.ndarray, np.ndarray] | None]:
    """Exact W1 of any pairs of nodes, from lengths and measures as they are.

    ``near`` says that each measure lives on its node and its neighbours, and each pair is an edge. ``seconds`` are the
    measures of the second node of a pair where they differ from those of the first.
    """
    count = len(pairs)
    w1, denominator, distance, gap = np.full((4, count), np.nan)
    status = np.full(count, Status.STALLED.value, dtype=np.uint8)
    offsets = np.array([0, count], dtype=np.int64)
    result = Transport(pairs, offsets, w1, denominator, distance, gap, status, None, None, idle)
    gradients = None if upstream is None else (np.zeros(len(lengths.value)), np.zeros(len(measures.value)))
    backward = lengths.transposed() if directed else lengths
    one = lengths.value[:1]
    hop = float(one[0]) if len(one) and (lengths.value == one[0]).all() else 0.0
    more: dict[str, Any] = {}
    if seconds is not None:
        more = {"second_start": seconds.start, "second_column": seconds.column, "second_mass": seconds.value}
    _native.solve_sparse(
        lengths.start, lengths.column, lengths.value, backward.start, backward.column, backward.value,
        measures.start, measures.column, measures.value, np.ascontiguousarray(pairs, dtype=np.int32),
        np.ascontiguousarray(edge_lengths, dtype=np.float64), w1, denominator, distance, gap, status, upstream,
        None if gradients is None else gradients[0], None if gradients is None else gradients[1], **more,
        directed=directed, near=near, per_length=per_length, hop=hop, floor=floor, idle=idle,
        threads=threads or default_threads(), progress=progress,
    )  # fmt: skip
    return result, gradients
