"""Graphs in files: .graphml, .gml, edge lists, .mtx and sparse .npz become networkx graphs or SciPy matrices."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.numpy_files import npz_names, read_npz
from geoattn.graph.edge_lists import read_edge_list
from geoattn.graph.graph_bounds import check_gml, check_graphml, check_nodes
from geoattn.graph.matrix_market import read_matrix_market

__all__ = ["GRAPH_SUFFIXES", "is_graph_file", "read_graph_file"]

GRAPH_SUFFIXES = (".graphml", ".gml", ".edgelist", ".edges", ".csv", ".tsv", ".txt", ".mtx")


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


def read_graph_file(path: Path, *, directed: bool = False) -> Any:
    """The graph. ``directed`` says how an edge list is read; the other formats say it themselves."""
    readers = {".graphml": _graphml, ".gml": _gml, ".mtx": read_matrix_market, ".npz": _npz}
    try:
        return readers.get(path.suffix.lower(), partial(read_edge_list, directed=directed))(path)
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
