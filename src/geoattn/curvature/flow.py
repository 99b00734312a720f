"""Discrete Ricci flow: lengths shrink where curvature is positive and grow where it is negative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.curvature.transport import Status, all_edges, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.measures import node_measures
from geoattn.graph.sparse_inputs import is_sparse

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["RicciFlow", "ricci_flow"]

Surgery = tuple[Callable[[np.ndarray], np.ndarray], int]


@dataclass(frozen=True, repr=False)
class RicciFlow(Displayed):
    """A graph after Ricci flow; what `ricci_flow` returns.

    ``lengths`` and ``kappa`` are (n, n) over all nodes of the input. They are infinite and NaN where there is no edge,
    and for nodes outside the largest connected component, which ``inside`` marks. ``kappa_mean``, ``kappa_min`` and
    ``kappa_max`` hold one number before the flow and one after each iteration.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> flow = ga.ricci_flow(nx.barbell_graph(3, 0), iterations=2)
    >>> flow.status
    'not converged after 2 iterations; curvatures lie within 0.892 of each other'
    >>> bridge = flow.to_networkx().edges[2, 3]
    >>> round(bridge["weight"], 2), bridge["original_RC"] < 0
    (4.73, True)
    """

    lengths: Float[np.ndarray, "n n"]
    kappa: Float[np.ndarray, "n n"]
    original_kappa: Float[np.ndarray, "n n"]
    inside: Bool[np.ndarray, " n"]
    kappa_mean: Float[np.ndarray, " t"]
    kappa_min: Float[np.ndarray, " t"]
    kappa_max: Float[np.ndarray, " t"]
    converged: bool  # largest - smallest kappa fell below delta
    convention: Convention
    nodes: tuple[Any, ...]  # names of a networkx graph, otherwise 0, 1, ...
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> Float[np.ndarray, "n n"]:
        """The lengths with 0 where there is no edge: what GraphRicciCurvature keeps in ``weight``."""
        return np.where(np.isfinite(self.lengths), self.lengths, 0.0)

    @property
    def iterations(self) -> int:
        """Number of iterations that were done."""
        return len(self.kappa_mean) - 1

    @property
    def status(self) -> str:
        """How it ended, in a sentence."""
        spread = self.kappa_max[-1] - self.kappa_min[-1]
        end = f"after {self.iterations} iterations; curvatures lie within {spread:.3g} of each other"
        return ("converged " if self.converged else "not converged ") + end

    def to_networkx(self) -> nx.Graph:
        """The component as a graph with ``weight``, ``ricciCurvature`` and ``original_RC`` on its edges."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(name for name, inside in zip(self.nodes, self.inside, strict=True) if inside)
        for i, j in np.argwhere(np.triu(np.isfinite(self.lengths), 1)):
            graph.add_edge(
                self.nodes[i],
                self.nodes[j],
                weight=float(self.lengths[i, j]),
                ricciCurvature=float(self.kappa[i, j]),
                original_RC=float(self.original_kappa[i, j]),
            )
        return graph


