"""Reference curvatures from the real GraphRicciCurvature (GRC), versions 0.5.3.2 and 0.6.1.

Why: the presets `grc-0.5` and `grc-0.6` promise what these two versions compute, so the tests compare with
numbers that the library itself wrote. The graphs are drawn once and stored, so every reader sees the same
float64 weights whatever its NumPy or libm.

    python make_grc_references.py        # with the python of each environment in benchmarks/peers/

writes beside this file
    grc-graphs.npz       name -> symmetric weight matrix; 0 = no edge, the diagonal = self loops (GRC drops
                         them). Written only if it is missing.
    grc-<version>.json   settings, package versions, and per graph
        edges            [i, j] with i < j, row by row: the non-zero entries above the diagonal
        kappa            alpha -> curvature of each edge
        flow             iterations -> edges, weight and kappa after compute_ricci_flow: alpha 0.5, step 1,
                         delta 1e-4, largest component only
        community        iterations, then ricci_community ("best") and
                         ricci_community_all_possible_clusterings ("all") after that flow
"""

import json
import math
import platform
import random
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
from GraphRicciCurvature.OllivierRicci import OllivierRicci

HERE = Path(__file__).parent
GRAPHS = HERE / "grc-graphs.npz"
PACKAGES = ["GraphRicciCurvature", "POT", "networkit", "networkx", "numpy", "scipy", "python-louvain"]
SETTINGS = {"method": "OTD", "base": math.e, "exp_power": 2, "proc": 1}

MORE_ALPHAS = [
    "attention-n8-s1",
    "attention-n17-s4",
    "sparse-n12",
    "ties-n12",
    "tiny-some",
    "large-n8",
    "karate",
]
FLOWS = ["karate", "attention-n8-s1", "disconnected-n14", "path-n6"]  # the path stops at delta before 20
FLOW_ITERATIONS = [1, 5, 20]
COMMUNITY = {"karate": 20}


# ---- the graphs


def attention(n, scale):
    """Softmax of normal logits with the given standard deviation, symmetrised by the mean."""
    draw = random.Random(f"attention {n} {scale}")
    logits = np.array([[scale * draw.gauss(0, 1) for _ in range(n)] for _ in range(n)])
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=1, keepdims=True)
    return (rows + rows.T) / 2


def from_edges(n, edges):
    weights = np.zeros((n, n))
    for i, j, w in edges:
        weights[i, j] = weights[j, i] = w
    return weights


def sparse(n, share, weight, parts=1, isolated=0):
    """A random graph of `parts` connected components, and isolated nodes.

    Each component is a random tree and further edges with probability `share`; `weight` takes the random
    generator and returns the weight of one edge.
    """
    draw = random.Random(f"sparse {n} {share} {parts} {isolated}")
    part = [i % parts for i in range(n - isolated)]
    edges = []
    for j in range(parts, n - isolated):
        before = [i for i in range(j) if part[i] == part[j]]
        parent = draw.choice(before)
        edges += [(i, j, weight(draw)) for i in before if i == parent or draw.random() < share]
    return from_edges(n, edges)


def between(low, high):
    return lambda draw: draw.uniform(low, high)


def power_of_ten(low, high):
    return lambda draw: 10 ** draw.uniform(low, high)


def unweighted(graph):
    return nx.to_numpy_array(graph, weight=None)


