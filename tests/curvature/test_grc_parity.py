"""The grc presets against numbers of GraphRicciCurvature 0.5.3.2 and 0.6.1 (references/make_grc_references.py)."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.references.exact import problem

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

HERE = Path(__file__).parent / "references"
VERSIONS = {"grc-0.5": "0.5.3.2", "grc-0.6": "0.6.1"}
GRAPHS = dict(np.load(HERE / "grc-graphs.npz"))
VALUES = {preset: json.loads((HERE / f"grc-{version}.json").read_text()) for preset, version in VERSIONS.items()}
CASES = [
    (preset, name, alpha)
    for preset in VERSIONS
    for name in VALUES[preset]["graphs"]
    for alpha in VALUES[preset]["graphs"][name]["kappa"]
]


def test_references_are_of_the_right_versions():
    for preset, version in VERSIONS.items():
        assert VALUES[preset]["packages"]["GraphRicciCurvature"] == version
        assert VALUES[preset]["settings"]["method"] == "OTD"
        assert set(VALUES[preset]["graphs"]) == set(GRAPHS)
    assert len(CASES) >= 80


@pytest.mark.parametrize(("preset", "name", "alpha"), CASES)
def test_same_curvatures(preset, name, alpha):
    reference = VALUES[preset]["graphs"][name]
    convention = Convention.of(preset).but(alpha=float(alpha))
    result = ga.ollivier_ricci(GRAPHS[name], convention)
    i, j = np.array(reference["edges"]).T
    np.testing.assert_allclose(result.kappa[i, j], reference["kappa"][alpha], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(result.kappa[j, i], result.kappa[i, j])
    edge = np.zeros(GRAPHS[name].shape, bool)
    edge[i, j] = edge[j, i] = True
    assert (np.isfinite(result.kappa) == edge).all()
    assert ((result.status == Status.NO_EDGE) == ~edge).all()


@pytest.mark.parametrize("preset", VERSIONS)
def test_preset_has_alpha_one_half(preset):
    reference = VALUES[preset]["graphs"]["karate"]
    i, j = np.array(reference["edges"]).T
    kappa = ga.ollivier_ricci(GRAPHS["karate"], preset).kappa[i, j]
    np.testing.assert_allclose(kappa, reference["kappa"]["0.5"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("preset", VERSIONS)
@pytest.mark.parametrize("name", ["karate", "sparse-n12", "tiny-some", "disconnected-n14"])
def test_networkx_graphs(preset, name):
    """A networkx graph, with or without weights and with any order of nodes and self loops, gives the same numbers."""
    reference = VALUES[preset]["graphs"][name]
    graph = nx.from_numpy_array(GRAPHS[name])
    if name == "karate":
        graph = nx.Graph(graph.edges)  # no weights: all of length 1
        graph.add_nodes_from(range(len(GRAPHS[name])))
    order = list(graph.nodes)
    result = ga.ollivier_ricci(graph, preset)
    kappa = {frozenset(pair): value for pair, value in zip(result.index.tolist(), result.kappa.tolist(), strict=True)}
    found = [kappa[frozenset((order.index(u), order.index(v)))] for u, v in reference["edges"]]
    np.testing.assert_allclose(found, reference["kappa"]["0.5"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("preset", VERSIONS)
def test_the_reference_of_the_tests_agrees_too(preset):
    """references/exact.py, from which the exactness tests draw, computes what the libraries compute."""
    for name, reference in VALUES[preset]["graphs"].items():
        graph = problem(GRAPHS[name], preset)
        for k in range(0, len(reference["edges"]), max(1, len(reference["edges"]) // 7)):
            kappa, _ = graph.kappa(*reference["edges"][k])
            assert kappa == pytest.approx(reference["kappa"]["0.5"][k], rel=1e-11, abs=1e-11), name


def test_versions_differ():
    """The two presets are not the same thing: a path shorter than the edge shows it."""
    five, six = (ga.ollivier_ricci(GRAPHS["attention-n17-s4"], preset).kappa for preset in VERSIONS)
    assert np.nanmax(np.abs(five - six)) > 0.1
