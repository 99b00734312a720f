"""Forman curvature against closed forms, loops over the definitions, and GraphRicciCurvature's numbers."""

import contextlib
import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

import geoattn as ga

REFERENCES = Path(__file__).parent / "references"
METHODS = {"plain": "1d", "augmented": "augmented", "balanced": "balanced"}
each_kind = pytest.mark.parametrize("kind", METHODS)


def values(graph, kind, **options):
    """Curvature of each edge of an unweighted networkx graph, which may be degenerate on purpose."""
    return ga.forman_ricci(graph, kind, **options).values()


def literal(weights, kind):
    """The definitions, word by word, edge by edge."""
    n = len(weights)
    near = [{v for v in range(n) if v != u and weights[u, v] > 0} for u in range(n)]
    result = np.full((n, n), np.nan)
    for i in range(n):
        for j in near[i]:
            w, shared = weights[i, j], near[i] & near[j]
            di, dj = len(near[i]), len(near[j])
            if kind == "plain":
                rest = [weights[i, v] for v in near[i] - {j}] + [weights[j, v] for v in near[j] - {i}]
                result[i, j] = 2 - sum(np.sqrt(w / other) for other in rest)
            elif kind == "augmented":
                rest = [weights[i, v] for v in near[i] - {j} - shared] + [weights[j, v] for v in near[j] - {i} - shared]
                result[i, j] = 2 + len(shared) * w**2 - sum(np.sqrt(w / other) for other in rest)
            elif min(di, dj) == 1:
                result[i, j] = 0
            else:
                squares, gamma = 0, 1
                for a, b in ((i, j), (j, i)):
                    for k in near[a] - near[b] - {b}:
                        cycles = len((near[k] & near[b]) - near[a] - {a})
                        squares += cycles > 0
                        gamma = max(gamma, cycles)
                ends = 2 / di + 2 / dj - 2
                triangles = 2 * len(shared) / max(di, dj) + len(shared) / min(di, dj)
                result[i, j] = ends + triangles + squares / (gamma * max(di, dj))
    return result


@pytest.mark.parametrize("n", [4, 7, 12])
def test_complete_graph(n):
    graph = nx.complete_graph(n)
    np.testing.assert_allclose(values(graph, "plain"), 4 - 2 * (n - 1))
    np.testing.assert_allclose(values(graph, "augmented"), 4 - 2 * (n - 1) + 3 * (n - 2))
    with pytest.warns(ga.DegenerateCurvatureWarning, match="such as 1 / n"):
        np.testing.assert_allclose(values(graph, "balanced"), n / (n - 1))


@pytest.mark.parametrize(("n", "balanced"), [(3, 1.5), (4, 1), (5, 0), (6, 0), (9, 0)])
def test_cycle(n, balanced):
    graph = nx.cycle_graph(n)
    np.testing.assert_allclose(values(graph, "plain"), 0)
    np.testing.assert_allclose(values(graph, "augmented"), 3 if n == 3 else 0)
    np.testing.assert_allclose(values(graph, "balanced"), balanced)


@pytest.mark.parametrize("leaves", [3, 6])
def test_star(leaves):
    graph = nx.star_graph(leaves)
    for kind in ("plain", "augmented"):
        np.testing.assert_allclose(values(graph, kind), 4 - leaves - 1)
    np.testing.assert_allclose(values(graph, "balanced"), 0)


def test_path():
    graph = nx.path_graph(6)
    for kind in ("plain", "augmented"):
        np.testing.assert_allclose(values(graph, kind), [1, 0, 0, 0, 1])
    np.testing.assert_allclose(values(graph, "balanced"), 0)


def test_torus_grid():
    """Degree 4, no triangles, two neighbours of each end on a square: 2/4 + 2/4 - 2 + (2 + 2) / 4 = 0."""
    graph = nx.grid_2d_graph(6, 6, periodic=True)
    for kind in ("plain", "augmented"):
        np.testing.assert_allclose(values(graph, kind), -4)
    np.testing.assert_allclose(values(graph, "balanced"), 0, atol=1e-15)


def test_regular_tree():
    """Inner edges of a tree of degree 3: 2/3 + 2/3 - 2; edges to leaves 0 by definition."""
    found = ga.forman_ricci(nx.balanced_tree(2, 4), "balanced").to_dict()
    assert found[1, 3] == pytest.approx(4 / 3 - 2)
    assert found[7, 15] == 0
    np.testing.assert_allclose(ga.forman_ricci(nx.balanced_tree(2, 4), "plain").to_dict()[1, 3], -2)


@each_kind
@pytest.mark.parametrize("seed", range(6))
def test_equals_the_literal_definition(kind, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 15))
    weights = np.triu(10 ** rng.uniform(-3, 1, (n, n)) * (rng.random((n, n)) < 0.5), 1)
    weights += weights.T
    found = ga.forman_ricci(weights, kind)
    np.testing.assert_allclose(found.kappa, literal(weights, kind), rtol=1e-11, atol=1e-11)
    assert found.edges == np.count_nonzero(np.triu(weights))


