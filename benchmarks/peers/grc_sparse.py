"""Seconds and curvatures of GraphRicciCurvature for one graph: run in its own environment.

python grc_sparse.py GRAPH.json PROCESSES -> JSON {"seconds": ..., "kappa": [[u, v, kappa], ...]}
"""

import json
import sys
import time

import networkx as nx
from GraphRicciCurvature.OllivierRicci import OllivierRicci


def main() -> None:
    """Time OTD with alpha 0.5, shortest paths as the library's default has them."""
    with open(sys.argv[1]) as file:
        data = json.load(file)
    graph = nx.DiGraph() if data["directed"] else nx.Graph()
    graph.add_nodes_from(range(data["n"]))
    graph.add_weighted_edges_from(map(tuple, data["edges"]))
    start = time.perf_counter()
    orc = OllivierRicci(graph, alpha=0.5, method="OTD", proc=int(sys.argv[2]), verbose="ERROR")
    orc.compute_ricci_curvature()
    seconds = time.perf_counter() - start
    kappa = [[u, v, d["ricciCurvature"]] for u, v, d in orc.G.edges(data=True)]
    print(json.dumps({"seconds": seconds, "kappa": kappa}))


if __name__ == "__main__":
    main()
