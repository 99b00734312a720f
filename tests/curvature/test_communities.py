"""Communities by Ricci flow: GraphRicciCurvature's clusterings, planted blocks, and clear errors."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import geoattn as ga

REFERENCES = Path(__file__).parent / "references"
VERSIONS = {"grc-0.5": "0.5.3.2", "grc-0.6": "0.6.1"}
each_version = pytest.mark.parametrize("preset", VERSIONS)


def assert_same_clustering(found, expected):
    assert found.cutoff == pytest.approx(expected["cutoff"], rel=1e-9)
    np.testing.assert_array_equal(found.labels[found.labels >= 0], expected["labels"])


@each_version
def test_karate_equals_graphriccicurvature(preset):
    references = json.loads((REFERENCES / f"grc-{VERSIONS[preset]}.json").read_text())["graphs"]
    expected = references["karate"]["community"]
    with np.load(REFERENCES / "grc-graphs.npz") as graphs:
        flow = ga.ricci_flow(graphs["karate"], preset, iterations=expected["iterations"])
    found = ga.ricci_communities(flow)
    assert len(found.clusterings) == len(expected["all"])
    for one, other in zip(found.clusterings, expected["all"], strict=True):
        assert_same_clustering(one, other)
    assert_same_clustering(found.best, expected["best"])


@each_version
def test_other_graphs_equal_graphriccicurvature(preset):
    references = json.loads((REFERENCES / f"flow-{VERSIONS[preset]}.json").read_text())["communities"]
    for name, expected in references.items():
        graph = nx.Graph()
        graph.add_nodes_from(range(expected["n"]))
        graph.add_weighted_edges_from(expected["edges"])
        flow = ga.ricci_flow(graph, preset, iterations=expected["iterations"])
        if "error" in expected:  # where GraphRicciCurvature stops with one, so do we, in words
            message = {"AssertionError": "modularity drop", "IndexError": "nothing to cut"}[expected["error"]]
            with pytest.raises(ga.GeoattnError, match=message):
                ga.ricci_communities(flow)
            continue
        found = ga.ricci_communities(flow)
        assert len(found.clusterings) == len(expected["all"]), name
        for one, other in zip(found.clusterings, expected["all"], strict=True):
            assert_same_clustering(one, other)


@pytest.mark.parametrize("sizes", [(5, 5), (4, 6, 8), (5, 5, 5, 5)])
@pytest.mark.parametrize("preset", ["grc-0.6", "hop-uniform"])
def test_cliques_on_a_ring_are_found(sizes, preset):
    graph = nx.disjoint_union_all([nx.complete_graph(k) for k in sizes])
    first = np.cumsum((0, *sizes[:-1]))
    graph.add_edges_from((int(a), int(b)) for a, b in zip(first, np.roll(first, -1) + 1, strict=True))
    convention = ga.Convention(length="hop", measure="uniform", alpha=0.5) if preset == "hop-uniform" else preset
    found = ga.ricci_communities(graph, choose="modularity", convention=convention, iterations=8)
    np.testing.assert_array_equal(found.best.labels, np.repeat(np.arange(len(sizes)), sizes))
    assert found.best.modularity == pytest.approx(
        nx.community.modularity(graph, [set(group) for group in found.best.groups()])
    )
    assert found.best.count == len(sizes)
    assert len(found.cutoffs) == len(found.modularity)


def test_modularity_of_the_cut_graph_is_newmans_of_it_with_lengths_as_weights():
    flow = ga.ricci_flow(nx.karate_club_graph(), iterations=10)
    found = ga.ricci_communities(flow)
    graph = flow.to_networkx()
    graph.remove_edges_from([(u, v) for u, v, w in graph.edges(data="weight") if w > found.best.cutoff])
    groups = [set(group) for group in found.best.groups()]
    assert sorted(map(sorted, groups)) == sorted(sorted(c) for c in nx.connected_components(graph))
    assert found.best.modularity == pytest.approx(nx.community.modularity(graph, groups, weight="weight"))
    cutoffs = [one.cutoff for one in found.clusterings]
    assert cutoffs == sorted(cutoffs, reverse=True)
    assert found.best is found.clusterings[-1]


def test_names_and_nodes_outside_the_component():
    graph = nx.relabel_nodes(nx.barbell_graph(4, 0), dict(enumerate("abcdefgh")))
    graph.add_edge("y", "z")
    found = ga.ricci_communities(graph, choose="modularity", iterations=5)
    assert found.best.groups() == [list("abcd"), list("efgh")]
    assert found.best.by_node()["e"] == 1
    assert "y" not in found.best.by_node()
    assert found.best.labels[-1] == -1


def test_all_edges_alike_is_an_error_in_words():
    for choose in ("drop", "modularity"):
        with pytest.raises(ga.GeoattnError, match="nothing to cut"):
            ga.ricci_communities(nx.complete_graph(5), choose=choose)


def test_wrong_settings_are_refused():
    graph = nx.karate_club_graph()
    with pytest.raises(ga.GeoattnError, match="cutoff_step must be a positive number"):
        ga.ricci_communities(graph, cutoff_step=0.0)
    with pytest.raises(ga.GeoattnError, match="drop_threshold must be a positive number"):
        ga.ricci_communities(graph, drop_threshold=-1.0)
    flow = ga.ricci_flow(graph, iterations=1)
    with pytest.raises(ga.GeoattnError, match="finished flow and also settings of one: iterations"):
        ga.ricci_communities(flow, iterations=3)
    with pytest.raises(ga.GeoattnError, match="raise it"):
        ga.ricci_communities(flow, cutoff_step=1e-9)
