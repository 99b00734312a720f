"""Forman-Ricci curvature: plain, augmented with triangles, balanced."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from geoattn._core.display import Displayed
from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn._version import __version__
from geoattn.curvature.ollivier import chunks
from geoattn.graph.build import Graphs
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.sparse_inputs import is_sparse

__all__ = ["FormanCurvature", "forman_ricci"]

Kind = Literal["plain", "augmented", "balanced"]

_BLOCK_ENTRIES = 1 << 20  # edges times tokens in work at once


@dataclass(frozen=True, repr=False)
class FormanCurvature(Displayed):
    """Forman curvature of each edge, (..., n, n), in both triangles; NaN where there is no value.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> result = ga.forman_ricci(nx.path_graph(5), "plain")
    >>> result.values(), result.nodes()
    (array([1., 0., 0., 1.]), array([1. , 0.5, 0. , 0.5, 1. ]))
    >>> result.summary()["negative_share"]
    0.0
    """

    kappa: Float[np.ndarray, "..."]
    kind: Kind
    threshold: float
    convention: Convention
    edges: int  # that the graphs have above the threshold
    settings: dict[str, Any] = field(default_factory=dict)

    def values(self) -> Float[np.ndarray, " e"]:
        """The finite curvatures, each edge once, 1-D."""
        n = self.kappa.shape[-1]
        return self.kappa[np.isfinite(self.kappa) & np.triu(np.ones((n, n), dtype=bool), 1)]

    def nodes(self) -> Float[np.ndarray, "..."]:
        """Curvature of each token, (..., n): the mean over its edges, 0 for a token without any."""
        have = np.isfinite(self.kappa)
        return np.where(have, self.kappa, 0.0).sum(axis=-1) / np.maximum(have.sum(axis=-1), 1)

    def summary(self) -> dict[str, Any]:
        """Mean, extremes and share of negative edges."""
        values = self.values()
        some = len(values) > 0
        return {
            "mean": float(values.mean()) if some else float("nan"),
            "min": float(values.min()) if some else float("nan"),
            "max": float(values.max()) if some else float("nan"),
            "negative_share": float(np.mean(values < 0)) if some else float("nan"),
            "edges": self.edges,
            "values": len(values),
            "kind": self.kind,
            "threshold": self.threshold,
            "convention": self.convention.name,
        }


def forman_ricci(
    attention: Any,
    kind: Kind = "augmented",
    convention: str | Convention = "grc-0.6",
    *,
    threshold: float = 0.0,
    mask: Any = None,
) -> FormanCurvature | Any:  # an EdgeForman for a sparse graph, which has the same names
    r"""Forman-Ricci curvature of each edge of each graph: from degrees, triangles and four-cycles.

    The graph is undirected; the weight of edge e is its length :math:`w_e` under the convention (under the
    grc presets and GraphRicciCurvature the symmetrised attention itself), nodes and triangles have weight 1.

    ``plain``, over the edges e' that share a node with e = (i, j):

    .. math:: F(e) = 2 - \sum_{e' \sim e} \sqrt{w_e / w_{e'}}, \quad\text{unweighted } 4 - d_i - d_j

    ``augmented``, with the triangles :math:`\triangle` that contain e; edges that lie in a triangle with e
    are not parallel to it and do not count:

    .. math:: F^\#(e) = 2 + |\triangle_e| \, w_e^2 - \sum_{e' \sim e,\, e' \notin \triangle_e} \sqrt{w_e /
    w_{e'}},
              \quad\text{unweighted } 4 - d_i - d_j + 3 |\triangle_e|

    ``balanced`` uses the edge set alone. It is 0 if :math:`\min(d_i, d_j) = 1`, otherwise

    .. math:: \mathrm{Ric}(i, j) = \frac2{d_i} + \frac2{d_j} - 2 + \frac{2 |\triangle|}{\max(d_i, d_j)}
              + \frac{|\triangle|}{\min(d_i, d_j)} + \frac{|\square^i| + |\square^j|}{\gamma \max(d_i, d_j)}

    where :math:`\square^i` are the neighbours of i on a four-cycle through (i, j) without diagonals, and
    :math:`\gamma` is the largest number of such cycles through one of these neighbours of i or j.

    Parameters
    ----------
    attention
        (..., n, n) non-negative weights, NumPy or torch, rows need not sum to one; or a sparse graph as in
        `ollivier_ricci`, for which the result is an `EdgeForman`: a value for each edge.
    convention
        Only ``heads``, ``direction`` and ``length`` matter; a directed one is refused. ``"hop"``: unweighted.
    threshold
        An edge is a pair whose symmetrised weight is above it. Softmax attention is positive everywhere, and
        on a complete graph ``balanced`` is n / (n - 1) for every edge, whatever the attention is: choose a
        threshold such as 1 / n, what uniform attention gives. A warning says so when it happens.
    mask
        (..., n) bool, True for a real token.

    Notes
    -----
    O(n^2) a graph for ``plain``, O(n^3) for ``augmented``, O(n^2) an edge for ``balanced``, in matrix
    products. An edge of length 0, and the edges at its ends, have no weighted value (NaN). References:
    Forman, Bochner's method for cell complexes, 2003; Sreejith et al., Forman curvature for complex networks,
    2016; Samal et al., 2018 (augmented); Topping et al., Understanding over-squashing, ICLR 2022, definition
    1 (balanced).

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> square = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=float)
    >>> ga.forman_ricci(square, "plain").values()
    array([0., 0., 0., 0.])
    >>> ga.forman_ricci(square, "balanced").values()
    array([1., 1., 1., 1.])
    """
    convention = Convention.of(convention)
    if kind not in _KINDS:
        raise GeoattnError(f"kind must be one of {', '.join(_KINDS)}; got {kind!r}.")
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 <= threshold < float("inf"):
        raise GeoattnError(f"threshold must be a weight of 0 or more; got {threshold!r}.")
    if convention.directed:
        raise GeoattnError("forman_ricci is defined for undirected graphs: choose a direction such as 'mean'.")
    # no measure takes part, so rows need not sum to one
    unweighed = replace(convention, measure="uniform", name=convention.name)
    if is_sparse(attention):
        from geoattn.curvature.sparse.forman import sparse_forman_ricci

        return sparse_forman_ricci(attention, kind, unweighed, threshold)
    weights = read_weights(attention, unweighed, mask)
    parts, edges, complete = [], 0, True
    for _, graphs in chunks(weights):
        present = graphs.weights > threshold
        edges += int(np.triu(present, 1).sum())
        tokens = present.any(axis=-1).sum(axis=-1)
        complete &= bool((present.sum(axis=(-1, -2)) == tokens * (tokens - 1)).all())
        parts.append(_KINDS[kind](graphs, present))
    kappa = np.concatenate(parts).reshape(*weights.shape, weights.n, weights.n)
    result = FormanCurvature(kappa, kind, float(threshold), convention, edges, {"geoattn": __version__})
    if complete and kind == "balanced" and weights.n > 3:
        warnings.warn(
            f"balanced Forman curvature uses the edges alone, and with threshold={threshold:g} every two"
            " tokens have one: n / (n - 1) everywhere, whatever the attention is. Choose one such as 1 / n.",
            DegenerateCurvatureWarning,
            stacklevel=2,
        )
    return result


def _inverse_roots(
    graphs: Graphs, present: Bool[np.ndarray, "g n n"]
) -> tuple[Float[np.ndarray, "g n n"], Float[np.ndarray, "g n n"]]:
    """Length of each edge, and 1 / its square root; 0 and 0 where there is no edge. Infinite for length 0."""
    length = np.where(present, graphs.lengths, 0.0)
    with np.errstate(divide="ignore"):
        return length, np.where(present, 1.0 / np.sqrt(length), 0.0)


def _only_defined(kappa: Float[np.ndarray, "g n n"], present: Bool[np.ndarray, "g n n"]) -> Float[np.ndarray, "g n n"]:
    return np.where(present & np.isfinite(kappa), kappa, np.nan)


def _plain(graphs: Graphs, present: Bool[np.ndarray, "g n n"]) -> Float[np.ndarray, "g n n"]:
    length, root = _inverse_roots(graphs, present)
    total = root.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        kappa = 2.0 - np.sqrt(length) * (total[:, :, None] + total[:, None, :] - 2.0 * root)
    return _only_defined(kappa, present)


def _augmented(graphs: Graphs, present: Bool[np.ndarray, "g n n"]) -> Float[np.ndarray, "g n n"]:
    length, root = _inverse_roots(graphs, present)
    adjacency = present.astype(np.float64)
    apart = ~present  # and not the node itself: e' = (i, v) is parallel to (i, j) if v is no neighbour of j
    n = length.shape[-1]
    apart[:, np.arange(n), np.arange(n)] = False
    triangles = adjacency @ adjacency
    with np.errstate(invalid="ignore"):
        parallel = root @ apart.astype(np.float64)
        kappa = 2.0 + triangles * length**2 - np.sqrt(length) * (parallel + parallel.swapaxes(-1, -2))
    return _only_defined(kappa, present)


def _balanced(graphs: Graphs, present: Bool[np.ndarray, "g n n"]) -> Float[np.ndarray, "g n n"]:
    kappa = np.full(present.shape, np.nan)
    step = max(1, _BLOCK_ENTRIES // present.shape[-1])
    for g, adjacency in enumerate(present.astype(np.float32)):  # counts below 2^24 are exact
        i, j = np.nonzero(np.triu(present[g], 1))
        for start in range(0, len(i), step):
            x, y = i[start : start + step], j[start : start + step]
            kappa[g, x, y] = kappa[g, y, x] = _balanced_edges(adjacency, x, y)
    return kappa


def _balanced_edges(A: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Definition 1 of Topping et al. for the edges (i, j) of the graph with adjacency matrix A."""
    degree = A.sum(axis=1, dtype=np.float64)
    few, many = np.minimum(degree[i], degree[j]), np.maximum(degree[i], degree[j])
    triangles = (A[i] * A[j]).sum(axis=1, dtype=np.float64)
    each = np.arange(len(i))
    squares, gamma = np.zeros(len(i)), np.ones(len(i))
    for a, b in ((i, j), (j, i)):
        mine, theirs = A[a] * (1 - A[b]), A[b] * (1 - A[a])  # neighbours of one end only
        mine[each, b] = theirs[each, a] = 0
        cycles = (theirs @ A) * mine  # of each neighbour k of a: the w with a ~ k ~ w ~ b and no diagonal
        squares += np.count_nonzero(cycles, axis=1)
        gamma = np.maximum(gamma, cycles.max(axis=1))
    kappa = 2 / degree[i] + 2 / degree[j] - 2 + 2 * triangles / many + triangles / few + squares / (gamma * many)
    return np.where(few == 1, 0.0, kappa)


_KINDS = {"plain": _plain, "augmented": _augmented, "balanced": _balanced}
