"""Curvature of edges of a networkx graph as GraphRicciCurvature 0.6.1 defines it, exactly solved."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.compat.measures import nearest_neighbour_measures
from geoattn.curvature.sparse.transport import solve_rows
from geoattn.curvature.transport import Status
from geoattn.graph.sparse_inputs import networkx_rows, numbers_of
from geoattn.graph.sparse_rows import SparseRows

__all__ = ["METHODS", "edge_curvatures", "read_lengths"]

METHODS = ("OTD", "ATD", "Sinkhorn", "OTDSinkhornMix")
_EPSILON = 1e-7  # a shorter distance has curvature 0
_MIX_THRESHOLD = 2000  # with more nodes on both sides the peer's OTDSinkhornMix approximates
_ROWS_AT_ONCE = 1 << 22  # distances of ATD that are kept


def read_lengths(graph: Any, weight: Any) -> tuple[SparseRows, tuple[Any, ...]]:
    """Lengths by rows, zeros kept; and the names of the nodes."""
    lengths, names = networkx_rows(graph, weight)
    value = lengths.value
    if len(value) and not (value.min() >= 0 and value.max() < np.inf):
        raise GeoattnError(f"edge attribute '{weight}' must be finite and not negative: it is a length.")
    return lengths, names


def edge_curvatures(
    graph: Any, edge_list: Any, *, weight: str, alpha: Any, method: str, base: Any, exp_power: Any, proc: int,
    nbr_topk: int,
) -> dict[tuple[Any, Any], float]:  # fmt: skip
    """(u, v) -> kappa of the given pairs of nodes, of all edges if there is none given."""
    if method not in METHODS:
        raise GeoattnError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    wanted = [(u, v) for u, v, *_ in edge_list] if edge_list else list(graph.edges())
    if not wanted:
        return {}
    lengths, names = read_lengths(graph, weight)
    try:
        pairs = numbers_of(itertools.chain.from_iterable(wanted), 2 * len(wanted), names).reshape(-1, 2)
    except KeyError as error:
        raise GeoattnError(f"edge_list: the graph has no node {error}.") from None
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise GeoattnError("edge_list: self loops have no curvature.")
    directed = bool(graph.is_directed())
    backward = lengths.transposed() if directed else lengths
    if method == "ATD":
        kappa = _average_transport(lengths, backward, pairs, alpha)
    else:
        _warn(lengths, backward, pairs, method, nbr_topk)
        settings = {"alpha": alpha, "base": base, "exp_power": exp_power, "nbr_topk": nbr_topk}
        first = nearest_neighbour_measures(backward, **settings)  # of a directed edge those who point at its source
        second = nearest_neighbour_measures(lengths, **settings) if directed else None
        solved, _ = solve_rows(
            lengths, first, pairs, np.full(len(pairs), np.nan), directed=directed,
            near=not directed and (not edge_list or bool(lengths.find(pairs[:, 0], pairs[:, 1])[1].all())),
            seconds=second, floor=_EPSILON, threads=max(1, int(proc)),
        )  # fmt: skip
        bad = (solved.status != Status.SOLVED) & (solved.status != Status.BELOW_FLOOR)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise GeoattnError(f"edge {wanted[k]!r} has no curvature: {Status(int(solved.status[k]))}.")
        kappa = solved.kappa
    return dict(zip(wanted, kappa.tolist(), strict=True))


def _warn(lengths: SparseRows, backward: SparseRows, pairs: np.ndarray, method: str, nbr_topk: int) -> None:
    """One warning for all that differs from the peer, or from the definition."""
    said = []
    if method == "Sinkhorn":
        said.append(
            "method 'Sinkhorn' is solved exactly, as 'OTD': the peer's regularisation of 0.1, whatever the lengths are,"
            " makes its values differ"
        )
    degree = np.maximum(np.diff(lengths.start), np.diff(backward.start))
    if method == "OTDSinkhornMix" and (np.minimum(degree[pairs], nbr_topk).min(axis=1) >= _MIX_THRESHOLD).any():
        said.append(f"edges between nodes of more than {_MIX_THRESHOLD} neighbours are solved exactly, too")
    if (degree[pairs] > nbr_topk).any():
        said.append(
            f"only the {nbr_topk} nearest neighbours of a node get mass, as in GraphRicciCurvature;"
            " geoattn.ollivier_ricci uses all of them"
        )
    if said:
        warnings.warn("; ".join(said) + ".", GeoattnWarning, stacklevel=5)


def _average_transport(lengths: SparseRows, backward: SparseRows, pairs: np.ndarray, alpha: Any) -> np.ndarray:
    """Alpha d(x, y) + (1 - alpha) times the mean distance between neighbours, over d(x, y)."""
    from scipy.sparse.csgraph import dijkstra

    # SciPy drops explicit zeros of a sparse matrix nowhere, but its Dijkstra needs float64 rows
    matrix = lengths.csr()
    kappa = np.empty(len(pairs))
    step = max(1, _ROWS_AT_ONCE // max(lengths.n, 1))
    order = np.argsort(pairs[:, 0], kind="stable")
    for start in range(0, len(order), step):
        some = order[start : start + step]
        near = [backward.column[backward.start[x] : backward.start[x + 1]] for x in pairs[some, 0]]
        sources = np.unique(np.concatenate([*near, pairs[some, 0]]))
        distances = dijkstra(matrix, indices=sources)
        for k, these in zip(some, near, strict=True):
            x, y = pairs[k]
            d = distances[np.searchsorted(sources, x), y]
            others = lengths.column[lengths.start[y] : lengths.start[y + 1]]
            if d < _EPSILON:
                kappa[k] = 0.0
                continue
            if len(these) == 0 or len(others) == 0:
                raise GeoattnError(f"ATD: node {x if len(these) == 0 else y} has no neighbour to average over.")
            mean = distances[np.searchsorted(sources, these)][:, others].mean()
            kappa[k] = 1 - (alpha * d + (1 - alpha) * mean) / d
    return kappa
