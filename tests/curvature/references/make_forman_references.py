"""Reference Forman curvatures from the real GraphRicciCurvature (GRC) 0.6.1, on graphs of grc-graphs.npz.

    python make_forman_references.py     # with the python of the environment that has GRC 0.6.1

writes forman-<version>.json beside this file: package versions and, per graph, ``edges`` [i, j] with i < j
row by row, and the curvature of each edge by GRC's methods ``1d``, ``augmented`` and ``balanced``, and of
each node by the last one. Self loops are removed first: OllivierRicci drops them, FormanRicci would count
them as neighbours.
"""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
from GraphRicciCurvature.FormanRicci import FormanRicci

HERE = Path(__file__).parent
GRAPHS = [
    "attention-n2-s1", "attention-n8-s0.3", "attention-n8-s4", "attention-n17-s1", "sparse-n12",
    "sparse-n20", "sparse-n30", "tree-n15", "disconnected-n14", "ties-n12", "ties-ladder-n8", "tiny-some",
    "large-mixed-n10", "complete-n6", "cycle-n5", "cycle-n6", "star-n7", "path-n6", "hypercube-n16", "karate",
    "star-weighted-n8",
]  # fmt: skip
METHODS = ["1d", "augmented", "balanced"]


def curvatures(weights):
    np.fill_diagonal(weights, 0)
    edges = np.argwhere(np.triu(weights) > 0).tolist()
    values = {"edges": edges}
    for method in METHODS:
        forman = FormanRicci(nx.from_numpy_array(weights), method=method)
        forman.compute_ricci_curvature()
        values[method] = [float(forman.G[i][j]["formanCurvature"]) for i, j in edges]
        values["nodes"] = [float(forman.G.nodes[v]["formanCurvature"]) for v in range(len(weights))]
    return values


def main():
    stored = np.load(HERE / "grc-graphs.npz")
    packages = {name: version(name) for name in ("GraphRicciCurvature", "networkx", "numpy")}
    head = json.dumps({"python": platform.python_version(), "packages": packages})
    lines = [f'"{name}": {json.dumps(curvatures(stored[name]), separators=(",", ":"))}' for name in GRAPHS]
    text = head[:-1] + ', "graphs": {\n' + ",\n".join(lines) + "\n}}\n"  # one line per graph
    (HERE / f"forman-{packages['GraphRicciCurvature']}.json").write_text(text)


if __name__ == "__main__":
    main()
