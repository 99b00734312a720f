"""`OllivierRicci` of GraphRicciCurvature 0.6.1: the same arguments, methods and attributes, solved exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.compat.clusterings import all_clusterings
from geoattn.compat.edges import edge_curvatures
from geoattn.compat.verbosity import logger, set_verbose
from geoattn.graph.shortest_paths import default_threads
from geoattn.graph.sparse_inputs import is_networkx

__all__ = ["OllivierRicci"]


def _no_surgery(graph: Any, *_: Any, **__: Any) -> Any:
    return graph


class OllivierRicci:
    r"""Ollivier-Ricci curvature, Ricci flow and communities of a networkx graph, by GraphRicciCurvature's names.

    The weight of an edge is its length. kappa = 1 - W1 / d, with alpha on the node and (1 - alpha) base^(-w^exp_power),
    normalised, on its neighbours. In a directed graph the measure of the source lies on its predecessors, that of the
    target on its successors. Values go to ``G``, a copy of the graph: ``ricciCurvature`` of edges and nodes,
    ``original_RC`` of edges after a flow.

    Parameters
    ----------
    G, weight, alpha, base, exp_power, nbr_topk
        As in GraphRicciCurvature.
    method
        ``OTD`` and ``OTDSinkhornMix`` are exact for all degrees. ``Sinkhorn`` is solved exactly as well, with a
        warning. ``ATD`` is the average transport.
    proc
        Number of threads.
    chunksize, shortest_path, cache_maxsize
        Kept, and without effect: nothing is cut into chunks or cached.

    Examples
    --------
    >>> import networkx as nx
    >>> from geoattn.compat import OllivierRicci
    >>> orc = OllivierRicci(nx.karate_club_graph(), alpha=0.5, weight="hops")  # no edge has it: 1
    >>> round(orc.compute_ricci_curvature()[0][1]["ricciCurvature"], 6)
    0.111111
    """

    def __init__(
        self,
        G: Any,
        weight: Any = "weight",
        alpha: Any = 0.5,
        method: str = "OTDSinkhornMix",
        base: Any = math.e,
        exp_power: Any = 2,
        proc: int | None = None,
        chunksize: int | None = None,
        shortest_path: str = "all_pairs",
        cache_maxsize: int | None = 1000000,
        nbr_topk: int = 3000,
        verbose: str = "ERROR",
    ) -> None:
        if not is_networkx(G) or G.is_multigraph():
            raise GeoattnError(f"OllivierRicci needs a networkx graph without parallel edges; got {type(G).__name__}.")
        if not 0 <= alpha <= 1:
            raise GeoattnError(f"alpha must lie between 0 and 1; got {alpha!r}.")
        self.G = G.copy()
        self.alpha = alpha
        self.weight = weight
        self.method = method
        self.base = base
        self.exp_power = exp_power
        self.proc = default_threads() if proc is None else proc
        self.chunksize = chunksize
        self.cache_maxsize = cache_maxsize
        self.shortest_path = shortest_path
        self.nbr_topk = nbr_topk
        self.set_verbose(verbose)
        self.lengths: dict[Any, Any] = {}
        self.densities: dict[Any, Any] = {}
        _give_weights(self.G, weight)
        loops = [(u, u) for u, neighbours in self.G.adjacency() if u in neighbours]
        if loops:
            logger.info("Self-loop edge detected. Removing %d self-loop edges.", len(loops))
            self.G.remove_edges_from(loops)

    def set_verbose(self, verbose: Any) -> None:
        """Level of the log: INFO, TRACE, DEBUG or ERROR."""
        set_verbose(verbose)

    def compute_ricci_curvature_edges(self, edge_list: Any = None) -> dict[tuple[Any, Any], float]:
        """(u, v) -> curvature of the given pairs of nodes; of all edges without a list, or with an empty one."""
        return edge_curvatures(
            self.G, edge_list, weight=self.weight, alpha=self.alpha, method=self.method, base=self.base,
            exp_power=self.exp_power, proc=self.proc, nbr_topk=self.nbr_topk,
        )  # fmt: skip

    def compute_ricci_curvature(self) -> Any:
        """Put ``ricciCurvature`` on edges, and its sum over neighbours by the degree on nodes; returns ``G``."""
        self._annotate(self.G)
        return self.G

    def compute_ricci_flow(
        self,
        iterations: int = 10,
        step: Any = 1,
        delta: Any = 1e-4,
        surgery: tuple[Callable[..., Any], int] = (_no_surgery, 100),
    ) -> Any:
        """Ricci flow with normalisation on the largest connected component; weights become the flow's lengths.

        Continues a flow whose ``original_RC`` is on the edges. ``surgery`` is (function of G and the name of the
        weight, period).
        """
        import networkx as nx

        graph, weight = self.G, self.weight
        if graph.is_directed():
            raise GeoattnError("compute_ricci_flow is defined for undirected graphs, here and in GraphRicciCurvature.")
        if not nx.is_connected(graph):
            logger.info("Not connected graph detected, compute on the largest connected component instead.")
            graph = nx.Graph(graph.subgraph(max(nx.connected_components(graph), key=len)))
        total = float(graph.number_of_edges())
        if not nx.get_edge_attributes(graph, "original_RC"):
            self._annotate(graph)
            for _, _, data in graph.edges(data=True):
                data["original_RC"] = data["ricciCurvature"]
        for i in range(iterations):
            edges = list(graph.edges(data=True))
            for _, _, data in edges:
                data[weight] -= step * data["ricciCurvature"] * data[weight]
            whole = sum(data[weight] for _, _, data in edges)
            if whole <= 0:
                raise GeoattnError(
                    f"all lengths become 0 in iteration {i}: every curvature is 1. Choose a smaller step."
                )
            for _, _, data in edges:
                data[weight] *= total / whole
            self._annotate(graph)
            kappa = [data["ricciCurvature"] for _, _, data in edges]
            logger.info(" === Ricci flow iteration %d === ", i)
            if max(kappa) - min(kappa) < delta:
                break
            operate, period = surgery
            if i != 0 and i % period == 0:
                graph = operate(graph, weight)
                total = float(graph.number_of_edges())
        self.G = graph
        return self.G

    def ricci_community(self, cutoff_step: float = 0.025, drop_threshold: float = 0.01) -> tuple[float, dict[Any, int]]:
        """(cutoff, node -> community) of the best clustering by the flow."""
        found = self.ricci_community_all_possible_clusterings(cutoff_step, drop_threshold)
        return found[-1]

    def ricci_community_all_possible_clusterings(
        self, cutoff_step: float = 0.025, drop_threshold: float = 0.01
    ) -> list[tuple[float, dict[Any, int]]]:
        """All (cutoff, node -> community), from large cutoffs to small ones; runs the flow first if there was none."""
        if not any("original_RC" in data for _, _, data in self.G.edges(data=True)):
            logger.info("Ricci flow not detected yet, run Ricci flow with default setting first...")
            self.compute_ricci_flow()
        return all_clusterings(self.G, self.weight, cutoff_step, drop_threshold)

    def _annotate(self, graph: Any) -> None:
        whole, self.G = self.G, graph
        try:
            for (u, v), value in self.compute_ricci_curvature_edges().items():
                graph[u][v]["ricciCurvature"] = value
        finally:
            self.G = whole
        for node, degree in graph.degree():
            if degree != 0:
                values = [data["ricciCurvature"] for data in graph[node].values() if "ricciCurvature" in data]
                graph.nodes[node]["ricciCurvature"] = float(np.sum(values)) / degree


def _give_weights(graph: Any, weight: Any) -> None:
    """1 on all edges if none has a weight, as the peer has it."""
    if not any(weight in data for _, neighbours in graph.adjacency() for data in neighbours.values()):
        logger.info('Edge weight not detected in graph, use "weight" as default edge weight.')
        for _, neighbours in graph.adjacency():
            for data in neighbours.values():
                data[weight] = 1.0
