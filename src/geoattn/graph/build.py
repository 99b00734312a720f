"""Attention in, lengths and measures out; and the way back for gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from geoattn.graph.convention import Convention
from geoattn.graph.lengths import edge_weights, graph_lengths, length_slope, weight_pull_back
from geoattn.graph.measures import measure_pull_back, node_measures

__all__ = ["Graphs", "build_graphs", "pull_back"]


@dataclass(frozen=True)
class Graphs:
    """Metric graphs with a measure at each node: all that a solver needs to know.

    ``lengths`` (g, n, n) are infinite where there is no edge. Row x of ``measures`` (g, n, n) is the measure of node x.
    ``attention`` (g, n, n) is what the graphs were made from.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> attention = np.array([[[0.6, 0.4, 0.0], [0.2, 0.5, 0.3], [0.0, 0.2, 0.8]]])
    >>> graphs = ga.graph.build_graphs(attention, ga.Convention.of("markov"))
    >>> np.argwhere(graphs.edges[0]).tolist()
    [[0, 1], [1, 2]]
    """

    lengths: Float[np.ndarray, "g n n"]
    measures: Float[np.ndarray, "g n n"]
    attention: Float[np.ndarray, "g n n"]
    convention: Convention

    @property
    def weights(self) -> Float[np.ndarray, "g n n"]:
        """The weight of each pair, 0 where there is no edge; made anew by each call."""
        return edge_weights(self.attention, self.convention)

    @property
    def edges(self) -> Bool[np.ndarray, "g n n"]:
        """Whether (i, j) is an edge; each edge once, with i < j, unless the graph is directed."""
        edge = np.isfinite(self.lengths)
        if not self.convention.directed:
            node = np.arange(edge.shape[-1])
            edge &= node[:, None] < node
        return edge


def build_graphs(attention: Float[np.ndarray, "g n n"], convention: Convention) -> Graphs:
    """The graphs of checked attention under a convention. O(n^2) each.

    Rows of padded tokens are zero. `ollivier_ricci` checks attention before it builds graphs; this function does not.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> attention = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    >>> graphs = ga.graph.build_graphs(attention, ga.Convention.of("markov"))
    >>> graphs.lengths.round(4)  # -log 0.5
    array([[[   inf, 0.6931],
            [0.6931,    inf]]])
    """
    lengths = graph_lengths(attention, convention)
    return Graphs(lengths, node_measures(attention, lengths, convention), attention, convention)


def pull_back(
    graphs: Graphs,
    to_lengths: Float[np.ndarray, "g n n"],
    to_measures: Float[np.ndarray, "g n n"],
) -> Float[np.ndarray, "g n n"]:
    """Gradient of lengths and measures back to the attention that `build_graphs` was given."""
    convention = graphs.convention
    to_rows, more = measure_pull_back(to_measures, graphs.lengths, convention)
    if more is not None:
        to_lengths = to_lengths + more
    to_attention = weight_pull_back(to_lengths * length_slope(graphs.weights, convention), graphs.attention, convention)
    return to_attention if to_rows is None else to_attention + to_rows
