"""Forman-Ricci curvature of a sparse graph, by degrees, triangles and four-cycles of each edge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn._version import __version__
from geoattn.curvature.sparse.tables import EdgeTable
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_build import build_sparse
from geoattn.graph.sparse_inputs import read_sparse, refuse_directed
from geoattn.graph.sparse_rows import SparseRows

__all__ = ["EdgeForman", "balanced_forman", "sparse_forman_ricci", "weighted_forman"]

_BLOCK = 1 << 22  # neighbours looked at together
_EDGES = 1 << 10  # edges whose four-cycles are counted together


@dataclass(frozen=True, repr=False)
class EdgeForman(EdgeTable):
    """Forman curvature of the edges of a sparse graph, in the order of rows; NaN where there is no value.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> ga.forman_ricci(nx.cycle_graph(4)).values()
    array([0., 0., 0., 0.])
    """

    kappa: Float[np.ndarray, " e"]
    index: Int[np.ndarray, "e 2"]
    kind: str
    threshold: float
    convention: Convention
    shape: tuple[int, ...]
    names: tuple[Any, ...] | None = None
    edges: int = 0  # that the graph has above the threshold
    settings: dict[str, Any] = field(default_factory=dict)

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

    def __repr__(self) -> str:
        """Short."""
        values = self.values()
        mean = f", mean {values.mean():.4g}" if len(values) else ""
        return (
            f"EdgeForman('{self.kind}', '{self.convention.name}', {self.shape[0]:,} nodes, {self.edges:,} edges{mean})"
        )


def sparse_forman_ricci(graph: Any, kind: str, convention: Convention, threshold: float) -> EdgeForman:
    """Forman curvature of a graph given by its edges; the arguments are those of `forman_ricci`.

    O(sum of min(d_i, d_j)) over edges for ``plain`` and ``augmented``; for ``balanced`` the degrees of the neighbours
    count as well.
    """
    refuse_directed(graph, "forman_ricci")
    weights = read_sparse(graph, convention)
    built = build_sparse(weights, convention)
    lengths = built.lengths.keep(built.weights.value > threshold)
    row = lengths.row
    entry = np.flatnonzero(row < lengths.column)
    pairs = np.stack([row[entry], lengths.column[entry]], axis=1)
    if kind == "balanced":
        kappa = balanced_forman(lengths, pairs)
    else:
        kappa = weighted_forman(lengths, pairs, entry, triangles=kind == "augmented")
    tokens = int(np.count_nonzero(np.diff(lengths.start)))
    if kind == "balanced" and weights.n > 3 and len(lengths.value) == tokens * (tokens - 1):
        warnings.warn(
            f"balanced Forman curvature uses the edges alone, and with threshold={threshold:g} every two nodes have"
            " one: n / (n - 1) everywhere, whatever the weights are. Choose one such as 1 / n.",
            DegenerateCurvatureWarning,
            stacklevel=3,
        )
    return EdgeForman(
        kappa, pairs, kind, float(threshold), convention, (weights.n, weights.n), weights.names, len(pairs),
        {"geoattn": __version__},
    )  # fmt: skip


def weighted_forman(
    lengths: SparseRows, pairs: np.ndarray, entry: np.ndarray, *, triangles: bool, nodes: np.ndarray | None = None
) -> np.ndarray:
    """w_i + w_j - sum w_k sqrt(l_e / l_e') over the edges e' at its ends k; ``nodes`` are the w, 1 without them.

    With ``triangles`` edges that lie in one with e do not count, and each triangle counts l_e^2.
    """
    own, w = lengths.value[entry], np.ones(lengths.n) if nodes is None else nodes
    i, j = pairs.T
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.repeat(w, np.diff(lengths.start)) / np.sqrt(lengths.value)  # of e' at its row
        total = lengths.row_sums(root)
        others = total[i] + total[j] - (w[i] + w[j]) / np.sqrt(own)
        kappa = w[i] + w[j]
        if triangles:
            count, inside = _common(lengths, pairs, root)
            kappa = kappa + count * own**2
            others -= inside
        kappa = kappa - np.sqrt(own) * others
    return np.where(np.isfinite(kappa), kappa, np.nan)


def _common(lengths: SparseRows, pairs: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Common neighbours of each pair: how many, and the sum of `root` over the edges to them from both ends."""
    degree = np.diff(lengths.start)
    swap = degree[pairs[:, 0]] > degree[pairs[:, 1]]
    few = np.where(swap, pairs[:, 1], pairs[:, 0])
    many = np.where(swap, pairs[:, 0], pairs[:, 1])
    count, inside = np.zeros(len(pairs)), np.zeros(len(pairs))
    keys = lengths.row.astype(np.int64) * lengths.n + lengths.column
    ends = np.cumsum(degree[few])
    first = 0
    while first < len(pairs):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK, side="right")))
        some = slice(first, last)
        sizes = degree[few[some]]
        which = np.repeat(np.arange(first, last), sizes)
        place = np.arange(len(which)) + np.repeat(lengths.start[few[some]] - np.cumsum(sizes) + sizes, sizes)
        wanted = many[which].astype(np.int64) * lengths.n + lengths.column[place]
        there = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        hit = keys[there] == wanted
        count += np.bincount(which[hit], minlength=len(pairs))
        inside += np.bincount(which[hit], weights=root[place[hit]] + root[there[hit]], minlength=len(pairs))
        first = last
    return count, inside


def balanced_forman(lengths: SparseRows, pairs: np.ndarray) -> np.ndarray:
    """Definition 1 of Topping et al., from the edge set alone."""
    degree = np.diff(lengths.start).astype(np.float64)
    kappa = np.zeros(len(pairs))
    inner = np.flatnonzero(degree[pairs].min(axis=1) > 1) if len(pairs) else np.empty(0, np.int64)
    adjacency = lengths.with_values(np.ones(len(lengths.value))).csr()
    for start in range(0, len(inner), _EDGES):
        some = inner[start : start + _EDGES]
        i, j = pairs[some].T
        few, many = np.minimum(degree[i], degree[j]), np.maximum(degree[i], degree[j])
        a, b = adjacency[i], adjacency[j]
        shared = a.multiply(b).tocsr()
        triangles = np.asarray(shared.sum(axis=1)).ravel()
        squares, gamma = np.zeros(len(some)), np.ones(len(some))
        ends = _one_hot(i, lengths.n), _one_hot(j, lengths.n)
        only_i, only_j = (a - shared - ends[1]).tocsr(), (b - shared - ends[0]).tocsr()
        for mine, theirs in ((only_i, only_j), (only_j, only_i)):
            cycles = (theirs @ adjacency).multiply(mine).tocsr()
            cycles.eliminate_zeros()
            squares += np.diff(cycles.indptr)
            gamma = np.maximum(gamma, np.asarray(cycles.max(axis=1).todense()).ravel())
        kappa[some] = (
            2 / degree[i] + 2 / degree[j] - 2 + 2 * triangles / many + triangles / few + squares / (gamma * many)
        )
    return kappa


def _one_hot(column: np.ndarray, n: int) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(column)), column, np.arange(len(column) + 1)), shape=(len(column), n))
