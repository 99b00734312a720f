"""Sparse graphs at the door: networkx, SciPy, torch and edge lists become rows of weights, or one clear error."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_rows import SparseRows

__all__ = [
    "SparseWeights", "data_weights", "is_networkx", "is_sparse", "networkx_rows", "numbers_of", "read_sparse",
    "refuse_directed", "refuse_multigraph",
]  # fmt: skip


@dataclass(frozen=True)
class SparseWeights:
    """Checked weights A of one graph, self loops included; ``names`` of its nodes, None for 0, 1, ..."""

    rows: SparseRows
    names: tuple[Any, ...] | None
    dtype: str

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.rows.n


def is_networkx(x: Any) -> bool:
    """Whether it is a networkx graph, by its attributes."""
    return hasattr(x, "adj") and hasattr(x, "nodes") and hasattr(x, "is_directed")


def _is_data(x: Any) -> bool:
    return getattr(x, "edge_index", None) is not None and hasattr(x, "num_nodes")


def _is_triple(x: Any) -> bool:
    """(edge_index, edge_weight, num_nodes): an array of two rows, weights or None, a number."""
    if not isinstance(x, (tuple, list)) or len(x) != 3 or isinstance(x[2], (list, tuple)) or x[0] is None:
        return False
    return getattr(x[0], "ndim", 0) == 2 and x[0].shape[0] == 2 and getattr(x[2], "ndim", 0) == 0


def _is_scipy(x: Any) -> bool:
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def _is_torch_sparse(x: Any) -> bool:
    return hasattr(x, "detach") and hasattr(x, "layout") and str(x.layout) != "torch.strided"


def is_sparse(x: Any) -> bool:
    """Whether this is a graph by its edges rather than an array."""
    return is_networkx(x) or _is_scipy(x) or _is_torch_sparse(x) or _is_data(x) or _is_triple(x)


def read_sparse(graph: Any, convention: Convention, *, weight: str = "weight") -> SparseWeights:
    """Weights of a networkx graph, a SciPy matrix, a sparse tensor, ``Data`` or ``(edge_index, edge_weight, n)``.

    An undirected networkx graph has each edge in both directions. A missing edge attribute ``weight`` is 1, and so are
    missing weights of an edge list. A weight of 0 is no edge.
    """
    if convention.heads == "mean":
        raise GeoattnError("convention with heads='mean' needs arrays of shape (..., h, n, n); got one sparse graph.")
    if is_networkx(graph):
        read = _from_networkx(graph, convention, weight)
    elif _is_scipy(graph):
        read = _from_scipy(graph)
    elif _is_torch_sparse(graph):
        read = _from_torch(graph)
    elif _is_data(graph):
        read = _from_edges(graph.edge_index, data_weights(graph), graph.num_nodes)
    else:
        read = _from_edges(*graph)
    _check(read)
    rows = read.rows
    return read if (rows.value > 0).all() else SparseWeights(rows.keep(rows.value > 0), read.names, read.dtype)


def refuse_multigraph(graph: Any) -> None:
    """An error for a networkx graph with parallel edges, with a way to merge them."""
    if graph.is_multigraph():
        kind = ", create_using=networkx.DiGraph" if graph.is_directed() else ""
        raise GeoattnError(
            "graph must not be a multigraph: merge parallel edges first."
            f" networkx.from_scipy_sparse_array(networkx.to_scipy_sparse_array(graph){kind}) adds their weights, as is"
            " right for similarities, and numbers the nodes in the order of graph.nodes."
        )


def refuse_directed(graph: Any, function: str) -> None:
    """An error for a directed networkx graph, for a function that has no directed convention."""
    if is_networkx(graph) and graph.is_directed():
        raise GeoattnError(
            f"{function} is defined for undirected graphs; got a directed one. Give graph.to_undirected(), which keeps"
            " one of the two weights where both directions have one."
        )


def _from_networkx(graph: Any, convention: Convention, weight: str) -> SparseWeights:
    refuse_multigraph(graph)
    if graph.is_directed() and not convention.directed:
        preset = convention.name.split(" ")[0]
        package = (
            " For the values of GraphRicciCurvature, with the measure of a source on its predecessors, use"
            " geoattn.compat.OllivierRicci."
        )
        raise GeoattnError(
            "graph is directed: use a convention that keeps direction, such as"
            f" Convention.of('{preset}').but(direction='directed'), or graph.to_undirected()."
            + (package if preset.startswith("grc") else "")
        )
    rows, names = networkx_rows(graph, weight)
    return SparseWeights(rows, None if names == tuple(range(len(names))) else names, "float64")


def networkx_rows(graph: Any, weight: Any) -> tuple[SparseRows, tuple[Any, ...]]:
    """The attribute ``weight`` of each edge, 1 where it has none, and the names of the nodes in the order of rows."""
    names = tuple(graph.nodes)
    n = len(names)
    neighbours = [data for _, data in graph.adjacency()]
    degree = np.fromiter(map(len, neighbours), np.int64, n)
    start = np.concatenate([[0], np.cumsum(degree)])
    column = numbers_of(itertools.chain.from_iterable(neighbours), int(start[-1]), names)
    attributes = itertools.chain.from_iterable(data.values() for data in neighbours)
    value = _edge_attributes(attributes, len(column), weight)
    row = np.repeat(np.arange(n), degree)
    if len(column) and not ((np.diff(column) > 0) | (np.diff(row) > 0)).all():
        order = np.argsort(row * n + column)
        column, value = column[order], value[order]
    return SparseRows(start, column, value), names


def numbers_of(nodes: Iterable[Any], count: int, names: tuple[Any, ...]) -> np.ndarray:
    """The number of each of ``count`` nodes, by their names; a KeyError for an unknown one."""
    if names != tuple(range(len(names))):
        nodes = map({name: k for k, name in enumerate(names)}.__getitem__, nodes)
    return np.fromiter(nodes, np.int32, count)


def _edge_attributes(attributes: Any, count: int, weight: Any) -> np.ndarray:
    """The attribute of each edge, 1 where it has none."""
    found = list(map(operator.methodcaller("get", weight, 1.0), attributes))
    try:
        value = np.array(found)
        if value.dtype.kind not in "fiu" or value.shape != (count,):
            raise ValueError("it is " + type(next(w for w in found if not isinstance(w, (int, float)))).__name__)
    except (TypeError, ValueError, StopIteration) as error:
        raise GeoattnError(
            f"edge attribute '{weight}' of the graph must be a number on every edge ({error})."
        ) from None
    return value.astype(np.float64)


def _from_scipy(matrix: Any) -> SparseWeights:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GeoattnError(f"a sparse matrix of weights must be square, (n, n); got shape {matrix.shape}.")
    if matrix.dtype.kind not in "fiub":
        raise GeoattnError(f"a sparse matrix of weights must hold real numbers; got dtype {matrix.dtype}.")
    return SparseWeights(SparseRows.of(matrix), None, str(matrix.dtype))


def _from_torch(tensor: Any) -> SparseWeights:
    tensor = tensor.detach()
    if tensor.ndim != 2 or tensor.shape[0] != tensor.shape[1]:
        raise GeoattnError(f"a sparse tensor of weights must be square, (n, n); got shape {tuple(tensor.shape)}.")
    if tensor.is_complex():
        raise GeoattnError(f"a sparse tensor of weights must hold real numbers; got {tensor.dtype}.")
    tensor = tensor.cpu()
    if str(tensor.layout) != "torch.sparse_coo":
        tensor = tensor.to_sparse_coo()
    tensor = tensor.coalesce()
    index, value = tensor.indices().numpy(), tensor.values().double().numpy()
    return SparseWeights(_rows_of(index[0], index[1], value, int(tensor.shape[0])), None, _name(tensor.dtype))


def data_weights(data: Any) -> Any:
    """The weights of a PyTorch Geometric ``Data``: edge_weight, or edge_attr if it is one number per edge."""
    weight, attribute = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if weight is not None or attribute is None:
        return weight
    if attribute.ndim == 2 and attribute.shape[1] == 1:
        return attribute[:, 0]
    if attribute.ndim != 1:
        raise GeoattnError(
            f"edge_attr of shape {tuple(attribute.shape)} is no weight per edge: give (edge_index, edge_weight,"
            " num_nodes), with edge_weight=None for weights of 1."
        )
    return attribute


def _from_edges(edge_index: Any, edge_weight: Any, num_nodes: Any) -> SparseWeights:
    index = _as_numpy(edge_index)
    if index.ndim != 2 or index.shape[0] != 2 or index.dtype.kind not in "iu":
        raise GeoattnError(f"edge_index must be whole numbers of shape (2, e); got {index.dtype} of {index.shape}.")
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, (int, np.integer)) or num_nodes < 0:
        raise GeoattnError(f"num_nodes must be a whole number; got {num_nodes!r}.")
    if index.size and not (0 <= index.min() and index.max() < num_nodes):
        raise GeoattnError(f"edge_index must lie in 0 .. {num_nodes - 1}; it has {index.min()} to {index.max()}.")
    value = np.ones(index.shape[1]) if edge_weight is None else _as_numpy(edge_weight)
    if value.shape != (index.shape[1],) or value.dtype.kind not in "fiu":
        raise GeoattnError(f"edge_weight must be {index.shape[1]} numbers; got {value.dtype} of {value.shape}.")
    dtype = "float64" if edge_weight is None else _name(edge_weight.dtype)
    rows = _rows_of(index[0], index[1], value.astype(np.float64), int(num_nodes))
    return SparseWeights(rows, None, dtype)


def _rows_of(row: np.ndarray, column: np.ndarray, value: np.ndarray, n: int) -> SparseRows:
    if n >= 2**31:
        raise GeoattnError(f"a graph may have at most 2^31 - 1 nodes; got {n}.")
    order = np.lexsort((column, row))
    row, column = row[order], column[order]
    twice = np.flatnonzero((np.diff(row) == 0) & (np.diff(column) == 0))
    if len(twice):
        k = twice[0]
        raise GeoattnError(
            f"edge ({row[k]}, {column[k]}) is there more than once ({len(twice)} repetitions in all): merge parallel"
            " edges first, e.g. with torch_geometric.utils.coalesce."
        )
    start = np.searchsorted(row, np.arange(n + 1)).astype(np.int64)
    return SparseRows(start, column.astype(np.int32), np.ascontiguousarray(value[order]))


def _as_numpy(x: Any) -> np.ndarray:
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        return (x.double() if x.is_floating_point() else x).numpy()
    return np.asarray(x)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _check(weights: SparseWeights) -> None:
    value = weights.rows.value
    if weights.n < 2:
        raise GeoattnError(f"a graph must have at least two nodes; got {weights.n}.")
    if value.min(initial=0.0) >= 0 and value.max(initial=0.0) < np.inf:  # neither holds with a NaN
        return
    bad = int(np.flatnonzero(~((value >= 0) & (value < np.inf)))[0])
    i, j = int(weights.rows.row[bad]), int(weights.rows.column[bad])
    if weights.names is not None:
        i, j = weights.names[i], weights.names[j]
    what = "negative" if value[bad] < 0 else "infinite or NaN"
    raise GeoattnError(f"weights must be finite and not negative; edge ({i!r}, {j!r}) has {value[bad]:g} ({what}).")