def build_graphs():
    graphs = {}
    for n in (2, 3, 5, 8, 17, 33):
        for scale in (0.3, 1, 4):
            graphs[f"attention-n{n}-s{scale:g}"] = attention(n, scale)
    graphs["attention-n65-s4"] = attention(65, 4)

    graphs["sparse-n12"] = sparse(12, 0.3, between(0.05, 1))
    graphs["sparse-n20"] = sparse(20, 0.2, between(0.01, 1))
    graphs["sparse-n30"] = sparse(30, 0.1, power_of_ten(-3, 0))
    graphs["tree-n15"] = sparse(15, 0.0, between(0.1, 1))
    graphs["disconnected-n14"] = sparse(14, 0.4, between(0.05, 1), parts=2, isolated=1)
    graphs["disconnected-n20"] = sparse(20, 0.5, between(0.05, 1), parts=4, isolated=2)

    # Ties: equal weights, two levels, and paths as long as the edge that they go around.
    graphs["ties-uniform-n9"] = np.full((9, 9), 1 / 9)
    block = np.arange(10) // 5
    graphs["ties-blocks-n10"] = np.where(block[:, None] == block, 0.125, 0.0625)
    graphs["ties-n12"] = sparse(12, 0.5, lambda draw: draw.choice([0.25, 0.5, 0.75, 1.0]))
    graphs["ties-ladder-n8"] = from_edges(8, [(i, j, (j - i) / 8) for i in range(8) for j in range(i + 1, 8)])

    # GRC returns 0 below 1e-7: of the edge (0.5.3.2), of the distance (0.6.1).
    graphs["tiny-all"] = sparse(6, 0.6, power_of_ten(-12, -7.1))
    graphs["tiny-some"] = sparse(10, 0.6, power_of_ten(-10, -1))
    graphs["tiny-threshold"] = from_edges(
        6,
        [
            (0, 1, 0.99e-7),
            (1, 2, 1e-7),
            (2, 3, 1.01e-7),
            (3, 4, 1e-8),
            (4, 5, 0.5),
            (0, 5, 0.5),
            (2, 4, 1.05e-7),
        ],
    )
    graphs["tiny-shortcut"] = from_edges(
        5, [(0, 1, 1e-8), (1, 2, 2e-8), (0, 2, 0.25), (2, 3, 0.5), (3, 4, 3e-8), (2, 4, 0.125)]
    )
    graphs["tiny-above"] = sparse(9, 0.7, power_of_ten(-6.9, -6))

    # Far neighbours: from about w = 4 on the exp(-w^2) of all of them sum to less than 1e-7, and GRC spreads
    # the mass evenly.
    graphs["large-n8"] = sparse(8, 1.0, between(1, 3))
    graphs["large-mixed-n10"] = sparse(10, 0.2, between(1, 8))
    graphs["large-even-n9"] = sparse(9, 0.5, between(4.3, 40))
    graphs["large-thousands-n7"] = sparse(7, 0.8, between(1e3, 5e3))

    graphs["complete-n6"] = unweighted(nx.complete_graph(6))
    graphs["cycle-n6"] = unweighted(nx.cycle_graph(6))
    graphs["cycle-n5"] = unweighted(nx.cycle_graph(5))
    graphs["star-n7"] = unweighted(nx.star_graph(6))
    graphs["path-n6"] = unweighted(nx.path_graph(6))
    graphs["hypercube-n16"] = unweighted(nx.hypercube_graph(4))
    graphs["karate"] = unweighted(nx.karate_club_graph())
    graphs["star-weighted-n8"] = from_edges(8, [(0, j, 0.15 * j) for j in range(1, 8)])
    return graphs


# ---- the values


def run(weights, alpha=0.5):
    """GRC on one weight matrix."""
    return OllivierRicci(nx.from_numpy_array(weights), alpha=alpha, **SETTINGS)


def sorted_edges(graph):
    return sorted([min(u, v), max(u, v)] for u, v in graph.edges)


def attribute(graph, edges, name):
    return [float(graph[u][v][name]) for u, v in edges]


def curvatures(weights, alphas):
    kappa = {}
    for alpha in alphas:
        graph = run(weights, alpha).compute_ricci_curvature()
        edges = sorted_edges(graph)
        kappa[str(alpha)] = attribute(graph, edges, "ricciCurvature")
    assert edges == np.argwhere(np.triu(weights, 1) > 0).tolist()
    return {"edges": edges, "kappa": kappa}


def flow(weights, iterations):
    graph = run(weights).compute_ricci_flow(iterations=iterations)
    edges = sorted_edges(graph)
    return {
        "edges": edges,
        "weight": attribute(graph, edges, "weight"),
        "kappa": attribute(graph, edges, "ricciCurvature"),
    }


def community(weights, iterations):
    grc = run(weights)
    grc.compute_ricci_flow(iterations=iterations)

    def plain(clustering):
        cutoff, labels = clustering
        return {"cutoff": float(cutoff), "labels": [labels[node] for node in sorted(labels)]}

    return {
        "iterations": iterations,
        "best": plain(grc.ricci_community()),
        "all": [plain(clustering) for clustering in grc.ricci_community_all_possible_clusterings()],
    }


def main():
    if not GRAPHS.exists():
        np.savez_compressed(GRAPHS, **build_graphs())
    stored = np.load(GRAPHS)

    graphs = {}
    for name in stored.files:
        weights = stored[name]
        assert (weights == weights.T).all(), name
        graphs[name] = curvatures(weights, [0.5, 0.0, 0.9] if name in MORE_ALPHAS else [0.5])
        if name in FLOWS:
            graphs[name]["flow"] = {str(i): flow(weights, i) for i in FLOW_ITERATIONS}
        if name in COMMUNITY:
            graphs[name]["community"] = community(weights, COMMUNITY[name])

    head = {
        "settings": SETTINGS,
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
    }

    def compact(values):
        return json.dumps(values, separators=(",", ":"), allow_nan=False)

    lines = [f'"{name}": {compact(values)}' for name, values in graphs.items()]
    text = json.dumps(head)[:-1] + ', "graphs": {\n' + ",\n".join(lines) + "\n}}\n"  # one line per graph
    (HERE / f"grc-{version('GraphRicciCurvature')}.json").write_text(text)


if __name__ == "__main__":
    main()
