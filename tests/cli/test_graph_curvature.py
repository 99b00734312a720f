"""``geoattn curvature`` with a graph in a file."""

from __future__ import annotations

import json

import networkx as nx
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, save_npz
from typer.testing import CliRunner

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.cli.app import app
from geoattn.graph.graph_files import read_graph_file

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, graph = tmp_path_factory.mktemp("graphs"), nx.karate_club_graph()
    nx.write_graphml(graph, folder / "club.graphml")
    nx.write_gml(graph, folder / "club.gml")
    nx.write_weighted_edgelist(graph, folder / "club.edgelist")
    lines = [f"{u},{v},{d['weight']}" for u, v, d in graph.edges(data=True)]
    (folder / "club.csv").write_text("\n".join(["source,target,weight", *lines]))
    matrix = csr_array(nx.to_scipy_sparse_array(graph, dtype=float))
    mmwrite(folder / "club.mtx", matrix)
    save_npz(folder / "club.npz", matrix)
    return folder


@pytest.mark.parametrize("suffix", ["graphml", "gml", "edgelist", "csv", "mtx", "npz"])
def test_every_format(files, suffix):
    result = CliRunner().invoke(app, ["curvature", str(files / f"club.{suffix}"), "--convention", "grc-0.6", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    expected = ga.ollivier_ricci(nx.karate_club_graph(), "grc-0.6").summary()
    assert found["mean"] == pytest.approx(expected["mean"], abs=1e-12)
    assert found["values"] == 78


@pytest.mark.parametrize("suffix", ["graphml", "gml", "mtx", "npz"])
def test_a_file_that_ends_in_the_middle(files, tmp_path, suffix):
    whole = (files / f"club.{suffix}").read_bytes()
    path = tmp_path / f"half.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GeoattnError, match="cannot be read"):
        read_graph_file(path)


def test_a_line_that_is_no_edge(tmp_path):
    path = tmp_path / "x.edgelist"
    path.write_text("a b 1\nc")
    with pytest.raises(GeoattnError, match="line 2"):
        read_graph_file(path)


def test_several_conventions(files):
    command = ["curvature", str(files / "club.gml"), "--convention", "hop,grc-0.6", "--json"]
    found = json.loads(CliRunner().invoke(app, command).stdout)
    assert [one["convention"] for one in found] == ["hop", "grc-0.6"]


def test_an_edge_list_that_ends_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("source,target,weight\na,b,1.5\nb,c,2.5\nc,d")
    with pytest.raises(GeoattnError, match="line 4: 2 columns, 3 in the lines before"):
        read_graph_file(path)


def test_each_line_of_an_edge_list_is_one_edge_under_a_directed_convention(tmp_path):
    """A graph was undirected, whatever the convention: 8 lines were 16 edges."""
    path, graph = tmp_path / "x.csv", nx.gnp_random_graph(12, 0.3, seed=3, directed=True)
    path.write_text("source,target,weight\n" + "\n".join(f"{u},{v},{1 + u % 3}" for u, v in graph.edges))
    nx.set_edge_attributes(graph, {(u, v): 1 + u % 3 for u, v in graph.edges}, "weight")
    command = ["curvature", str(path), "--convention", "grc-0.6", "--direction", "directed", "--json"]
    found = json.loads(CliRunner().invoke(app, command).stdout)
    expected = ga.ollivier_ricci(graph, ga.Convention.of("grc-0.6").but(direction="directed")).summary()
    assert found["edges"] == graph.number_of_edges() == expected["edges"]
    assert found["mean"] == pytest.approx(expected["mean"], abs=1e-12)


def test_an_edge_list_with_two_weights_of_a_pair_is_answered_with_the_option_for_it(tmp_path):
    path = tmp_path / "x.edgelist"
    path.write_text("a b 1\nb a 2\nb c 1\n")
    refused = CliRunner().invoke(app, ["curvature", str(path), "--convention", "grc-0.6"])
    assert refused.exit_code == 2
    assert "--direction directed" in refused.output
    command = ["curvature", str(path), "--convention", "grc-0.6", "--direction", "directed"]
    assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_tolerance_has_no_effect_on_a_graph_and_one_line_says_so(files, more):
    command = ["curvature", str(files / "club.gml"), "--tolerance", "0.1", *more]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0
    assert found.stderr.splitlines() == [
        "geoattn: note: --tolerance has no effect here: values of sparse graphs are always exact."
    ]
    assert "tolerance" not in found.stdout


@pytest.mark.parametrize("suffix", ["mtx", "csv"])
def test_the_bar_counts_the_edges_that_are_solved(files, suffix, monkeypatch):
    told = []
    monkeypatch.setattr("geoattn.cli.progress.LateProgress.update", lambda self, *now: told.append(now))
    command = ["curvature", str(files / f"club.{suffix}"), "--convention", "grc-0.6", "--edges", "20"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert told[-1] == (20, 20)


@pytest.mark.parametrize("suffix", ["graphml", "gml", "edgelist", "csv", "mtx", "npz"])
def test_half_a_file_is_one_clear_line(files, tmp_path, suffix):
    whole = (files / f"club.{suffix}").read_bytes()
    path = tmp_path / f"half.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    if suffix in ("csv", "edgelist"):  # cut after the first node of a line
        text = (files / f"club.{suffix}").read_text()
        separator = "," if suffix == "csv" else " "
        path.write_text(text[: text.index(separator, len(text) // 2 + text[len(text) // 2 :].index("\n"))])
    result = CliRunner().invoke(app, ["curvature", str(path), "--convention", "grc-0.6"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert ("truncated" if suffix == "npz" else "complete") in result.output
