"""Ollivier-Ricci curvature of a sparse graph, exact; what `ollivier_ricci` does with a graph by its edges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Int

from geoattn import _native
from geoattn._core.arguments import read_count
from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn._version import __version__
from geoattn.curvature.layout import read_edges
from geoattn.curvature.result import why_degenerate
from geoattn.curvature.sparse.result import EdgeCurvature
from geoattn.curvature.sparse.transport import solve_sparse
from geoattn.curvature.spread import Crew, solve_pairs_of_edges
from geoattn.curvature.transport import Transport
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import default_threads
from geoattn.graph.sparse_build import SparseGraph, build_sparse
from geoattn.graph.sparse_inputs import SparseWeights, read_sparse

__all__ = ["choose_edges", "refuse_mask", "sparse_ollivier_ricci"]


def sparse_ollivier_ricci(
    graph: Any,
    convention: Convention,
    *,
    edges: Any = "all",
    mask: Any = None,
    threads: Any = None,
    seed: Any = 0,
    progress: Callable[[int, int], object] | None = None,
    crew: Crew | None = None,
) -> EdgeCurvature:
    """Curvature of the edges of a graph given by its edges; the arguments are those of `ollivier_ricci`."""
    refuse_mask(mask)
    threads = None if threads is None else read_count("threads", threads, least=1)
    seed = read_count("seed", seed, least=0)
    weights = read_sparse(graph, convention)
    built = build_sparse(weights, convention)
    pairs, entries, available = choose_edges(built, weights, edges, seed)
    total = len(pairs)
    report = None if progress is None else (lambda done: progress(done, total))
    solved = solve_pairs_of_edges(_solve, crew, built, pairs, entries, threads, report)
    if progress is not None:
        progress(total, total)
    settings = {
        "edges": edges if isinstance(edges, (str, int)) else "chosen", "seed": seed,
        "threads": threads or default_threads(), "dtype": weights.dtype,
        "rows": "divided by their sums" if built.normalised else "as given",
        "geoattn": __version__, "numpy": np.__version__, "instruction_set": _native.instruction_set(),
    }  # fmt: skip
    result = EdgeCurvature(
        kappa=solved.kappa, w1=solved.net_w1, distance=solved.distance, gap=solved.gap, status=solved.status,
        index=pairs, convention=convention, shape=(weights.n, weights.n), names=weights.names, edges=available,
        settings=settings,
    )  # fmt: skip
    if why := why_degenerate(result.kappa, result.status, convention):
        warnings.warn(
            f"convention '{convention.name}': {why}. Compare with another convention before you read"
            " anything into these values.",
            DegenerateCurvatureWarning,
            stacklevel=4,
        )
    return result


def _solve(graph: SparseGraph, pairs: np.ndarray, entries: np.ndarray, **settings: Any) -> Transport:
    return solve_sparse(graph, pairs, entries, **settings)[0]


def refuse_mask(mask: Any) -> None:
    """Sparse graphs have no padding."""
    if mask is not None:
        raise GeoattnError("mask= is for arrays with padded tokens; leave nodes out of a sparse graph instead.")


def choose_edges(
    graph: SparseGraph, weights: SparseWeights, edges: Any, seed: int
) -> tuple[Int[np.ndarray, "e 2"], Int[np.ndarray, " e"], int]:
    """All edges, a number of them drawn by seed, or pairs of nodes: pairs, entries in lengths, how many there are."""
    pairs, entries = graph.edges()
    available = len(pairs)
    if _is_pairs(edges):
        pairs, entries = _named_pairs(graph, weights, edges)
    elif (sample := read_edges(edges)) is not None and sample < available:
        # the draw of a dense graph of the same edges
        kept = np.sort(np.random.default_rng([seed, 0]).choice(available, sample, replace=False))
        pairs, entries = pairs[kept], entries[kept]
    return np.ascontiguousarray(pairs, dtype=np.int32), entries, available


def _is_pairs(edges: Any) -> bool:
    return isinstance(edges, np.ndarray) or (isinstance(edges, Iterable) and not isinstance(edges, str))


def _named_pairs(graph: SparseGraph, weights: SparseWeights, edges: Any) -> tuple[np.ndarray, np.ndarray]:
    wanted = [tuple(pair) for pair in edges]
    if not wanted or any(len(pair) != 2 for pair in wanted):
        raise GeoattnError(f"edges must be 'all', a number, or pairs of nodes; got {len(wanted)} entries.")
    places = range(weights.n) if weights.names is None else weights.names
    number = {name: k for k, name in enumerate(places)}
    try:
        pairs = np.array([[number[u], number[v]] for u, v in wanted], dtype=np.int32)
    except (KeyError, TypeError) as error:
        raise GeoattnError(f"edges: the graph has no node {error}.") from None
    place, found = graph.lengths.find(pairs[:, 0], pairs[:, 1])
    if not found.all():
        raise GeoattnError(f"edges: the graph has no edge {wanted[int(np.flatnonzero(~found)[0])]!r}.")
    return pairs, place