def ricci_flow(
    graph: Any,
    convention: str | Convention = "grc-0.6",
    *,
    iterations: int = 10,
    step: float = 1.0,
    delta: float = 1e-4,
    surgery: Surgery | None = None,
    mask: Any = None,
    threads: int | None = None,
) -> RicciFlow | Any:  # an EdgeFlow for a sparse graph, which has the same names
    r"""Discrete Ricci flow with normalisation.

    .. math:: \ell_e \leftarrow \ell_e - \eta \, \kappa_e \ell_e, \qquad
              \ell_e \leftarrow \ell_e \, |E| / \textstyle\sum_{e'} \ell_{e'}

    after which curvatures are computed again; :math:`\eta` is ``step``. Tightly knit parts contract, bridges
    between them become long: see `ricci_communities`. The flow ends when the largest and the smallest
    curvature differ by less than ``delta``.

    The convention fixes the first lengths, the measures and D. Lengths evolve; a measure that depends on
    lengths (``exponential``) follows them, attention rows (``markov``) and ``uniform`` stay. Under the grc
    presets this is what GraphRicciCurvature computes: of a graph that is not connected the largest component,
    the first of several; no renewed curvature after surgery.

    Parameters
    ----------
    graph
        (n, n) weights or attention, NumPy or torch; or a sparse graph as in `ollivier_ricci`, for which the result is
        an `EdgeFlow`: a length for each edge. One graph; undirected.
    iterations, step, delta
        At most so many iterations; the size of one; when to stop.
    surgery
        (function, period): after iterations 1 + period, 1 + 2 period, ... the function gets the (n, n)
        lengths, infinite where there is no edge, and returns them with edges removed (made infinite) or
        lengths changed, e.g. ``(lambda lengths: np.where(lengths > 2, np.inf, lengths), 5)``. Of a sparse graph it
        gets the pairs (e, 2) and the lengths (e,) and returns lengths.
    mask
        (n,) bool, True for a real token.

    Notes
    -----
    Each iteration costs what `ollivier_ricci` costs for all edges. A length that would become negative (step
    times kappa above 1), lengths that all become 0 (two nodes), and edges without a curvature are errors: no
    flow is defined there. References: Ollivier, 2009; Ni, Lin, Luo and Gao, Community detection on networks
    with Ricci flow, 2019.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> flow = ga.ricci_flow(nx.barbell_graph(3, 0), iterations=2)  # two triangles and a bridge
    >>> round(flow.length_of(2, 3), 2), round(flow.length_of(0, 1), 2)
    (4.73, 0.1)
    """
    convention = Convention.of(convention)
    _check_settings(convention, iterations, step, delta, surgery)
    if is_sparse(graph):
        from geoattn.curvature.sparse.flow import sparse_ricci_flow

        return sparse_ricci_flow(
            graph, convention, iterations=iterations, step=step, delta=delta, surgery=surgery, threads=threads,
            shrink=_shrink,
        )  # fmt: skip
    weights = read_weights(graph, convention, mask)
    if weights.shape:
        raise GeoattnError(f"ricci_flow takes one graph; got a batch of shape {weights.shape}. Loop over it.")
    rows = weights.chunk(0, len(weights.flat))
    start = build_graphs(rows, convention)
    inside = _largest_component(np.isfinite(start.lengths[0]))
    current = np.where(inside[:, None] & inside, start.lengths[0], np.inf)
    pairs = np.argwhere(np.triu(np.isfinite(current), 1)).astype(np.int32)
    if len(pairs) == 0:
        raise GeoattnError("ricci_flow: the graph has no edge.")
    lengths = current[tuple(pairs.T)]

    def curvature(when: str) -> Float[np.ndarray, " e"]:
        measures = node_measures(rows, current[None], convention)
        return _edge_curvature(Graphs(current[None], measures, rows, convention), when, threads)

    kappa = curvature("before the flow")
    original = _matrix(pairs, kappa, len(current), np.nan)
    history, converged = [kappa], False
    for i in range(iterations):
        lengths = _shrink(lengths, kappa, step, pairs, i)
        current = _matrix(pairs, lengths, len(current), np.inf)
        kappa = curvature(f"after iteration {i + 1}")
        history.append(kappa)
        if kappa.max() - kappa.min() < delta:
            converged = True
            break
        if surgery is not None and i != 0 and i % surgery[1] == 0:
            current = _operate(surgery[0], current)
            kept = np.isfinite(current[tuple(pairs.T)])
            pairs, kappa = pairs[kept], kappa[kept]
            lengths = current[tuple(pairs.T)]
    return RicciFlow(
        lengths=current,
        kappa=_matrix(pairs, kappa, len(current), np.nan),
        original_kappa=original,
        inside=inside,
        kappa_mean=np.array([k.mean() for k in history]),
        kappa_min=np.array([k.min() for k in history]),
        kappa_max=np.array([k.max() for k in history]),
        converged=converged,
        convention=convention,
        nodes=tuple(range(len(current))),
        settings={"iterations": iterations, "step": step, "delta": delta, "geoattn": __version__},
    )


