"""Ollivier-Ricci curvature of attention, exact."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from geoattn import _native
from geoattn._core.arguments import Count, Number, read_count, read_number
from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn._core.progress import guarded
from geoattn._version import __version__
from geoattn.curvature.complete import all_hops_one, total_variation
from geoattn.curvature.layout import Edges, lay_out, read_edges
from geoattn.curvature.result import Curvature, why_degenerate
from geoattn.curvature.spread import Backend, Crew, crew_of, solve_graphs
from geoattn.curvature.transport import Transport, all_edges, pairs_at, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from geoattn.graph.captured import is_recorded, read_call
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import Weights, read_weights, where
from geoattn.graph.shortest_paths import default_threads
from geoattn.graph.sparse_inputs import is_sparse

__all__ = ["choose_pairs", "chunks", "ollivier_ricci"]

_CHUNK_BYTES = 32 << 20  # float64 attention of the graphs that are in work at once; a few copies of it exist


def ollivier_ricci(
    attention: Any,
    convention: str | Convention = "markov",
    *,
    edges: Edges = "all",
    mask: Any = None,
    tolerance: Number = 0.0,
    threads: Count | None = None,
    seed: Count = 0,
    progress: Callable[[int, int], object] | None = None,
    backend: Backend = "threads",
) -> Curvature | Any:  # an EdgeCurvature for a sparse graph, which has the same names
    r"""Ollivier-Ricci curvature of each edge of each attention graph.

    .. math:: \kappa(x, y) = 1 - W_1(m_x, m_y) / D(x, y)

    :math:`W_1` is the optimal transport distance for the shortest-path metric d, :math:`m_x` the measure at token x, D
    the distance; the convention fixes lengths, measures and D. kappa <= 1; it is positive where the neighbourhoods of
    two tokens are closer than the tokens, negative at bottlenecks.

    Parameters
    ----------
    attention
        (..., n, n), NumPy or torch, any float dtype and device; solved on the CPU in float64. Rows sum to one. For a
        convention whose measure is not ``markov``: any non-negative weights. Or a sparse graph: networkx, a SciPy
        sparse matrix, a sparse tensor, ``(edge_index, edge_weight, num_nodes)`` or an object with these attributes. For
        the measure ``markov`` weights of a sparse graph are divided by their row sums: its random walk. Or a `Call` of
        a record, with its own mask: ``ga.ollivier_ricci(record[0])``.
    convention
        ``markov``, ``hop``, ``grc-0.5``, ``grc-0.6``, or a `Convention`.
    edges
        ``"all"``, or how many edges to draw from each graph, without replacement, by ``seed``; or a boolean array that
        broadcasts to (..., n, n), True for the edges that are wanted. The result is dense with ``"all"``, else sparse.
        Of a sparse graph also pairs of nodes.
    mask
        (..., n) bool, True for a real token; leading axes match those of the attention. Padding is not in the graph.
    tolerance
        0: exact. Else the solver may stop at certified bounds ``lower <= kappa <= upper`` that are no further apart.
        ``kappa`` is then their middle, and ``exact`` says which values are exact all the same. Values of sparse graphs
        are always exact.
    threads
        Default: all that the process may use. The values do not depend on it.
    progress
        Called with (edges done, edges in all) about ten times a second.
    backend
        ``threads`` of this process, or ``ray``: many maps, or many edges of a sparse graph, become tasks of the cluster
        that is connected, of that at RAY_ADDRESS, or of one that is started here. The values have the same bits.

    Returns
    -------
    Curvature
        NumPy arrays, each value with its relative duality gap; NaN where there is no value, and a status that says why.
        Of a sparse graph an `EdgeCurvature`: the same by edge, with the names of the nodes.

    Notes
    -----
    Exact: a dual network simplex on integer masses, which starts from a tree made for the pair. A pair costs O(n^2) in
    practice, all edges of a complete graph O(n^4). Reference: Ollivier, Ricci curvature of Markov chains on metric
    spaces, 2009.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> result = ga.ollivier_ricci(np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]), "hop")
    >>> result.kappa.round(3)
    array([[nan, 0.6, 0.4],
           [0.6, nan, 0.6],
           [0.4, 0.6, nan]])
    >>> result.max_gap < 1e-12
    True
    """
    tolerance, progress = read_number("tolerance", tolerance, least=0.0), guarded(progress)
    if is_recorded(attention):
        attention, mask = read_call(attention, mask)
    with crew_of(backend) as crew:
        return _curvature(attention, Convention.of(convention), edges, mask, tolerance, threads, seed, progress, crew)


def _curvature(
    attention: Any, convention: Convention, edges: Any, mask: Any, tolerance: float, threads: Any, seed: Any,
    progress: Callable[[int, int], object] | None, crew: Crew | None,
) -> Curvature | Any:  # fmt: skip
    if is_sparse(attention):
        from geoattn.curvature.sparse.ollivier import sparse_ollivier_ricci

        return sparse_ollivier_ricci(
            attention, convention, edges=edges, mask=mask, threads=threads, seed=seed, progress=progress, crew=crew
        )
    wanted = _read_wanted(edges)
    sample = None if wanted is not None else read_edges(edges)
    threads = None if threads is None else read_count("threads", threads, least=1)
    seed = read_count("seed", seed, least=0)
    weights = read_weights(attention, convention, mask)
    if wanted is not None:
        wanted = _fit_wanted(wanted, weights)
    parts: list[Transport] = []
    places: list[np.ndarray] = []
    total, finished, edge_count = 0 if progress is None else _estimate(weights, sample), 0, 0
    for first, graphs in chunks(weights):
        found, pairs, offsets, available = choose_pairs(graphs, sample, seed, first, wanted)
        places.append(found + first * weights.n**2 if first else found)
        report = None if progress is None else (lambda done, base=finished: progress(base + done, total))
        solved = solve_graphs(_solve, crew, graphs, pairs, offsets, tolerance, threads, report)
        finished += len(pairs)
        edge_count += available
        parts.append(solved)
        if progress is not None:
            progress(finished, max(total, finished))
    settings = {
        "edges": "chosen" if wanted is not None else "all" if sample is None else sample,
        "seed": seed, "tolerance": tolerance, "threads": threads or default_threads(),
        "dtype": weights.dtype,
        "geoattn": __version__, "numpy": np.__version__, "instruction_set": _native.instruction_set(),
    }  # fmt: skip
    columns = {
        name: _joined([getattr(part, source) for part in parts])
        for name, source in {
            "kappa": "kappa",
            "w1": "net_w1",
            "distance": "distance",
            "gap": "gap",
            "status": "status",
        }.items()
    }
    layout = lay_out(columns, _joined(places), weights, dense=sample is None and wanted is None)
    result = Curvature(**layout, convention=convention, edges=edge_count, settings=settings)
    if why := why_degenerate(columns["kappa"], columns["status"], convention):
        warnings.warn(
            f"convention '{convention.name}': {why}. Compare with another convention before you read"
            " anything into these values.",
            DegenerateCurvatureWarning,
            stacklevel=3,
        )
    return result


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _read_wanted(edges: Any) -> np.ndarray | None:
    """The boolean array of wanted edges, if that is what was given."""
    array = edges.detach().cpu().numpy() if hasattr(edges, "detach") else edges
    return array if isinstance(array, np.ndarray) and array.dtype == bool and array.ndim >= 2 else None


def _fit_wanted(wanted: np.ndarray, weights: Weights) -> np.ndarray:
    shape = (*weights.shape, weights.n, weights.n)
    try:
        wanted = np.broadcast_to(wanted, shape).reshape(-1, weights.n, weights.n)
    except ValueError:
        raise GeoattnError(f"edges as booleans must broadcast to {shape}; got shape {wanted.shape}.") from None
    if not wanted.any():
        raise GeoattnError("edges as booleans must be True for at least one pair; all are False.")
    return wanted if weights.convention.directed else wanted | wanted.swapaxes(-1, -2)


def chunks(weights: Weights) -> Any:
    """(index of the first graph, graphs) in pieces that keep memory small."""
    per_graph = weights.n**2 * 8
    heads = weights.flat.shape[0] // max(1, math.prod(weights.shape))
    group = heads if weights.convention.heads == "mean" else 1
    step = max(1, _CHUNK_BYTES // (per_graph * group)) * group
    for start in range(0, weights.flat.shape[0], step):
        rows = weights.chunk(start, start + step)
        try:
            graphs = build_graphs(rows, weights.convention)
        except GeoattnError:
            for k in range(len(rows)):  # once more, one by one, to say which
                try:
                    build_graphs(rows[k : k + 1], weights.convention)
                except GeoattnError as error:
                    raise GeoattnError(f"{where(start + k * group, weights)}: {error}") from None
            raise
        yield start // group, graphs


def choose_pairs(
    graphs: Graphs, sample: int | None, seed: int, first: int, wanted: np.ndarray | None = None
) -> tuple[Int[np.ndarray, " e"], Int[np.ndarray, "e 2"], Int[np.ndarray, " g1"], int]:
    """All edges, `sample` of each graph, or the wanted ones: the draw depends on seed and place of the graph alone.

    Returns flat places in (g, n, n), pairs, offsets of the graphs among them, and how many edges there are in all.
    """
    if sample is None and wanted is None:
        places, pairs, offsets = all_edges(graphs)
        return places, pairs, offsets, len(places)
    chosen = graphs.edges
    available = int(np.count_nonzero(chosen))
    if wanted is not None:
        chosen &= wanted[first : first + len(chosen)]
    if sample is None:
        places = np.flatnonzero(chosen)
    else:
        drawn = [_draw(edges, sample, [seed, first + g]) + g * edges.size for g, edges in enumerate(chosen)]
        places = np.concatenate(drawn)
    return places, *pairs_at(places, *chosen.shape[:2]), available


def _draw(edges: Bool[np.ndarray, "n n"], sample: int, seed: list[int]) -> Int[np.ndarray, " e"]:
    """Flat places of `sample` edges, ascending; all of them if there are no more. The others are never listed."""
    ends = np.cumsum(np.count_nonzero(edges, axis=1))
    if ends[-1] <= sample:
        return np.flatnonzero(edges)
    keep = np.sort(np.random.default_rng(seed).choice(int(ends[-1]), sample, replace=False))
    rows = np.searchsorted(ends, keep, side="right")
    counts = np.diff(ends, prepend=0)
    columns = [np.flatnonzero(edges[r])[k - ends[r] + counts[r]] for r, k in zip(rows, keep, strict=True)]
    return rows * edges.shape[1] + np.array(columns)


def _estimate(weights: Weights, sample: int | None) -> int:
    """How many edges there will be, from the number of real tokens: for progress bars only."""
    real = weights.valid.sum(axis=1)
    most = real * (real - 1) // (1 if weights.convention.directed else 2)
    return int(np.minimum(most, sample if sample is not None else most).sum())


def _solve(
    graphs: Graphs, pairs: np.ndarray, offsets: np.ndarray, tolerance: float, threads: int | None,
    report: Callable[[int], object] | None,
) -> Transport:  # fmt: skip
    if not all_hops_one(graphs):
        return solve_pairs(graphs, pairs, offsets, tolerance=tolerance, threads=threads, progress=report)
    w1 = total_variation(graphs.measures, pairs, offsets)
    one = np.ones(len(pairs))
    return Transport(
        pairs, offsets, w1, one, one, np.zeros(len(pairs)), np.zeros(len(pairs), np.uint8), None, None, 0.0
    )
