"""Sparse graphs: all edges under grc-0.6 against GraphRicciCurvature 0.6.1, and graphs that are too large for it.

python -m benchmarks.sparse [peer|large]: writes results/sparse.json, in about five minutes. The peer runs with 2
processes, geoattn with 2 threads. Reading the networkx graph counts for both, starting Python for neither. Runs of the
two alternate, and medians are kept. A large graph has a process of its own, for its peak of memory.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import networkx as nx
import numpy as np

import geoattn as ga
from geoattn.compat import OllivierRicci

HERE = Path(__file__).parent
PEER = HERE.parent / ".venv-grc-0.6.1" / "bin" / "python"
RESULTS = HERE / "results" / "sparse.json"
ROUNDS = 3  # in each the peer runs once and geoattn REPEATS times
REPEATS = 5


def small_graphs() -> dict[str, nx.Graph]:
    """The graphs that both can do, nodes 0, 1, ..."""
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(100, 100))
    rng = np.random.default_rng(0)
    for _, _, data in grid.edges(data=True):
        data["weight"] = float(rng.uniform(0.1, 2.0))
    return {
        "karate club": nx.Graph(nx.karate_club_graph().edges()),
        "BA(1000, 3)": nx.barabasi_albert_graph(1000, 3, seed=1),
        "WS(3000, 8, 0.1)": nx.watts_strogatz_graph(3000, 8, 0.1, seed=1),
        "BA(5000, 5)": nx.barabasi_albert_graph(5000, 5, seed=1),
        "grid 100 x 100, random weights": grid,
        "directed G(2000, 20000)": nx.gnm_random_graph(2000, 20000, seed=1, directed=True),
    }


LARGE = {
    "WS(125000, 16, 0.1)": lambda: nx.watts_strogatz_graph(125_000, 16, 0.1, seed=1),
    "BA(200000, 5)": lambda: nx.barabasi_albert_graph(200_000, 5, seed=1),
    "star of 100000 leaves": lambda: nx.star_graph(100_000),
}


def by_geoattn(graph: nx.Graph) -> dict:
    """Kappa by edge; directed edges have measures on the successors of both of their nodes."""
    convention = ga.Convention.of("grc-0.6")
    if graph.is_directed():
        convention = convention.but(direction="directed")
    return ga.ollivier_ricci(graph, convention, threads=2).to_dict()


def by_compat(graph: nx.Graph) -> dict:
    """Kappa by edge, by the peer's class and definition: the measure of a source lies on its predecessors."""
    return OllivierRicci(graph, method="OTD", proc=2).compute_ricci_curvature_edges()


def against_peer() -> list[dict]:
    """Medians, peer and geoattn in turn."""
    rows = []
    for name, graph in small_graphs().items():
        edges = [(u, v, d.get("weight", 1.0)) for u, v, d in graph.edges(data=True)]
        seconds: dict[str, list[float]] = {"peer": [], "geoattn": [], "compat": []}
        off = {}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"directed": graph.is_directed(), "n": len(graph), "edges": edges}, file)
            file.flush()
            for _ in range(ROUNDS):
                command = [PEER, HERE / "peers" / "grc_sparse.py", file.name, "2"]
                peer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
                seconds["peer"].append(peer["seconds"])
                for who, solve in (("geoattn", by_geoattn), ("compat", by_compat)):
                    found = solve(graph)  # the first run warms caches, as the peer's imports do
                    for _ in range(REPEATS):
                        start = time.perf_counter()
                        solve(graph)
                        seconds[who].append(time.perf_counter() - start)
                    off[who] = max(abs(found.get((u, v), found.get((v, u), np.nan)) - k) for u, v, k in peer["kappa"])
        median = {who: statistics.median(each) for who, each in seconds.items()}
        rows.append({
            "graph": name, "edges": len(edges), **median, "ratio": median["peer"] / median["geoattn"],
            "ratio_compat": median["peer"] / median["compat"],
            # the peer means something else by a directed edge than a directed convention; compat means the same
            "largest_difference": off["compat" if graph.is_directed() else "geoattn"],
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def alone(name: str) -> dict:
    """Seconds of one large graph, and memory beyond the networkx graph."""
    graph = LARGE[name]()
    ga.ollivier_ricci(nx.path_graph(4), "grc-0.6")  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    result = ga.ollivier_ricci(graph, "grc-0.6", threads=2)
    seconds = time.perf_counter() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before
    return {"graph": name, "edges": result.edges, "geoattn": seconds, "GiB_beyond_graph": round(more, 3),
            "max_gap": result.max_gap, "solved": int(np.isfinite(result.kappa).sum())}  # fmt: skip


def large() -> list[dict]:
    """Each in a process of its own."""
    rows = []
    for name in LARGE:
        command = [sys.executable, "-m", "benchmarks.sparse", "alone", name]
        rows.append(json.loads(subprocess.run(command, capture_output=True, check=True, cwd=HERE.parent).stdout))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Both parts, or the one that is named."""
    warnings.simplefilter("ignore", ga.GeoattnWarning)
    if "alone" in sys.argv:
        print(json.dumps(alone(sys.argv[-1])))
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "large" not in sys.argv:
        found["against GraphRicciCurvature 0.6.1"] = against_peer()
    if "peer" not in sys.argv:
        found["large graphs"] = large()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
