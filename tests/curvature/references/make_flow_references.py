"""More Ricci flows and communities from the real GraphRicciCurvature (GRC): steps, surgery, clusterings.

    python make_flow_references.py       # with the python of each environment of GRC

writes flow-<version>.json beside this file, with the settings, package versions and

    flows         graph of grc-graphs.npz, settings, and edges, weight, kappa after compute_ricci_flow
    communities   edges [i, j, weight] of a graph, iterations, and all clusterings after that flow, or the
                  name of the error that GRC raises

Surgery cuts every edge longer than CUT, after each PERIOD iterations.
"""

import json
import platform
import random
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
from GraphRicciCurvature.OllivierRicci import OllivierRicci

HERE = Path(__file__).parent
SETTINGS = {"method": "OTD", "exp_power": 2, "proc": 1}
CUT, PERIOD = 1.3, 2
FLOWS = [
    ("sparse-n12", {"iterations": 6, "step": 0.5}, False),
    ("sparse-n20", {"iterations": 6, "step": 1}, True),
    ("karate", {"iterations": 5, "step": 0.7}, True),
    ("ties-n12", {"iterations": 4, "step": 1.2}, False),
    ("tiny-some", {"iterations": 4, "step": 1}, False),
    ("large-mixed-n10", {"iterations": 8, "step": 0.25}, False),
    ("disconnected-n20", {"iterations": 5, "step": 1}, True),
    ("hypercube-n16", {"iterations": 5, "step": 1}, False),  # all edges alike: stops at once
]


def surgery(graph, weight):
    graph.remove_edges_from([(u, v) for u, v, w in graph.edges(data=weight) if w > CUT])
    return graph


def flow(weights, options, cut):
    grc = OllivierRicci(nx.from_numpy_array(weights), **SETTINGS)
    graph = grc.compute_ricci_flow(**options, **({"surgery": (surgery, PERIOD)} if cut else {}))
    edges = sorted([min(u, v), max(u, v)] for u, v in graph.edges)
    return {
        "edges": edges,
        "weight": [float(graph[u][v]["weight"]) for u, v in edges],
        "kappa": [float(graph[u][v]["ricciCurvature"]) for u, v in edges],
    }


def blocks(sizes, inside, between, name):
    """A random graph with more edges inside each block than between blocks, and a path that connects it."""
    draw = random.Random(name)
    block = [b for b, size in enumerate(sizes) for _ in range(size)]
    graph = nx.path_graph(len(block))
    for i in range(len(block)):
        for j in range(i + 1, len(block)):
            if draw.random() < (inside if block[i] == block[j] else between):
                graph.add_edge(i, j)
    return graph


def communities(graph, iterations):
    graph = nx.convert_node_labels_to_integers(graph)
    values = {"iterations": iterations, "edges": [[u, v, 1.0] for u, v in graph.edges], "n": len(graph)}
    grc = OllivierRicci(graph, **SETTINGS)
    grc.compute_ricci_flow(iterations=iterations)
    try:
        found = grc.ricci_community_all_possible_clusterings()
    except (AssertionError, IndexError) as error:
        return {**values, "error": type(error).__name__}
    return {**values, "all": [{"cutoff": float(c), "labels": [at[v] for v in sorted(at)]} for c, at in found]}


def main():
    stored = np.load(HERE / "grc-graphs.npz")
    packages = {name: version(name) for name in ("GraphRicciCurvature", "POT", "networkit", "networkx", "numpy")}
    graphs = {
        "florentine": (nx.florentine_families_graph(), 20),
        "five-blocks": (blocks([6] * 5, 0.9, 0.01, "five"), 20),
        "les-miserables": (nx.Graph(nx.les_miserables_graph().edges), 8),
        "two-blocks": (blocks([12, 12], 0.7, 0.05, "two"), 15),
        "cycle": (nx.cycle_graph(8), 5),
    }
    text = json.dumps(
        {
            "settings": SETTINGS,
            "surgery": {"cut": CUT, "period": PERIOD},
            "python": platform.python_version(),
            "packages": packages,
        }
    )
    flows = [
        json.dumps(
            {"graph": name, **options, "surgery": cut, **flow(stored[name], options, cut)},
            separators=(",", ":"),
        )
        for name, options, cut in FLOWS
    ]
    found = [f'"{name}": {json.dumps(communities(*graph), separators=(",", ":"))}' for name, graph in graphs.items()]
    text = text[:-1] + ', "flows": [\n' + ",\n".join(flows) + '\n], "communities": {\n' + ",\n".join(found) + "\n}}\n"
    (HERE / f"flow-{packages['GraphRicciCurvature']}.json").write_text(text)


if __name__ == "__main__":
    main()