def _check_settings(convention: Convention, iterations: Any, step: Any, delta: Any, surgery: Any) -> None:
    if convention.directed:
        raise GeoattnError("ricci_flow is defined for undirected graphs: choose a direction such as 'mean'.")
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
        raise GeoattnError(f"iterations must be a whole number, 0 or more; got {iterations!r}.")
    for name, value, least in (("step", step, "above 0"), ("delta", delta, "of 0 or more")):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < float("inf") or (name == "step" and value == 0):
            raise GeoattnError(f"{name} must be a number {least}; got {value!r}.")
    if surgery is not None:
        good = isinstance(surgery, tuple) and len(surgery) == 2 and callable(surgery[0])
        if not good or isinstance(surgery[1], bool) or not isinstance(surgery[1], int) or surgery[1] < 1:
            raise GeoattnError(f"surgery must be (function, period) with a period of 1 or more; got {surgery!r}.")


def _largest_component(edge: Bool[np.ndarray, "n n"]) -> Bool[np.ndarray, " n"]:
    """Nodes of the largest connected component; of several equally large ones that of the first node."""
    _, label = connected_components(csr_array(edge), directed=False)
    size = np.bincount(label)[label]
    return label == label[int(np.argmax(size))]


def _matrix(
    pairs: Int[np.ndarray, "e 2"], values: Float[np.ndarray, " e"], n: int, nothing: float
) -> Float[np.ndarray, "n n"]:
    """Edge values in both triangles."""
    matrix = np.full((n, n), nothing)
    matrix[pairs[:, 0], pairs[:, 1]] = matrix[pairs[:, 1], pairs[:, 0]] = values
    return matrix


def _edge_curvature(graphs: Graphs, when: str, threads: int | None) -> Float[np.ndarray, " e"]:
    """Kappa of all edges; an error that names the edge where one has none."""
    _, pairs, offsets = all_edges(graphs)
    solved = solve_pairs(graphs, pairs, offsets, threads=threads)
    bad = np.flatnonzero((solved.status != Status.SOLVED) & (solved.status != Status.BELOW_FLOOR))
    if len(bad):
        x, y = pairs[bad[0]]
        raise GeoattnError(
            f"ricci_flow: edge ({x}, {y}) has no curvature {when}: {Status(int(solved.status[bad[0]]))}."
            f" {len(bad)} of {len(pairs)} edges have none. Remove them, or choose another convention."
        )
    return solved.kappa


def _shrink(
    lengths: Float[np.ndarray, " e"], kappa: Float[np.ndarray, " e"], step: float, pairs: np.ndarray, i: int
) -> Float[np.ndarray, " e"]:
    """One step of the flow and the normalisation to mean length 1."""
    moved = lengths - step * kappa * lengths
    if (moved < 0).any():
        worst = int(np.argmax(kappa))
        raise GeoattnError(
            f"ricci_flow: in iteration {i + 1} edge {tuple(pairs[worst].tolist())} would get a"
            f" negative length: step {step:g} times its curvature {kappa[worst]:.6g} is above 1. Choose a step"
            f" of at most {1 / kappa[worst]:.3g}."
        )
    total = moved.sum()
    if total == 0:
        raise GeoattnError(
            f"ricci_flow: all lengths become 0 in iteration {i + 1}, because every curvature is 1 (as of two"
            " nodes with equal measures): there is no limit to show. Choose a smaller step or another alpha."
        )
    return moved * (len(moved) / total)


def _operate(
    function: Callable[[np.ndarray], np.ndarray], lengths: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, "n n"]:
    """Surgery, with what it returned checked."""
    result = np.asarray(function(lengths.copy()), dtype=np.float64)
    if result.shape != lengths.shape or np.isnan(result).any() or (result < 0).any():
        raise GeoattnError(
            f"surgery must return lengths of shape {lengths.shape}, not negative, infinite where there is no"
            f" edge; got shape {result.shape}"
            + (", with NaN or negative entries." if result.shape == lengths.shape else ".")
        )
    np.fill_diagonal(result, np.inf)
    if not np.array_equal(result, result.T):
        raise GeoattnError("surgery must return symmetric lengths: change both (i, j) and (j, i).")
    if (np.isfinite(result) & ~np.isfinite(lengths)).any():
        raise GeoattnError(
            "surgery may remove edges and change lengths, but not add edges: they have no curvature yet."
        )
    if not np.isfinite(result).any():
        raise GeoattnError("surgery removed every edge; nothing is left to flow.")
    return result
