"""Bad sparse graphs: a clear error that names the edge, or the right answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import coo_array

import geoattn as ga
from geoattn.graph.inputs import read_weights

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")
ROW = np.array([0, 1, 1, 2, 2, 3, 3, 0, 0, 2])
COLUMN = np.array([1, 0, 2, 1, 3, 2, 0, 3, 2, 0])  # a square with a diagonal


def make(kind: str, weight: np.ndarray, row: np.ndarray = ROW, column: np.ndarray = COLUMN, n: int = 4) -> Any:
    index = np.stack([row, column])
    if kind == "scipy":
        return coo_array((weight, (row, column)), shape=(n, n))
    if kind == "torch":
        return torch.sparse_coo_tensor(torch.tensor(index), torch.tensor(weight), (n, n), check_invariants=True)
    if kind == "edge list":
        return index, weight, n
    if kind == "Data":
        return SimpleNamespace(edge_index=torch.tensor(index), edge_weight=torch.tensor(weight), num_nodes=n)
    graph = nx.Graph() if kind == "networkx" else nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(zip(row.tolist(), column.tolist(), weight.tolist(), strict=True))
    return graph


KINDS = ["scipy", "torch", "edge list", "Data", "networkx", "directed networkx"]


def convention_of(kind: str) -> ga.Convention:
    grc = ga.Convention.of("grc-0.6")
    return grc.but(direction="directed") if kind.startswith("directed") else grc


@pytest.mark.parametrize(("value", "word"), [(-0.5, "negative"), (np.nan, "NaN"), (np.inf, "infinite")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_that_is_none_names_its_edge(kind: str, value: float, word: str) -> None:
    weight = np.ones(10)
    weight[4:6] = value  # 2 -> 3 and back
    functions = (ga.ollivier_ricci, ga.curvature_bounds)
    for function in functions if kind.startswith("directed") else (*functions, ga.ricci_flow, ga.forman_ricci):
        with pytest.raises(ga.GeoattnError, match=rf"edge \((2, 3|3, 2)\) .*{word}"):
            function(make(kind, weight), convention=convention_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_self_loops_change_nothing_where_the_measure_lives_on_neighbours(kind: str) -> None:
    plain = ga.ollivier_ricci(make(kind, np.ones(10)), convention_of(kind))
    row, column = np.append(ROW, [1, 3]), np.append(COLUMN, [1, 3])
    looped = ga.ollivier_ricci(make(kind, np.append(np.ones(10), [2.0, 0.5]), row, column), convention_of(kind))
    np.testing.assert_array_equal(looped.index, plain.index)
    np.testing.assert_array_equal(looped.kappa, plain.kappa)


def test_self_loops_keep_mass_where_the_measure_is_the_walk() -> None:
    graph = nx.path_graph(3)
    graph.add_edge(0, 0, weight=1.0)
    kappa = ga.ollivier_ricci(graph, ga.Convention.of("markov").but(length="hop")).to_dict()
    # (1/2, 1/2, 0) to (1/2, 0, 1/2): half of the mass moves by one edge
    assert kappa[0, 1] == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("kind", ["edge list", "Data"])
def test_parallel_edges_of_a_list_are_refused(kind: str) -> None:
    row, column = np.append(ROW, 0), np.append(COLUMN, 1)
    with pytest.raises(ga.GeoattnError, match=r"edge \(0, 1\) is there more than once \(1 repetitions"):
        ga.ollivier_ricci(make(kind, np.ones(11), row, column), "grc-0.6")


def test_parallel_edges_of_a_multigraph_are_refused() -> None:
    """The way that is recommended adds their weights; networkx.Graph(graph) keeps the last one."""
    for made in (nx.MultiGraph, nx.MultiDiGraph):
        graph = made([("a", "b", {"weight": 1}), ("a", "b", {"weight": 2}), ("b", "c", {"weight": 4})])
        with pytest.raises(ga.GeoattnError, match="merge parallel edges first") as refused:
            ga.ollivier_ricci(graph, "grc-0.6")
        way = str(refused.value).split("first. ")[1].split(" adds")[0]
        merged = eval(way, {"networkx": nx, "graph": graph})
        assert merged.is_directed() == graph.is_directed()
        assert list(merged.edges(data="weight")) == [(0, 1, 3), (1, 2, 4)]
        with pytest.raises(ga.GeoattnError, match="merge parallel edges first"):
            read_weights(graph, ga.Convention.of("grc-0.6"))


@pytest.mark.parametrize("function", [ga.ricci_flow, ga.forman_ricci, ga.ricci_communities])
def test_what_is_undirected_recommends_no_directed_convention(function: Any) -> None:
    """The convention that it recommended was refused in turn."""
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)])
    with pytest.raises(ga.GeoattnError, match="is defined for undirected graphs; got a directed one") as refused:
        function(graph, convention="hop")
    assert "direction=" not in str(refused.value)
    if function is not ga.ricci_communities:  # two triangles have no drop of modularity
        function(graph.to_undirected(), convention="hop")


@pytest.mark.parametrize("kind", ["scipy", "torch"])
def test_repeated_entries_of_a_matrix_are_their_sum(kind: str) -> None:
    """As SciPy and torch define them."""
    row, column = np.append(ROW, [0, 1]), np.append(COLUMN, [1, 0])
    found = ga.ollivier_ricci(make(kind, np.append(np.ones(10), [0.5, 0.5]), row, column), "grc-0.6")
    whole = np.ones(10)
    whole[:2] = 1.5
    np.testing.assert_array_equal(found.kappa, ga.ollivier_ricci(make(kind, whole), "grc-0.6").kappa)


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.5", "grc-0.6"])
@pytest.mark.parametrize("kind", KINDS)
def test_isolated_nodes_have_no_curvature(kind: str, preset: str) -> None:
    convention = ga.Convention.of(preset).but(direction=convention_of(kind).direction)
    plain = ga.ollivier_ricci(make(kind, np.ones(10)), convention)
    more = ga.ollivier_ricci(make(kind, np.ones(10), n=7), convention)
    np.testing.assert_array_equal(more.kappa, plain.kappa)
    assert np.isnan(more.nodes()[4:]).all()
    assert np.isfinite(more.nodes()[:4]).all()


def test_a_weight_of_zero_is_no_edge() -> None:
    weight = np.ones(10)
    weight[8:] = 0.0
    square = ga.ollivier_ricci(make("edge list", weight), "grc-0.6")
    assert square.index.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]


@pytest.mark.parametrize("name", [str, lambda v: (v, "x"), lambda v: -v, lambda v: f"Knoten {v} é"])
def test_names_of_any_kind(name: Any) -> None:
    club = nx.karate_club_graph()
    expected = {frozenset(map(name, edge)): k for edge, k in ga.ollivier_ricci(club, "grc-0.6").to_dict().items()}
    found = ga.ollivier_ricci(nx.relabel_nodes(club, name), "grc-0.6").to_dict()
    assert {frozenset(edge): k for edge, k in found.items()} == pytest.approx(expected, abs=1e-13)


def test_two_parts_and_one_way_streets_have_a_status() -> None:
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 3)])  # no way back
    result = ga.ollivier_ricci(graph, ga.Convention.of("grc-0.6").but(direction="directed"))
    assert result.summary_of_status() == {"solved": 3}
    graph = nx.DiGraph([(0, 1), (0, 2), (1, 3)])  # what is at 2 cannot get to 3, nor what is at 1 to 2
    result = ga.ollivier_ricci(graph, ga.Convention.of("grc-0.6").but(direction="directed"))
    assert result.summary_of_status() == {"solved": 1, "unreachable": 2}
    assert [edge for edge, kappa in result.to_dict().items() if np.isnan(kappa)] == [(0, 1), (0, 2)]


def test_no_edge_at_all() -> None:
    result = ga.ollivier_ricci(nx.empty_graph(4), "grc-0.6")
    assert len(result.kappa) == 0
    assert np.isnan(result.nodes()).all()


def test_edge_attributes_that_are_no_weights() -> None:
    graph = make("Data", np.ones(10))
    graph.edge_weight, graph.edge_attr = None, torch.ones(10, 3)
    with pytest.raises(ga.GeoattnError, match=r"edge_attr of shape \(10, 3\) is no weight per edge"):
        ga.ollivier_ricci(graph, "grc-0.6")


def test_a_curvature_that_no_double_holds_has_a_status() -> None:
    graph = nx.star_graph(4)
    graph[0][1]["weight"] = 1e-320
    graph.add_edge(1, 5)
    result = ga.ollivier_ricci(graph, ga.Convention.of("grc-0.6").but(floor=0.0))
    assert np.isnan(result.to_dict()[0, 1])
    assert result.summary_of_status() == {"solved": 4, "uncertain": 1}
