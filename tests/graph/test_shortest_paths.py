"""Shortest paths against Dijkstra and Floyd-Warshall, and the lengths that they refuse."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoattn as ga
from geoattn.curvature import Status
from geoattn.graph.shortest_paths import shortest_paths
from tests.curvature.references.exact import floyd_warshall


@given(st.integers(2, 12), st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.4, 0.8]))
def test_shortest_paths_against_dijkstra(n, seed, directed, missing):
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** rng.uniform(-300, 3, (n, n))
    lengths[rng.random((n, n)) < 0.1] = 0.0
    lengths[rng.random((n, n)) < missing] = np.inf
    if not directed:
        lengths = np.triu(lengths, 1) + np.triu(lengths, 1).T
    ours = shortest_paths(lengths, directed=directed)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(
        (i, j, lengths[i, j]) for i in range(n) for j in range(n) if i != j and lengths[i, j] < np.inf
    )
    expected = np.full((n, n), np.inf)
    for i, reached in nx.all_pairs_dijkstra_path_length(graph):
        for j, d in reached.items():
            expected[i, j] = d
    np.testing.assert_allclose(ours, expected, rtol=1e-13)


@pytest.mark.parametrize("n", [63, 64, 65, 513, 600])
@pytest.mark.parametrize("directed", [False, True])
def test_shortest_paths_of_large_graphs(n, directed):
    """Above 512 nodes in tiles and threads."""
    rng = np.random.default_rng(n)
    lengths = np.where(rng.random((n, n)) < 0.98, np.inf, 10.0 ** rng.uniform(-300, 0, (n, n)))
    if not directed:
        lengths = np.minimum(lengths, lengths.T)
    one, two = (shortest_paths(lengths, directed=directed, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, floyd_warshall(lengths), rtol=1e-12)
    assert np.isfinite(one).any()


def test_the_smallest_weights_count():
    """1e-300 as a weight and as a length."""
    lengths = np.array([[0, 1e-300, 5.0], [1e-300, 0, 1.0], [5.0, 1.0, 0]])
    np.testing.assert_array_equal(shortest_paths(lengths)[0], [0, 1e-300, 1.0])
    attention = np.array([[1.0, 1e-300, 0], [1e-300, 0.5, 0.5], [0, 0.5, 0.5]])
    result = ga.ollivier_ricci(attention, "markov")
    assert result.distance[0, 1] == pytest.approx(300 * np.log(10))
    assert result.status[0, 2] == Status.NO_EDGE
    # a path 0 - 1 - 2: all mass crosses the first edge, half of it the second
    assert result.kappa[0, 1] == pytest.approx(-0.5 * np.log(2) / (300 * np.log(10)), rel=1e-9)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        (np.array([[0, -1.0], [-1.0, 0]]), "negative"),
        (np.array([[0, np.nan], [np.nan, 0]]), "NaN"),
        (np.array([[0, 1.0], [2.0, 0]]), "symmetric"),
    ],
)
def test_shortest_paths_refuse_bad_lengths(lengths, words):
    with pytest.raises(ga.GeoattnError, match=words):
        shortest_paths(lengths)
