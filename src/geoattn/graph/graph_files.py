"""Graphs in files: .graphml, .gml, edge lists, .mtx and sparse .npz become networkx graphs or SciPy matrices."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.numpy_files import npz_names, read_npz
from geoattn._core.read_limit import Budget, memory_of
from geoattn._core.text_files import lines_of
from geoattn.graph.graph_bounds import check_gml, check_graphml, check_nodes
from geoattn.graph.matrix_market import read_matrix_market

__all__ = ["GRAPH_SUFFIXES", "is_graph_file", "read_graph_file"]

GRAPH_SUFFIXES = (".graphml", ".gml", ".edgelist", ".edges", ".csv", ".tsv", ".txt", ".mtx")
_LONGEST_LINE = 1 << 20  # bytes of a line of an edge list
_EDGE, _NODE = 380, 320  # bytes that networkx takes for an edge and for a node


def is_graph_file(path: Path) -> bool:
    """Whether a file holds a graph by its edges: by its suffix, and by the names in an .npz."""
    if path.suffix.lower() in GRAPH_SUFFIXES:
        return True
    if path.suffix.lower() != ".npz":
        return False
    try:
        return path.is_file() and {"format", "shape", "data"} <= set(npz_names(path))
    except (OSError, ValueError):
        return False


def read_graph_file(path: Path) -> Any:
    """The graph. A line of an edge list is two nodes and maybe a weight, with blanks or commas; # is a comment."""
    readers = {".graphml": _graphml, ".gml": _gml, ".mtx": read_matrix_market, ".npz": _npz}
    try:
        return readers.get(path.suffix.lower(), _edge_list)(path)
    except GeoattnError:
        raise
    except FileNotFoundError:
        raise GeoattnError(f"no such file: {path}.") from None
    except Exception as error:  # whatever a damaged file makes of its reader
        raise GeoattnError(
            f"{path} cannot be read as a {path.suffix} graph ({type(error).__name__}: {error}). Is it complete?"
        ) from None


def _graphml(path: Path) -> Any:
    import networkx as nx

    check_graphml(path)
    return nx.read_graphml(path)


def _gml(path: Path) -> Any:
    import networkx as nx

    check_gml(path)
    try:
        return nx.read_gml(path)
    except nx.NetworkXError as error:
        if "label" not in str(error):
            raise
        return nx.read_gml(path, label="id")


def _npz(path: Path) -> Any:
    from scipy.sparse import load_npz

    about = read_npz(path)  # bounded; SciPy reads it again
    if about["shape"].shape != (2,) or about["shape"].dtype.kind not in "iu":
        raise GeoattnError(f"{path} does not hold a sparse matrix: its shape is {about['shape'].shape}.")
    check_nodes(path, int(about["shape"].max()), about["data"].size)
    del about
    with open(path, "rb") as file:
        matrix = load_npz(file)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # indices outside the matrix would be read as they are
    return matrix


def _edge_list(path: Path) -> Any:
    import networkx as nx

    graph, width = nx.Graph(), 0
    budget = Budget(path, "its edges")
    for number, line in enumerate(lines_of(path, longest=_LONGEST_LINE), 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        cells = [c.strip() for c in next(csv.reader([text]))] if "," in text else text.split()
        if len(cells) not in (2, 3) or not all(cells):
            raise GeoattnError(
                f"{path}, line {number}: expected two nodes and maybe a weight; got {text[:60]!r}. Is it complete?"
            )
        weight = 1.0
        if len(cells) == 3:
            try:
                weight = float(cells[2])
            except ValueError:
                if graph.number_of_edges() == 0 and number == 1:
                    continue  # a header
                raise GeoattnError(f"{path}, line {number}: {cells[2]!r} is not a weight.") from None
        elif number == 1 and {c.lower() for c in cells} <= {"source", "target", "from", "to", "u", "v"}:
            continue
        if len(cells) != (width := width or len(cells)):
            raise GeoattnError(
                f"{path}, line {number}: {len(cells)} columns, {width} in the lines before. Is it complete?"
            )
        if graph.has_edge(*cells[:2]):
            raise GeoattnError(
                f"{path}, line {number}: edge {tuple(cells[:2])} is there twice (an edge list is undirected;"
                " a directed graph fits into .graphml, .gml, .mtx or .npz)."
            )
        budget.spend(_EDGE + sum(memory_of(cell) + _NODE for cell in cells[:2] if cell not in graph))
        graph.add_edge(cells[0], cells[1], weight=weight)
    if graph.number_of_edges() == 0:
        raise GeoattnError(f"{path} holds no edge.")
    return graph
