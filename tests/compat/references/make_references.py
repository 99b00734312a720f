"""Names and numbers of GraphRicciCurvature 0.6.1 on five graphs: run in its own environment.

python make_references.py [FILE]: writes FILE, by default grc-0.6.1.json beside this script.
"""

import inspect
import json
import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
from GraphRicciCurvature.FormanRicci import FormanRicci
from GraphRicciCurvature.OllivierRicci import OllivierRicci

CURVATURES = [
    {}, {"alpha": 0.0}, {"alpha": 1.0}, {"alpha": 0.3, "base": 2.0, "exp_power": 1}, {"exp_power": 0},
    {"method": "ATD"}, {"method": "OTD", "nbr_topk": 3}, {"shortest_path": "pairwise"}, {"weight": "length"},
]  # fmt: skip


def graphs() -> dict[str, nx.Graph]:
    rng = np.random.default_rng(0)
    grid = nx.grid_2d_graph(5, 5)
    for _, _, data in grid.edges(data=True):
        data["weight"] = float(rng.uniform(0.1, 2))
    named = nx.relabel_nodes(nx.barabasi_albert_graph(40, 3, seed=1), str)
    named.add_edge("0", "0")
    directed = nx.gnp_random_graph(25, 0.2, seed=3, directed=True)
    parts = nx.disjoint_union(nx.barbell_graph(5, 1), nx.path_graph(3))
    parts.add_node("alone")
    return {"karate": nx.karate_club_graph(), "grid": grid, "named": named, "directed": directed, "parts": parts}


def edges_of(graph, name):
    return [[str(u), str(v), data[name]] for u, v, data in graph.edges(data=True) if name in data]


def nodes_of(graph, name):
    return {str(v): data[name] for v, data in graph.nodes(data=True) if name in data}


def names_of(kind) -> dict:
    """Public methods with their arguments and defaults, and the attributes of a new object."""
    methods = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name == "__init__" or not name.startswith("_"):
            arguments = inspect.signature(method).parameters.values()
            methods[name] = {a.name: default_of(a) for a in arguments if a.name != "self"}
    return {"methods": methods, "attributes": sorted(v for v in vars(kind(nx.path_graph(3))) if not v.startswith("_"))}


def default_of(argument):
    if argument.default is argument.empty or argument.name == "proc":  # proc: the number of processors
        return "required" if argument.default is argument.empty else "processors"
    return ["function", argument.default[1]] if argument.name == "surgery" else argument.default


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    found = {}
    for name, graph in graphs().items():
        one = found[name] = {"curvature": [], "forman": {}, "input": nx.node_link_data(graph, edges="links")}
        for settings in CURVATURES:
            orc = OllivierRicci(graph, proc=1, **settings)
            out = orc.compute_ricci_curvature()
            one["curvature"].append([settings, edges_of(out, "ricciCurvature"), nodes_of(out, "ricciCurvature")])
        first = list(graph.edges())[3:6]
        pairs = OllivierRicci(graph, proc=1).compute_ricci_curvature_edges(first)
        one["some"] = [[str(u), str(v), k] for (u, v), k in pairs.items()]
        for method in ("1d", "augmented", "balanced"):
            try:
                frc = FormanRicci(graph, method=method)
                frc.compute_ricci_curvature()
                one["forman"][method] = [edges_of(frc.G, "formanCurvature"), nodes_of(frc.G, "formanCurvature")]
            except Exception as error:
                one["forman"][method] = type(error).__name__
        if not graph.is_directed():
            orc = OllivierRicci(graph, proc=1, method="OTD")
            flow = orc.compute_ricci_flow(iterations=4, step=0.5)
            one["flow"] = [edges_of(flow, key) for key in ("weight", "ricciCurvature", "original_RC")]
            try:
                one["communities"] = [
                    [c, {str(v): k for v, k in m.items()}] for c, m in orc.ricci_community_all_possible_clusterings()
                ]
            except Exception as error:
                one["communities"] = type(error).__name__
        one.pop("input")
    packages = {p: version(p) for p in ("GraphRicciCurvature", "POT", "networkit", "networkx", "numpy")}
    names = {kind.__name__: names_of(kind) for kind in (OllivierRicci, FormanRicci)}
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("grc-0.6.1.json")
    target.write_text(json.dumps({"packages": packages, "names": names, "graphs": found}))


if __name__ == "__main__":
    main()