@each_kind
def test_equals_graphriccicurvature(kind):
    references = json.loads((REFERENCES / "forman-0.6.1.json").read_text())["graphs"]
    stored = np.load(REFERENCES / "grc-graphs.npz")
    for name, expected in references.items():
        flat = kind == "balanced" and _complete(stored[name])
        with pytest.warns(ga.DegenerateCurvatureWarning) if flat else contextlib.nullcontext():
            found = ga.forman_ricci(stored[name], kind)
        i, j = np.array(expected["edges"]).T
        np.testing.assert_allclose(found.kappa[i, j], expected[METHODS[kind]], rtol=1e-10, atol=1e-10, err_msg=name)
        assert found.edges == len(i)
        if kind == "balanced":
            np.testing.assert_allclose(found.nodes(), expected["nodes"], atol=1e-12, err_msg=name)


def _complete(weights):
    return len(weights) > 3 and (weights + np.eye(len(weights)) > 0).all()


@each_kind
def test_batches_masks_and_tensors(kind):
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(8), size=(2, 3, 8)) * (rng.random((2, 3, 8, 8)) < 0.7)
    mask = np.ones((2, 8), dtype=bool)
    mask[1, 5:] = False
    found = ga.forman_ricci(torch.from_numpy(attention).float(), kind, mask=mask)
    assert found.kappa.shape == (2, 3, 8, 8)
    for a in range(2):
        for b in range(3):
            one = attention[a, b].astype(np.float32).astype(float)[np.ix_(mask[a], mask[a])]
            expected = literal((one + one.T) / 2, kind)
            np.testing.assert_allclose(found.kappa[a, b][np.ix_(mask[a], mask[a])], expected, rtol=1e-9, atol=1e-9)
    assert np.isnan(found.kappa[1, :, 5:]).all()


def test_threshold_makes_dense_attention_informative():
    attention = np.random.default_rng(1).dirichlet(np.ones(16), size=16)
    with pytest.warns(ga.DegenerateCurvatureWarning, match="whatever the attention is"):
        flat = ga.forman_ricci(attention, "balanced")
    assert np.ptp(flat.values()) < 1e-12
    found = ga.forman_ricci(attention, "balanced", threshold=1 / 16)
    symmetric = (attention + attention.T) / 2
    np.testing.assert_allclose(found.kappa, literal(np.where(symmetric > 1 / 16, symmetric, 0), "balanced"))
    assert np.ptp(found.values()) > 0.1
    assert found.summary()["threshold"] == 1 / 16


def test_lengths_of_the_convention_are_the_weights():
    attention = np.random.default_rng(2).dirichlet(np.ones(6), size=6)
    symmetric = (attention + attention.T) / 2
    for length, convert in {
        "-log w": lambda w: -np.log(w),
        "1/w": lambda w: 1 / w,
        "hop": np.ones_like,
    }.items():
        found = ga.forman_ricci(attention, "plain", ga.Convention(length=length))
        np.testing.assert_allclose(found.kappa, literal(convert(symmetric), "plain"), rtol=1e-11)


def test_rows_need_not_sum_to_one_under_a_markov_convention():
    weights = np.array([[0, 0.5, 0.25], [0.5, 0, 0.125], [0.25, 0.125, 0]])
    assert ga.forman_ricci(weights, "plain", "markov").convention.name == "markov"


@pytest.mark.parametrize("kind", ["plain", "augmented"])
def test_an_edge_of_length_zero_has_no_value(kind):
    weights = np.array([[0, 1.0, 0.5, 0], [1.0, 0, 0, 0], [0.5, 0, 0, 0.5], [0, 0, 0.5, 0]])
    found = ga.forman_ricci(weights, kind, ga.Convention(length="-log w", measure="uniform"))
    assert np.isnan(found.kappa[0, 1])
    assert np.isnan(found.kappa[0, 2])
    assert np.isfinite(found.kappa[2, 3])


def test_wrong_input_is_refused():
    with pytest.raises(ga.GeoattnError, match="undirected"):
        ga.forman_ricci(np.eye(3), "plain", ga.Convention(direction="directed"))
    with pytest.raises(ga.GeoattnError, match="got a directed one"):
        ga.forman_ricci(nx.DiGraph([(0, 1), (1, 2)]))
    with pytest.raises(ga.GeoattnError, match="threshold must be a weight"):
        ga.forman_ricci(np.eye(3), threshold=-1.0)


def test_no_edges_no_values():
    found = ga.forman_ricci(np.eye(5), "plain")
    assert len(found.values()) == 0
    assert np.isnan(found.summary()["mean"])
    np.testing.assert_array_equal(found.nodes(), 0)
