"""Ricci flow against GraphRicciCurvature's numbers, its own laws, and inputs on which no flow is defined."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import geoattn as ga

REFERENCES = Path(__file__).parent / "references"
VERSIONS = {"grc-0.5": "0.5.3.2", "grc-0.6": "0.6.1"}
each_version = pytest.mark.parametrize("preset", VERSIONS)


def stored(name):
    with np.load(REFERENCES / "grc-graphs.npz") as graphs:
        return graphs[name]


def assert_same_flow(flow, expected):
    found = np.argwhere(np.triu(np.isfinite(flow.lengths), 1))
    np.testing.assert_array_equal(found, expected["edges"])
    i, j = found.T
    np.testing.assert_allclose(flow.weights[i, j], expected["weight"], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(flow.kappa[i, j], expected["kappa"], rtol=1e-8, atol=1e-8)


@each_version
@pytest.mark.parametrize("name", ["karate", "attention-n8-s1", "disconnected-n14", "path-n6"])
def test_equals_graphriccicurvature(preset, name):
    references = json.loads((REFERENCES / f"grc-{VERSIONS[preset]}.json").read_text())["graphs"]
    for iterations, expected in references[name]["flow"].items():
        assert_same_flow(ga.ricci_flow(stored(name), preset, iterations=int(iterations)), expected)


@each_version
def test_equals_graphriccicurvature_with_other_steps_and_surgery(preset):
    references = json.loads((REFERENCES / f"flow-{VERSIONS[preset]}.json").read_text())
    cut, period = references["surgery"]["cut"], references["surgery"]["period"]
    for expected in references["flows"]:
        surgery = (lambda lengths: np.where(lengths > cut, np.inf, lengths), period) if expected["surgery"] else None
        options = {"iterations": expected["iterations"], "step": float(expected["step"]), "surgery": surgery}
        assert_same_flow(ga.ricci_flow(stored(expected["graph"]), preset, **options), expected)


def test_no_iteration_is_the_graph_itself():
    weights = stored("sparse-n12")
    flow = ga.ricci_flow(weights, iterations=0)
    np.testing.assert_array_equal(flow.weights, np.where(np.eye(12), 0, weights))
    exact = ga.ollivier_ricci(weights, "grc-0.6").kappa
    np.testing.assert_allclose(flow.kappa, exact)
    np.testing.assert_array_equal(flow.original_kappa, flow.kappa)
    assert flow.iterations == 0
    assert not flow.converged


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.6"])
def test_one_iteration_is_the_formula(preset):
    attention = np.random.default_rng(0).dirichlet(np.ones(7), size=7)
    start = ga.ricci_flow(attention, preset, iterations=0)
    flow = ga.ricci_flow(attention, preset, iterations=1, step=0.5)
    moved = start.lengths * (1 - 0.5 * np.nan_to_num(start.kappa))
    upper = np.triu_indices(7, 1)
    np.testing.assert_allclose(flow.lengths[upper], moved[upper] * 21 / moved[upper].sum(), rtol=1e-12)
    np.testing.assert_allclose(flow.kappa_mean[0], np.nanmean(start.kappa))


def test_attention_rows_stay_while_lengths_evolve():
    """The curvature after the flow is that of the new lengths with the old measures."""
    attention = np.random.default_rng(1).dirichlet(np.ones(6), size=6)
    flow = ga.ricci_flow(attention, "markov", iterations=3)
    from scipy.optimize import linprog
    from scipy.sparse.csgraph import floyd_warshall

    d = floyd_warshall(flow.lengths)
    marginals = np.vstack([np.kron(np.eye(6), np.ones(6)), np.kron(np.ones(6), np.eye(6))])
    for x, y in ((0, 1), (2, 5)):
        w1 = linprog(d.ravel(), A_eq=marginals, b_eq=np.r_[attention[x], attention[y]]).fun
        assert flow.kappa[x, y] == pytest.approx(1 - w1 / d[x, y], abs=1e-7)


def test_mean_length_is_one_and_history_is_complete():
    flow = ga.ricci_flow(nx.karate_club_graph(), iterations=4, step=0.5)
    assert flow.lengths.shape == (78,)
    assert np.mean(flow.lengths) == pytest.approx(1)
    assert len(flow.kappa_mean) == len(flow.kappa_min) == len(flow.kappa_max) == 5
    assert (flow.kappa_min <= flow.kappa_mean).all()
    assert (flow.kappa_mean <= flow.kappa_max).all()
    assert flow.kappa_max[-1] == np.nanmax(flow.kappa)
    assert flow.status.startswith("not converged after 4 iterations")


def test_a_graph_of_equal_edges_has_converged_at_once():
    flow = ga.ricci_flow(nx.cycle_graph(6), iterations=10)
    assert flow.converged
    assert flow.iterations == 1
    np.testing.assert_allclose(flow.lengths[np.isfinite(flow.lengths)], 1)


def test_permuting_the_nodes_permutes_the_flow():
    weights = stored("sparse-n20")
    order = np.random.default_rng(0).permutation(20)
    flow = ga.ricci_flow(weights, iterations=3)
    permuted = ga.ricci_flow(weights[np.ix_(order, order)], iterations=3)
    np.testing.assert_allclose(permuted.weights, flow.weights[np.ix_(order, order)], rtol=1e-9, atol=1e-12)


def test_networkx_in_and_out():
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 1.0), ("b", "c", 2.0), ("c", "d", 1.0), ("a", "c", 1.5), ("x", "y", 1.0)])
    flow = ga.ricci_flow(graph, iterations=2)
    assert flow.names == ("a", "b", "c", "d", "x", "y")
    np.testing.assert_array_equal(flow.inside, [True] * 4 + [False] * 2)
    back = flow.to_networkx()
    assert set(back.nodes) == set("abcd")
    assert back["a"]["b"]["weight"] == flow.length_of("a", "b") == flow.length_of("b", "a")
    assert back["b"]["c"]["ricciCurvature"] == flow.to_dict()["b", "c"]
    last = flow.original_index.tolist().index([2, 3])
    assert back["c"]["d"]["original_RC"] == flow.original_kappa[last]


def test_the_first_of_two_equally_large_components_and_a_mask():
    weights = np.zeros((7, 7))
    for i, j in ((0, 2), (2, 4), (1, 3), (3, 5)):
        weights[i, j] = weights[j, i] = 1.0
    np.testing.assert_array_equal(np.flatnonzero(ga.ricci_flow(weights, iterations=1).inside), [0, 2, 4])
    mask = np.array([True, True, True, True, False, True, True])
    np.testing.assert_array_equal(np.flatnonzero(ga.ricci_flow(weights, iterations=1, mask=mask).inside), [1, 3, 5])


def triangle():
    return np.ones((3, 3)) - np.eye(3)


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (np.array([[0.0, 1.0], [1.0, 0.0]]), {}, "all lengths become 0 in iteration 1"),
        (triangle(), {"step": 3.0}, r"negative length: step 3 times its curvature 0\.75"),
        (np.zeros((3, 3)), {}, "no edge"),
        (np.ones((2, 3, 3)), {}, "one graph; got a batch of shape \\(2,\\)"),
        (triangle(), {"convention": ga.Convention(direction="directed", measure="uniform")}, "undirected"),
        (triangle(), {"convention": ga.Convention(measure="uniform")}, "distance 0"),
        (triangle(), {"iterations": -1}, "iterations must be a whole number"),
        (triangle(), {"step": 0.0}, "step must be a number above 0"),
        (triangle(), {"delta": -1.0}, "delta must be a number"),
        (triangle(), {"surgery": (np.sqrt, 0)}, "period of 1 or more"),
    ],
)
def test_what_has_no_flow_is_refused(graph, options, message):
    with pytest.raises(ga.GeoattnError, match=message):
        ga.ricci_flow(graph, **options)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda lengths: lengths[1:], "of shape \\(12, 12\\)"),
        (lambda lengths: -lengths, "not negative"),
        (lambda lengths: np.triu(np.where(np.isfinite(lengths), lengths, 0)), "symmetric"),
        (lambda lengths: np.ones_like(lengths), "not add edges"),
        (lambda lengths: np.full_like(lengths, np.inf), "removed every edge"),
    ],
)
def test_what_surgery_may_not_do(function, message):
    with pytest.raises(ga.GeoattnError, match=message):
        ga.ricci_flow(stored("sparse-n12"), iterations=4, surgery=(function, 1))
