"""Seconds that GraphRicciCurvature takes for all edges of each graph in an .npz file: run in its own environment.

python grc_seconds.py GRAPHS.npz PROCESSES REPEATS -> JSON {"seconds": best total, "kappa": of the first graph}
"""

import json
import sys
import time

import networkx as nx
import numpy as np
from GraphRicciCurvature.OllivierRicci import OllivierRicci


def main() -> None:
    """Time OTD with alpha 0.5, as the library's defaults have it but for the method."""
    weights = np.load(sys.argv[1])["weights"]
    processes, repeats = int(sys.argv[2]), int(sys.argv[3])
    graphs = []
    for w in weights:
        graph = nx.Graph()
        graph.add_weighted_edges_from((i, j, float(w[i, j])) for i in range(len(w)) for j in range(i + 1, len(w)))
        graphs.append(graph)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        results = []
        for graph in graphs:
            curvature = OllivierRicci(graph, alpha=0.5, method="OTD", proc=processes, verbose="ERROR")
            curvature.compute_ricci_curvature()
            results.append(curvature)
        best = min(best, time.perf_counter() - start)
    first = [[i, j, data["ricciCurvature"]] for i, j, data in results[0].G.edges(data=True)]
    print(json.dumps({"seconds": best, "kappa": first}))


if __name__ == "__main__":
    main()
