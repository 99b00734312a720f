"""`FormanRicci` of GraphRicciCurvature 0.6.1: the same arguments, methods and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.compat.verbosity import logger, set_verbose
from geoattn.curvature.sparse.forman import balanced_forman, weighted_forman
from geoattn.graph.sparse_inputs import is_networkx
from geoattn.graph.sparse_rows import SparseRows

__all__ = ["FormanRicci"]

_METHODS = ("1d", "augmented", "balanced")


class FormanRicci:
    """Forman-Ricci curvature of a networkx graph, by GraphRicciCurvature's names.

    Values go to ``G``, an undirected copy of the graph: ``formanCurvature`` of edges and nodes. Edges and nodes have
    the weight ``weight``, 1 if none of them has one.

    Examples
    --------
    >>> import networkx as nx
    >>> from geoattn.compat import FormanRicci
    >>> frc = FormanRicci(nx.path_graph(4))
    >>> frc.compute_ricci_curvature()
    >>> frc.G[1][2]["formanCurvature"]
    0.0
    """

    def __init__(self, G: Any, weight: str = "weight", method: str = "augmented", verbose: str = "ERROR") -> None:
        if not is_networkx(G) or G.is_multigraph():
            raise GeoattnError(f"FormanRicci needs a networkx graph without parallel edges; got {type(G).__name__}.")
        if method not in _METHODS:
            raise GeoattnError(f"method must be one of {', '.join(_METHODS)}; got {method!r}.")
        self.G = G.copy()
        self.weight = weight
        self.method = method
        if not any(weight in data for _, _, data in self.G.edges(data=True)):
            for _, _, data in self.G.edges(data=True):
                data[weight] = 1.0
        if not any(weight in data for _, data in self.G.nodes(data=True)):
            for _, data in self.G.nodes(data=True):
                data[weight] = 1.0
        if self.G.is_directed():
            logger.info("Forman-Ricci curvature is for undirected graphs: the graph is converted.")
            self.G = self.G.to_undirected()
        set_verbose(verbose)

    def compute_ricci_curvature(self) -> None:
        """Put ``formanCurvature`` on edges, and its mean over them on nodes, of ``G``."""
        graph, weight = self.G, self.weight
        if any(u == v for u, v in graph.edges()):
            raise GeoattnError("FormanRicci: the graph has self loops; remove them first.")
        names = list(graph.nodes)
        number = {name: k for k, name in enumerate(names)}
        edges = [(u, v, data) for u, v, data in graph.edges(data=True)]
        ends = np.array([(number[u], number[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2)
        length = np.array([data[weight] for _, _, data in edges], dtype=np.float64)
        row, column = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
        order = np.lexsort((column, row))
        start = np.searchsorted(row[order], np.arange(len(names) + 1)).astype(np.int64)
        rows = SparseRows(start, column[order].astype(np.int32), np.concatenate([length, length])[order])
        if self.method == "balanced":
            kappa = balanced_forman(rows, ends)
        else:
            nodes = np.array([graph.nodes[name][weight] for name in names], dtype=np.float64)
            entry = rows.find(ends[:, 0], ends[:, 1])[0]
            kappa = weighted_forman(rows, ends, entry, triangles=self.method == "augmented", nodes=nodes)
        for (_, _, data), value in zip(edges, kappa.tolist(), strict=True):
            data["formanCurvature"] = value
        for node, degree in graph.degree():
            total = float(sum(data["formanCurvature"] for data in graph[node].values()))
            graph.nodes[node]["formanCurvature"] = total / degree if degree else 0
