"""Sparse graphs: all edges under grc-0.6 against GraphRicciCurvature 0.6.1, and graphs that are too large for it.

python -m benchmarks.sparse [peer|large]: writes results/sparse.json. The peer runs with 2 processes, geoattn with 2
threads; reading the networkx graph counts for both.
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


def large_graphs() -> dict[str, nx.Graph]:
    """A million edges, hubs, a star."""
    return {
        "WS(125000, 16, 0.1)": nx.watts_strogatz_graph(125_000, 16, 0.1, seed=1),
        "BA(200000, 5)": nx.barabasi_albert_graph(200_000, 5, seed=1),
        "star of 100000 leaves": nx.star_graph(100_000),
    }


def ours(graph: nx.Graph) -> tuple[float, dict]:
    """Seconds of one call, and kappa by edge; a directed graph by the peer's definition, which compat has."""
    start = time.perf_counter()
    if graph.is_directed():
        found = OllivierRicci(graph, method="OTD", proc=2).compute_ricci_curvature_edges()
        return time.perf_counter() - start, found
    result = ga.ollivier_ricci(graph, "grc-0.6", threads=2)
    return time.perf_counter() - start, result.to_dict()


def against_peer() -> list[dict]:
    """Medians, peer and geoattn in turn."""
    rows = []
    for name, graph in small_graphs().items():
        edges = [(u, v, d.get("weight", 1.0)) for u, v, d in graph.edges(data=True)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"directed": graph.is_directed(), "n": len(graph), "edges": edges}, file)
            file.flush()
            peer_seconds, own_seconds, off = [], [], 0.0
            for _ in range(REPEATS if len(edges) < 1000 else 1):
                out = subprocess.run(
                    [PEER, HERE / "peers" / "grc_sparse.py", file.name, "2"], capture_output=True, check=True
                )
                peer = json.loads(out.stdout)
                peer_seconds.append(peer["seconds"])
                ours(graph)
                for _ in range(REPEATS):
                    seconds, kappa = ours(graph)
                    own_seconds.append(seconds)
                off = max(abs(kappa.get((u, v), kappa.get((v, u), np.nan)) - k) for u, v, k in peer["kappa"])
        peer_median, own_median = statistics.median(peer_seconds), statistics.median(own_seconds)
        rows.append({"graph": name, "edges": len(edges), "peer": peer_median, "geoattn": own_median,
                     "ratio": peer_median / own_median, "largest_difference": off})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def alone() -> list[dict]:
    """Seconds, and memory beyond the networkx graph."""
    rows = []
    for name, graph in large_graphs().items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        start = time.perf_counter()
        result = ga.ollivier_ricci(graph, "grc-0.6", threads=2)
        seconds = time.perf_counter() - start
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before
        rows.append({"graph": name, "edges": result.edges, "geoattn": seconds, "GiB_beyond_peak": round(more, 3),
                     "max_gap": result.max_gap, "solved": int(np.isfinite(result.kappa).sum())})  # fmt: skip
        print(rows[-1], flush=True)
        del graph, result
    return rows


def main() -> None:
    """Both parts, or the one that is named."""
    warnings.simplefilter("ignore", ga.GeoattnWarning)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "large" not in sys.argv:
        found["against GraphRicciCurvature 0.6.1"] = against_peer()
    if "peer" not in sys.argv:
        found["large graphs"] = alone()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
