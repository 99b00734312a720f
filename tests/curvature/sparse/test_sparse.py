"""Closed forms, inputs, results and bad input of sparse graphs."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array

import geoattn as ga
from geoattn.curvature import EdgeCurvature
from tests.curvature.sparse.graphs import random_sparse

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")
LAZY = ga.Convention(length="hop", measure="uniform", alpha=0.0)
LIMIT = LAZY.but(alpha="limit")


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (nx.complete_graph(6), 4 / 5), (nx.cycle_graph(9), 0.0), (nx.star_graph(5), 0.0), (nx.cycle_graph(3), 1 / 2),
        (nx.cycle_graph(5), 0.0), (nx.hypercube_graph(3), 0.0), (nx.balanced_tree(2, 5), None),
    ],
)  # fmt: skip
def test_closed_forms(graph, expected):
    result = ga.ollivier_ricci(graph, LAZY)
    if expected is not None:
        np.testing.assert_allclose(result.kappa, expected, atol=1e-12)
        return
    degree = dict(graph.degree())  # a tree: -2 (1 - 1 / d_x - 1 / d_y)^+
    for (u, v), kappa in result.to_dict().items():
        assert kappa == pytest.approx(-2 * max(0.0, 1 - 1 / degree[u] - 1 / degree[v]), abs=1e-12)


def test_lin_lu_yau_of_a_cycle_and_a_complete_graph():
    np.testing.assert_allclose(ga.ollivier_ricci(nx.complete_graph(5), LIMIT).kappa, 5 / 4, atol=1e-12)
    np.testing.assert_allclose(ga.ollivier_ricci(nx.cycle_graph(8), LIMIT).kappa, 0.0, atol=1e-12)


def test_a_star_with_many_leaves():
    result = ga.ollivier_ricci(nx.star_graph(20_000), "grc-0.6")
    np.testing.assert_allclose(result.kappa, 1 / 20_000, rtol=1e-9)


def test_all_inputs_agree():
    matrix = random_sparse(np.random.default_rng(0), 40, 5, kind="symmetric")
    expected = ga.ollivier_ricci(matrix, "grc-0.6")
    coo = coo_array(matrix)
    index = torch.tensor(np.stack(coo.coords))
    weight = torch.tensor(coo.data)
    tensor = torch.sparse_coo_tensor(index, weight, (40, 40), check_invariants=True)
    off = matrix - csr_array(np.diag(matrix.diagonal()))
    for other in (
        nx.from_scipy_sparse_array(csr_array(off)), tensor, (index, weight, 40),
        SimpleNamespace(edge_index=index, edge_weight=weight, num_nodes=40), matrix.tocsc(), coo,
    ):  # fmt: skip
        found = ga.ollivier_ricci(other, "grc-0.6")
        np.testing.assert_array_equal(found.index, expected.index)
        np.testing.assert_array_equal(found.kappa, expected.kappa)


def test_same_bits_for_any_number_of_threads_and_any_choice_of_edges():
    graph = nx.barabasi_albert_graph(300, 4, seed=2)
    one = ga.ollivier_ricci(graph, "grc-0.6", threads=1)
    np.testing.assert_array_equal(one.kappa, ga.ollivier_ricci(graph, "grc-0.6", threads=7).kappa)
    some = ga.ollivier_ricci(graph, "grc-0.6", edges=50)
    whole = one.to_dict()
    assert all(whole[edge] == kappa for edge, kappa in some.to_dict().items())
    chosen = ga.ollivier_ricci(graph, "grc-0.6", edges=[(0, 4), (0, 5)])
    assert chosen.to_dict() == {edge: whole[edge] for edge in ((0, 4), (0, 5))}


def test_result(tmp_path):
    graph = nx.relabel_nodes(nx.karate_club_graph(), lambda v: f"member {v}")
    result = ga.ollivier_ricci(graph)
    assert result.max_gap < 1e-12
    assert "78 edges" in repr(result)
    assert "<table>" in result._repr_html_()
    result.annotate(graph, "kappa")
    assert graph["member 0"]["member 1"]["kappa"] == result.to_dict()["member 0", "member 1"]
    mean = np.mean([d["kappa"] for d in graph["member 5"].values()])
    assert graph.nodes["member 5"]["kappa"] == pytest.approx(mean)
    result.save(tmp_path / "edges.npz")
    again = EdgeCurvature.load(tmp_path / "edges.npz")
    np.testing.assert_array_equal(again.kappa, result.kappa)
    assert again.names == result.names
    assert list(result.to_pandas().columns[:3]) == ["source", "target", "kappa"]


@pytest.mark.parametrize("convention", ["markov", "grc-0.6", "grc-0.5", LIMIT.but(length="-log w", measure="markov")])
@pytest.mark.parametrize("direction", ["mean", "directed", "max"])
def test_gradient_by_the_edge_weights(convention, direction):
    convention = ga.Convention.of(convention).but(direction=direction, floor=0.0)
    rng = np.random.default_rng(4)
    coo = coo_array(random_sparse(rng, 12, 4))
    index, weight = torch.tensor(np.stack(coo.coords)), torch.tensor(coo.data, requires_grad=True)

    def loss(weight):
        kappa = ga.curvature.edge_curvature((index, weight, 12), convention)
        return (kappa * torch.linspace(1, 2, len(kappa), dtype=torch.float64)).sum()

    loss(weight).backward()
    step = 1e-6
    for k in range(len(weight)):
        moved = torch.zeros(len(weight), dtype=torch.float64)
        moved[k] = step
        numeric = (loss(weight.detach() + moved) - loss(weight.detach() - moved)) / (2 * step)
        assert weight.grad[k] == pytest.approx(float(numeric), rel=1e-4, abs=1e-4)


def test_bounds_hold_and_progress_is_told():
    graph, told = nx.karate_club_graph(), []
    exact = ga.ollivier_ricci(graph, progress=lambda done, total: told.append((done, total)))
    bounds = ga.curvature_bounds(graph)
    assert (bounds.lower <= exact.kappa).all()
    assert (exact.kappa <= bounds.upper).all()
    assert told[-1] == (78, 78)


def bad(weight):
    graph = nx.path_graph(3)
    graph[0][1]["weight"] = weight
    return graph


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.MultiGraph([(0, 1), (0, 1)]), "multigraph"),
        (nx.DiGraph([(0, 1)]), "graph is directed"),
        (bad(-1.0), "negative"),
        (bad(float("nan")), "NaN"),
        (bad("heavy"), "must be a number"),
        (csr_array((2, 3)), "square"),
        ((np.array([[0, 0], [1, 1]]), None, 2), "more than once"),
        ((np.array([[0], [5]]), None, 2), "must lie in"),
        ((np.array([[0], [1]]), np.ones(3), 2), "edge_weight must be 1 numbers"),
    ],
)
def test_bad_input(graph, words):
    with pytest.raises(ga.GeoattnError, match=words):
        ga.ollivier_ricci(graph, "grc-0.6")


def test_the_way_to_a_directed_convention_says_that_it_is_not_that_of_the_package():
    """The source measure of GraphRicciCurvature lies on predecessors."""
    graph = nx.gnp_random_graph(8, 0.5, seed=1, directed=True)
    with pytest.raises(
        ga.GeoattnError, match=r"direction='directed'.*predecessors, use geoattn\.compat\.OllivierRicci"
    ):
        ga.ollivier_ricci(graph, "grc-0.6")
    with pytest.raises(ga.GeoattnError, match=r"direction='directed'.*to_undirected\(\)\.$"):
        ga.ollivier_ricci(graph, "hop")


def test_self_loops_and_isolated_nodes():
    graph = nx.cycle_graph(5)
    graph.add_edge(0, 0, weight=3.0)
    graph.add_node("alone")
    result = ga.ollivier_ricci(graph, "grc-0.6")
    assert len(result.kappa) == 5
    assert np.isnan(result.nodes()[5])
    assert len(ga.ollivier_ricci(graph).values()) == 5


def test_the_karate_club_under_the_default_convention():
    """Its names are kept, and its weights become those of its random walk."""
    club = nx.relabel_nodes(nx.karate_club_graph(), lambda node: f"member {node}")
    for table in (ga.ollivier_ricci(club).to_pandas(), ga.forman_ricci(club).to_pandas()):
        assert len(table) == club.number_of_edges()
        assert table["kappa"].notna().all()
        assert all(club.has_edge(u, v) for u, v in zip(table["source"], table["target"], strict=True))
