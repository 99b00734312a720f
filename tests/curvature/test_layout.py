"""Edges listed and laid out natively, against the same in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoattn.curvature.layout import lay_out
from geoattn.curvature.transport import Status, all_edges, pairs_at
from geoattn.graph.build import Graphs
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights


@st.composite
def weights_of_some_edges(draw):
    graphs, n = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    seed, share = draw(st.integers(0, 2**16)), draw(st.sampled_from([0.0, 0.3, 1.0]))
    rng = np.random.default_rng(seed)
    return rng.random((graphs, n, n)) * (rng.random((graphs, n, n)) < share)


def graphs_of(weights: np.ndarray, *, directed: bool) -> Graphs:
    convention = Convention.of("grc-0.6").but(direction="directed" if directed else "max")
    if not directed:
        weights = np.maximum(weights, weights.swapaxes(-1, -2))
    lengths = np.where(weights > 0, weights, np.inf)
    lengths[:, np.arange(lengths.shape[-1]), np.arange(lengths.shape[-1])] = np.inf
    return Graphs(lengths, np.zeros_like(lengths), weights, convention)


@given(weights_of_some_edges(), st.booleans())
def test_all_edges_are_those_of_the_graph(weights, directed):
    graphs = graphs_of(weights, directed=directed)
    places, pairs, offsets = all_edges(graphs)
    expected = np.flatnonzero(graphs.edges)
    np.testing.assert_array_equal(places, expected)
    for found, wanted in zip((pairs, offsets), pairs_at(expected, *graphs.edges.shape[:2]), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    assert places.dtype == np.int64


@given(weights_of_some_edges(), st.booleans())
def test_each_value_stands_in_its_place(weights, directed):
    graphs = graphs_of(weights, directed=directed)
    places, _, _ = all_edges(graphs)
    values, status = np.arange(len(places)) + 0.5, np.full(len(places), Status.UNREACHABLE.value, np.uint8)
    laid = lay_out({"kappa": values, "status": status}, places, read_weights(weights, graphs.convention), dense=True)
    kappa, codes = np.full(weights.shape, np.nan), np.full(weights.shape, Status.NO_EDGE.value)
    for value, (g, i, j) in zip(values, np.argwhere(graphs.edges), strict=True):
        kappa[g, i, j], codes[g, i, j] = value, Status.UNREACHABLE
        if not directed:
            kappa[g, j, i], codes[g, j, i] = value, Status.UNREACHABLE
    np.testing.assert_array_equal(laid["kappa"], kappa)
    np.testing.assert_array_equal(laid["status"], codes)


def test_a_column_of_another_length_is_refused():
    weights = np.ones((1, 3, 3)) / 3
    graphs = graphs_of(weights, directed=False)
    places, _, _ = all_edges(graphs)
    with pytest.raises(TypeError, match="does not fit"):
        lay_out({"kappa": np.zeros(2)}, places, read_weights(weights, graphs.convention), dense=True)
