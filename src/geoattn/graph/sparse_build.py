"""Sparse weights in, lengths and measures out, entry by entry; and the way back for gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_inputs import SparseWeights
from geoattn.graph.sparse_rows import SparseRows

__all__ = ["SparseGraph", "build_sparse", "pull_back_sparse", "sparse_measures"]

_LONGEST = 1e260  # as for dense graphs
_EXPONENTIAL_FLOOR = 1e-7  # GraphRicciCurvature spreads the mass evenly where the weights of all neighbours sum to less


@dataclass(frozen=True)
class SparseGraph:
    """A metric graph with a measure at each node, by its entries.

    ``attention`` is what the measures come from: the weights, divided by their row sums if the measure is ``markov``.
    ``weights`` (S) and ``lengths`` have an entry for each edge, an undirected one in both directions. A row of
    ``measures`` holds its own node and the nodes that it gives mass.
    """

    attention: SparseRows
    weights: SparseRows
    lengths: SparseRows
    measures: SparseRows
    convention: Convention
    normalised: bool  # whether rows were divided by sums other than one

    @property
    def near(self) -> bool:
        """Whether each measure lives on its node and the neighbours of the node."""
        return self.convention.measure != "markov" or self.convention.direction not in ("min", "product")

    def edges(self) -> tuple[Int[np.ndarray, "e 2"], Int[np.ndarray, " e"]]:
        """Edges as pairs, each once (i < j, or all if directed), in the order of rows; and their entries in lengths."""
        row, column = self.lengths.row, self.lengths.column
        entry = np.arange(len(row)) if self.convention.directed else np.flatnonzero(row < column)
        return np.stack([row[entry], column[entry]], axis=1), entry


def build_sparse(weights: SparseWeights, convention: Convention) -> SparseGraph:
    """The graph under a convention. O(e log e)."""
    rows, normalised = weights.rows, False
    if convention.measure == "markov":
        sums = rows.row_sums()
        normalised = bool((np.abs(sums - 1.0) > 1e-6).any())
        if not np.isfinite(sums).all():
            raise GeoattnError("the weights of a node sum to more than a float holds. Scale the weights.")
        rows = rows.with_values(rows.value / np.repeat(sums, np.diff(rows.start)))
    joined = _edge_weights(rows, convention)
    lengths = joined.with_values(_edge_lengths(joined.value, convention, joined, weights.names))
    return SparseGraph(rows, joined, lengths, sparse_measures(rows, lengths, convention), convention, normalised)


def _edge_weights(rows: SparseRows, convention: Convention) -> SparseRows:
    """S without its diagonal: one weight per pair, present where it is positive."""
    a = rows.keep((rows.column != rows.row) & (rows.value > 0))  # the share of a tiny weight may be 0
    if convention.directed:
        return a
    a, rule = a.csr(), convention.direction
    t = a.T.tocsr()
    if rule == "mean":
        large = a.data.max(initial=0.0) > np.finfo(np.float64).max / 2
        s = a / 2 + t / 2 if large else (a + t) / 2  # a sum of large ones overflows, half of a tiny one is 0
    elif rule == "product":
        s = a.multiply(t)
    else:
        s = a.maximum(t) if rule == "max" else a.minimum(t)
    joined = SparseRows.of(s)
    return joined.keep(joined.value > 0)


def _edge_lengths(w: Float[np.ndarray, " e"], convention: Convention, rows: SparseRows, names: Any) -> np.ndarray:
    kind = convention.length
    with np.errstate(over="ignore"):
        length = {
            "w": lambda: w,
            "1/w": lambda: 1.0 / w,
            "-log w": lambda: 0.0 - np.log(w),
            "1-w": lambda: 1.0 - w,
            "hop": lambda: np.ones_like(w),
        }[kind]()
    short = length.min(initial=0.0)
    if short < -1e-12:
        raise GeoattnError(
            f"length '{kind}' needs weights of at most 1; the largest is {w.max():.6g}"
            f" (edge {_named(int(w.argmax()), rows, names)}). Scale the weights, or take length 'w', '1/w' or 'hop'."
        )
    if length.max(initial=0.0) > _LONGEST:
        at = int(length.argmax())
        raise GeoattnError(
            f"length '{kind}' overflows for a weight of {w[at]:.3g} (edge {_named(at, rows, names)})."
            " Scale the weights."
        )
    return np.maximum(length, 0.0) if short < 0 else length


def _named(entry: int, rows: SparseRows, names: Any) -> tuple[Any, Any]:
    i, j = int(rows.row[entry]), int(rows.column[entry])
    return (i, j) if names is None else (names[i], names[j])


def sparse_measures(attention: SparseRows, lengths: SparseRows, convention: Convention) -> SparseRows:
    """m_x in row x: alpha on x, the rest by the rule of the convention. A node with no neighbour keeps all."""
    base, share = _shares(attention, lengths, convention)
    alpha = convention.laziness
    total = base.row_sums(share)
    own = np.where(total == 0, 1.0, alpha)
    measures, place, diagonal = base.with_diagonal()
    value = np.zeros(len(measures.column))
    value[place] = (1 - alpha) * share
    value[diagonal] += own
    return measures.with_values(value)


def _shares(attention: SparseRows, lengths: SparseRows, convention: Convention) -> tuple[SparseRows, np.ndarray]:
    """What the measure is made of, before laziness: the entries, and their shares."""
    if convention.measure == "markov":
        return attention, attention.value
    degree = np.diff(lengths.start)
    even = np.repeat(1.0 / np.maximum(degree, 1), degree)
    if convention.measure == "uniform":
        return lengths, even
    with np.errstate(over="ignore", under="ignore"):
        decay = np.exp(-(lengths.value**convention.exponent))
    total = lengths.row_sums(decay)
    near = np.repeat(total > _EXPONENTIAL_FLOOR, degree)
    return lengths, np.where(near, decay / np.repeat(np.where(total > 0, total, 1.0), degree), even)


def pull_back_sparse(
    graph: SparseGraph,
    weights: SparseWeights,
    to_lengths: Float[np.ndarray, " e"],
    to_measures: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " k"]:
    """Gradients by length and by mass become the gradient by each weight of `weights`, entry by entry."""
    convention, attention = graph.convention, graph.attention
    base, share = _shares(attention, graph.lengths, convention)
    _, place, _ = base.with_diagonal()
    to_share = (1 - convention.laziness) * to_measures[place]
    to_attention = np.zeros(len(attention.value))
    if convention.measure == "markov":
        to_attention += to_share
    elif convention.measure == "exponential":
        to_lengths = to_lengths + _exponential_pull_back(graph.lengths, share, to_share, convention)
    to_attention += _weight_pull_back(graph, to_lengths * _length_slope(graph))
    if convention.measure != "markov":
        return to_attention
    sums = weights.rows.row_sums()
    centre = attention.row_sums(to_attention * attention.value)
    degree = np.diff(attention.start)
    return (to_attention - np.repeat(centre, degree)) / np.repeat(sums, degree)


def _exponential_pull_back(
    lengths: SparseRows, share: np.ndarray, to_share: np.ndarray, convention: Convention
) -> np.ndarray:
    degree, power = np.diff(lengths.start), convention.exponent
    centred = to_share - np.repeat(lengths.row_sums(to_share * share), degree)
    steep = np.zeros(len(share))  # 0 at length 0, where a power below 1 has no slope
    np.power(lengths.value, power - 1, out=steep, where=(lengths.value > 0) & (share > 0))
    with np.errstate(over="ignore", under="ignore"):
        total = lengths.row_sums(np.exp(-(lengths.value**power)))
    return np.where(np.repeat(total > _EXPONENTIAL_FLOOR, degree), -power * centred * share * steep, 0.0)


def _length_slope(graph: SparseGraph) -> Float[np.ndarray, " e"]:
    w, kind = graph.weights.value, graph.convention.length
    if kind == "1/w":
        with np.errstate(over="ignore"):
            return np.maximum(-1.0 / w / w, -np.finfo(np.float64).max)
    return {"w": np.ones_like(w), "-log w": -1.0 / w, "1-w": -np.ones_like(w), "hop": np.zeros_like(w)}[kind]


def _weight_pull_back(graph: SparseGraph, to_weights: Float[np.ndarray, " e"]) -> Float[np.ndarray, " k"]:
    """Gradient of S back to the entries of A. At a tie of max or min each of the two gets half."""
    a, rule = graph.attention, graph.convention.direction
    row = a.row
    to_s = graph.weights.with_values(to_weights)
    if rule == "directed":
        return to_s.at(row, a.column)
    both = to_s.at(row, a.column) + to_s.at(a.column, row)
    if rule == "mean":
        return both / 2
    other = a.at(a.column, row)
    if rule == "product":
        return both * other
    chosen = a.value > other if rule == "max" else a.value < other
    return both * np.where(a.value == other, 0.5, chosen)
