"""Ricci flow of a sparse graph: a length for each edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.curvature.sparse.tables import EdgeTable
from geoattn.curvature.sparse.transport import solve_sparse
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_build import SparseGraph, build_sparse, sparse_measures
from geoattn.graph.sparse_inputs import read_sparse, refuse_directed
from geoattn.graph.sparse_rows import SparseRows

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["EdgeFlow", "sparse_ricci_flow"]


@dataclass(frozen=True, repr=False)
class EdgeFlow(EdgeTable):
    """A sparse graph after Ricci flow: lengths and curvatures of the edges of its largest connected component.

    ``index`` (e, 2) holds the nodes of each edge that is left, ``original_index`` and ``original_kappa`` those before
    the flow. ``inside`` marks the nodes of the component. ``kappa_mean``, ``kappa_min`` and ``kappa_max`` hold one
    number before the flow and one after each iteration.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> flow = ga.ricci_flow(nx.karate_club_graph(), "grc-0.6", iterations=2)
    >>> len(flow.kappa_mean)  # before, and after each iteration
    3
    """

    lengths: Float[np.ndarray, " e"]
    kappa: Float[np.ndarray, " e"]
    index: Int[np.ndarray, "e 2"]
    original_kappa: Float[np.ndarray, " f"]
    original_index: Int[np.ndarray, "f 2"]
    inside: Bool[np.ndarray, " n"]
    kappa_mean: Float[np.ndarray, " t"]
    kappa_min: Float[np.ndarray, " t"]
    kappa_max: Float[np.ndarray, " t"]
    converged: bool  # largest - smallest kappa fell below delta
    convention: Convention
    shape: tuple[int, ...]
    names: tuple[Any, ...] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """How many were done."""
        return len(self.kappa_mean) - 1

    @property
    def status(self) -> str:
        """How it ended, in a sentence."""
        spread = self.kappa_max[-1] - self.kappa_min[-1]
        end = f"after {self.iterations} iterations; curvatures lie within {spread:.3g} of each other"
        return ("converged " if self.converged else "not converged ") + end

    @property
    def node_names(self) -> tuple[Any, ...]:
        """The names of all nodes, 0, 1, ... if they have none."""
        return tuple(range(self.shape[0])) if self.names is None else self.names

    def length_of(self, u: Any, v: Any) -> float:
        """Length of the edge between two nodes, by their names; infinite where there is none."""
        return dict(zip(map(frozenset, self.to_dict()), self.lengths.tolist(), strict=True)).get(
            frozenset((u, v)), float("inf")
        )

    def to_pandas(self) -> Any:
        """One row per edge: source, target, length, kappa."""
        table = super().to_pandas()
        table.insert(2, "length", self.lengths)
        return table

    def to_networkx(self) -> nx.Graph:
        """The component as a graph with ``weight``, ``ricciCurvature`` and ``original_RC`` on its edges."""
        import networkx as nx

        names = self.node_names
        graph = nx.Graph()
        graph.add_nodes_from(names[k] for k in np.flatnonzero(self.inside))
        before = {
            (int(i), int(j)): float(k) for (i, j), k in zip(self.original_index, self.original_kappa, strict=True)
        }
        for (i, j), length, kappa in zip(self.index.tolist(), self.lengths.tolist(), self.kappa.tolist(), strict=True):
            graph.add_edge(names[i], names[j], weight=length, ricciCurvature=kappa, original_RC=before[i, j])
        return graph

    def __repr__(self) -> str:
        """Short, with how it ended."""
        return f"EdgeFlow('{self.convention.name}', {len(self.index):,} edges, {self.status})"


def sparse_ricci_flow(
    graph: Any,
    convention: Convention,
    *,
    iterations: int,
    step: float,
    delta: float,
    surgery: Any,
    threads: int | None,
    shrink: Callable[..., Float[np.ndarray, " e"]],
) -> EdgeFlow:
    """The flow of a graph given by its edges; arguments as in `ricci_flow`, ``shrink`` makes one step of lengths."""
    refuse_directed(graph, "ricci_flow")
    weights = read_sparse(graph, convention)
    start = build_sparse(weights, convention)
    inside = _largest_component(start.lengths)
    lengths = start.lengths.keep(inside[start.lengths.row])
    if len(lengths.value) == 0:
        raise GeoattnError("ricci_flow: the graph has no edge.")

    def curvature(lengths: SparseRows, when: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        measures = sparse_measures(start.attention, lengths, convention)
        current = SparseGraph(start.attention, lengths, lengths, measures, convention, False)
        pairs, entries = current.edges()
        solved, _ = solve_sparse(current, pairs, entries, threads=threads)
        bad = np.flatnonzero((solved.status != Status.SOLVED) & (solved.status != Status.BELOW_FLOOR))
        if len(bad):
            raise GeoattnError(
                f"ricci_flow: edge {tuple(pairs[bad[0]].tolist())} has no curvature {when}:"
                f" {Status(int(solved.status[bad[0]]))}. {len(bad)} of {len(pairs)} edges have none. Remove them, or"
                " choose another convention."
            )
        return pairs, entries, solved.kappa

    pairs, entries, kappa = curvature(lengths, "before the flow")
    original, original_index, history, converged = kappa, pairs, [kappa], False
    for i in range(iterations):
        lengths = _with_lengths(lengths, pairs, entries, shrink(lengths.value[entries], kappa, step, pairs, i))
        pairs, entries, kappa = curvature(lengths, f"after iteration {i + 1}")
        history.append(kappa)
        if kappa.max() - kappa.min() < delta:
            converged = True
            break
        if surgery is not None and i != 0 and i % surgery[1] == 0:
            changed = _operate(surgery[0], pairs, lengths.value[entries])
            kept = np.isfinite(changed)
            lengths = _with_lengths(lengths, pairs, entries, changed)
            lengths, kappa, pairs = lengths.keep(np.isfinite(lengths.value)), kappa[kept], pairs[kept]
            entries = lengths.find(pairs[:, 0], pairs[:, 1])[0]
    return EdgeFlow(
        lengths=lengths.value[entries], kappa=kappa, index=pairs, original_kappa=original,
        original_index=original_index, inside=inside, kappa_mean=np.array([k.mean() for k in history]),
        kappa_min=np.array([k.min() for k in history]), kappa_max=np.array([k.max() for k in history]),
        converged=converged, convention=convention, shape=(weights.n, weights.n), names=weights.names,
        settings={"iterations": iterations, "step": step, "delta": delta, "geoattn": __version__},
    )  # fmt: skip


def _largest_component(lengths: SparseRows) -> Bool[np.ndarray, " n"]:
    """Nodes of the largest connected component; of several equally large ones that of the first node."""
    _, label = connected_components(lengths.with_values(np.ones(len(lengths.value))).csr(), directed=False)
    size = np.bincount(label)[label]
    return label == label[int(np.argmax(size))]


def _with_lengths(rows: SparseRows, pairs: np.ndarray, entries: np.ndarray, lengths: np.ndarray) -> SparseRows:
    """The same graph with these lengths of its edges, in both directions."""
    value = rows.value.copy()
    value[entries] = lengths
    value[rows.find(pairs[:, 1], pairs[:, 0])[0]] = lengths
    return rows.with_values(value)


def _operate(function: Callable[..., Any], pairs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Surgery, with what it returned checked."""
    changed = np.asarray(function(pairs.copy(), lengths.copy()), dtype=np.float64)
    if changed.shape != lengths.shape or np.isnan(changed).any() or (changed < 0).any():
        raise GeoattnError(
            f"surgery of a sparse graph gets pairs (e, 2) and lengths (e,) and must return {len(lengths)} lengths, not"
            f" negative, infinite for edges to remove; got shape {changed.shape}."
        )
    if not np.isfinite(changed).any():
        raise GeoattnError("surgery removed every edge; nothing is left to flow.")
    return changed
