"""Edge lists: the direction of a line, and which line is a header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.graph.edge_lists import read_edge_list


def read(folder: Path, text: str, name: str = "x.edgelist", **how: Any) -> nx.Graph:
    path = folder / name
    path.write_text(text)
    return read_edge_list(path, **how)


def test_a_line_of_a_directed_list_is_an_edge_from_its_first_node_to_its_second(tmp_path: Path) -> None:
    graph = read(tmp_path, "a b 1\nb a 2\nb c 3\n", directed=True)
    assert graph.is_directed()
    assert list(graph.edges(data="weight")) == [("a", "b", 1.0), ("b", "a", 2.0), ("b", "c", 3.0)]


def test_both_directions_of_a_pair_with_one_weight_are_one_undirected_edge(tmp_path: Path) -> None:
    graph = read(tmp_path, "a b 2\nb a 2\nb c 1\n")
    assert not graph.is_directed()
    assert list(graph.edges(data="weight")) == [("a", "b", 2.0), ("b", "c", 1.0)]


def test_both_directions_of_a_pair_with_two_weights_are_no_undirected_edge(tmp_path: Path) -> None:
    with pytest.raises(
        GeoattnError, match=r"line 2: edge \('b', 'a'\) has weight 2, but \('a', 'b'\) has 1 .*directed"
    ):
        read(tmp_path, "a b 1\nb a 2\n")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("text", ["a b\nb c\na b\n", "a b 1\nc c 1\nc c 1\n"])
def test_a_line_that_is_there_twice_is_an_error(tmp_path: Path, text: str, directed: bool) -> None:
    with pytest.raises(GeoattnError, match=r"line 3: edge .* is there twice"):
        read(tmp_path, text, directed=directed)


@pytest.mark.parametrize(
    "text",
    [
        "source,target\na,b\nb,c\n",
        "\n# a comment\nFrom,To\na,b\nb,c\n",
        "node_a,node_b,strength\na,b,1\nb,c,1\n",
        "source,target,weight\nsource,a,1\na,target,1\n",  # nodes may have these names, too
        "node_a,node_b\n1,2\n2,3\n",
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.edgelist"])
def test_a_header_is_no_edge(tmp_path: Path, text: str, name: str) -> None:
    """Six names were known; a header with others was an edge."""
    assert read(tmp_path, text, name).number_of_edges() == 2


@pytest.mark.parametrize(
    "text", ["a,b\nb,c\n", "1,2\n3,4\n", "x,1\n2,3\n", "from,b\nb,c\n", "a,b,1\nc,d,1\n", "u,v,1\nv,w,1\n"]
)
def test_a_first_line_with_a_node_of_another_line_a_number_or_a_weight_is_an_edge(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, "x.csv").number_of_edges() == 2


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_a_table_whose_first_line_may_be_a_header_or_an_edge_is_refused_with_a_way_out(
    tmp_path: Path, name: str
) -> None:
    text = "node_a,node_b\nann,bob\nbob,eve\n"
    with pytest.raises(GeoattnError, match=r"line 1: 'node_a,node_b' may be a header or an edge.*put # in front"):
        read(tmp_path, text, name)
    assert read(tmp_path, "#" + text, name).number_of_edges() == 2
    assert read(tmp_path, text.replace("\n", ",1\n"), name).number_of_edges() == 3


def test_a_list_that_is_no_table_has_no_header_with_names_of_its_own(tmp_path: Path) -> None:
    assert read(tmp_path, "ann bob\neve joe\n").number_of_edges() == 2
    assert read(tmp_path, "ann bob\n").number_of_edges() == 1


def test_usual_names_of_columns_that_are_also_nodes_are_refused(tmp_path: Path) -> None:
    """The first edge of this triangle was lost."""
    with pytest.raises(GeoattnError, match=r"line 1: 'u,v' may be a header or an edge.*nodes of other lines"):
        read(tmp_path, "u v\nv w\nw u\n")


def test_a_first_line_with_a_broken_weight_is_no_header(tmp_path: Path) -> None:
    with pytest.raises(GeoattnError, match=r"line 1: 'n/a' is not a weight"):
        read(tmp_path, "a b n/a\nb c 1\n")


def test_further_columns_are_refused_by_their_number(tmp_path: Path) -> None:
    """The hint was that the file may not be complete."""
    with pytest.raises(GeoattnError, match=r"line 1: .* got 4 columns.* columns are not read") as refused:
        read(tmp_path, "source,target,weight,year\na,b,1,1999\n", "x.csv")
    assert "complete" not in str(refused.value)
