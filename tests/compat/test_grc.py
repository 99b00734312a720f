"""`geoattn.compat` against GraphRicciCurvature 0.6.1 (references/make_references.py): same names and values."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn.compat import FormanRicci, OllivierRicci

HERE = Path(__file__).parent / "references"
REFERENCE = json.loads((HERE / "grc-0.6.1.json").read_text())["graphs"]


def script():
    """The script that made the references, as a module; its peer need not be installed."""
    source = (HERE / "make_references.py").read_text()
    kept = "\n".join(line for line in source.splitlines() if "GraphRicciCurvature." not in line)
    spec = importlib.util.spec_from_loader("references_script", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(kept, "make_references.py", "exec"), module.__dict__)
    return module


GRAPHS = script().graphs()
each_graph = pytest.mark.parametrize("name", list(GRAPHS))


def edges_of(graph, name):
    return {(str(u), str(v)): data[name] for u, v, data in graph.edges(data=True) if name in data}


def nodes_of(graph, name):
    return {str(v): data[name] for v, data in graph.nodes(data=True) if name in data}


def same(found, expected):
    if isinstance(expected, list):
        expected = {(u, v): value for u, v, value in expected}
    assert set(found) == set(expected)
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-8, atol=1e-8)


@each_graph
@pytest.mark.parametrize("case", range(9))
def test_curvature_of_edges_and_nodes(name, case):
    settings, edges, nodes = REFERENCE[name]["curvature"][case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.GeoattnWarning)
        orc = OllivierRicci(GRAPHS[name], **settings)
        out = orc.compute_ricci_curvature()
    assert out is orc.G
    same(edges_of(out, "ricciCurvature"), edges)
    same(nodes_of(out, "ricciCurvature"), nodes)


@each_graph
def test_some_edges(name):
    found = OllivierRicci(GRAPHS[name]).compute_ricci_curvature_edges(list(GRAPHS[name].edges())[3:6])
    same({(str(u), str(v)): k for (u, v), k in found.items()}, REFERENCE[name]["some"])


@each_graph
@pytest.mark.parametrize("method", ["1d", "augmented", "balanced"])
def test_forman(name, method):
    expected = REFERENCE[name]["forman"][method]
    if name == "named":  # it has a self loop: the peer counts or fails on it, we refuse
        with pytest.raises(ga.GeoattnError, match="self loops"):
            FormanRicci(GRAPHS[name], method=method).compute_ricci_curvature()
        return
    frc = FormanRicci(GRAPHS[name], method=method)
    frc.compute_ricci_curvature()
    same(edges_of(frc.G, "formanCurvature"), expected[0])
    same(nodes_of(frc.G, "formanCurvature"), expected[1])


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "directed"])
def test_flow_and_communities(name):
    orc = OllivierRicci(GRAPHS[name], method="OTD")
    flow = orc.compute_ricci_flow(iterations=4, step=0.5)
    for key, expected in zip(("weight", "ricciCurvature", "original_RC"), REFERENCE[name]["flow"], strict=True):
        same(edges_of(flow, key), expected)
    expected = REFERENCE[name]["communities"]
    if isinstance(expected, str):
        with pytest.raises(ga.GeoattnError):
            orc.ricci_community()
        return
    found = orc.ricci_community_all_possible_clusterings()
    assert len(found) == len(expected)
    for (cutoff, labels), (their_cutoff, theirs) in zip(found, expected, strict=True):
        assert cutoff == pytest.approx(their_cutoff, abs=1e-8)
        assert {str(v): k for v, k in labels.items()} == theirs
    assert orc.ricci_community()[1] == found[-1][1]


def test_surgery_gets_the_graph_and_the_name_of_the_weight():
    seen = []

    def cut(graph, weight):
        seen.append(weight)
        graph.remove_edge(0, 1)
        return graph

    orc = OllivierRicci(nx.karate_club_graph())
    orc.compute_ricci_flow(iterations=3, surgery=(cut, 2))
    assert seen == ["weight"]
    assert orc.G.number_of_edges() == 77


def test_what_differs_is_said_once():
    with pytest.warns(ga.GeoattnWarning, match="solved exactly"):
        OllivierRicci(nx.path_graph(4), method="Sinkhorn").compute_ricci_curvature()
    with pytest.warns(ga.GeoattnWarning, match="only the 5 nearest"):
        OllivierRicci(nx.star_graph(9), nbr_topk=5).compute_ricci_curvature()
    with pytest.raises(ga.GeoattnError, match="method must be one of"):
        OllivierRicci(nx.path_graph(4), method="guess").compute_ricci_curvature()
