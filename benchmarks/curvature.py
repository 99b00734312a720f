"""Exact curvature against GraphRicciCurvature and POT: one run, one machine, the same threads for all."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import geoattn as ga
from benchmarks.attention import softmax_attention
from geoattn.graph.build import build_graphs
from geoattn.graph.shortest_paths import default_threads, shortest_paths

ROOT = Path(__file__).parent.parent
GRC_PYTHON = ROOT / ".venv-grc-0.6.1" / "bin" / "python"
# (tokens, graphs, logit scale, width of queries and keys, repeats of the peer)
CASES = [
    (17, 64, 1.0, 64, 2),
    (17, 64, 2.0, 64, 1),
    (65, 1, 1.0, 64, 8),
    (65, 1, 2.0, 64, 8),
    (65, 1, 2.0, 16, 8),
    (65, 1, 4.0, 64, 8),
    (197, 1, 1.0, 64, 2),
    (197, 1, 2.0, 64, 2),
    (197, 1, 2.0, 16, 2),
    (197, 1, 4.0, 64, 2),
]


def best_seconds(work: Callable[[], object], repeats: int, at_least: float = 0.0) -> float:
    """The best of several runs, and of as many as ``at_least`` seconds hold: the machine may be shared."""
    best, begin = float("inf"), time.perf_counter()
    while repeats > 0 or time.perf_counter() - begin < at_least:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        repeats -= 1
    return best


def against_grc(threads: int) -> list[dict]:
    """All edges, convention grc-0.6, method OTD, as many processes as threads."""
    rows = []
    for n, graphs, scale, width, repeats in CASES:
        found = seconds_of_both(softmax_attention(graphs, n, scale, width=width), threads, repeats)
        rows.append(_row("GraphRicciCurvature 0.6.1 OTD", "grc-0.6", n, graphs, scale, width, *found))
    return rows


def seconds_of_both(attention: np.ndarray, threads: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of geoattn and of GraphRicciCurvature for all edges of the maps, and their largest difference."""

    def ours() -> float:  # as long as a run of the peer: ten milliseconds may lie in a slow moment
        return best_seconds(lambda: ga.ollivier_ricci(attention, "grc-0.6", threads=threads), 5, at_least=1.0)

    before = ours()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graphs.npz"
        np.savez(path, weights=(attention + attention.swapaxes(-1, -2)) / 2)
        command = [GRC_PYTHON, ROOT / "benchmarks" / "peers" / "grc_seconds.py", path, str(threads), str(repeats)]
        peer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    kappa = ga.ollivier_ricci(attention[0], "grc-0.6").kappa
    apart = max(abs(kappa[i, j] - value) for i, j, value in peer["kappa"])
    return min(before, ours()), peer["seconds"], apart


_shared: dict[str, np.ndarray] = {}


def _pot_edge(pair: tuple[int, int, int]) -> float:
    import ot

    g, i, j = pair
    return ot.emd2(_shared["measures"][g, i], _shared["measures"][g, j], _shared["distances"][g])


def against_pot(threads: int) -> list[dict]:
    """All edges, convention markov: `ot.emd2` over a process pool that is already warm, distances given."""
    rows = []
    for n, graphs, scale, width, repeats in CASES:
        if scale != 1.0:
            continue
        attention = softmax_attention(graphs, n, scale, width=width)
        built = build_graphs(attention, ga.Convention.of("markov"))
        _shared["measures"] = built.measures
        _shared["distances"] = np.stack([shortest_paths(lengths) for lengths in built.lengths])
        pairs = [(g, i, j) for g in range(graphs) for i in range(n) for j in range(i + 1, n)]
        ours = best_seconds(lambda a=attention: ga.ollivier_ricci(a, "markov", threads=threads), 5)
        with multiprocessing.get_context("fork").Pool(threads) as pool:
            pool.map(_pot_edge, pairs[:64])
            chunk = max(1, len(pairs) // (threads * 16))
            peer = best_seconds(lambda p=pairs, c=chunk: pool.map(_pot_edge, p, chunksize=c), repeats)
            costs = np.array(pool.map(_pot_edge, pairs[:100]))
        ours = min(ours, best_seconds(lambda a=attention: ga.ollivier_ricci(a, "markov", threads=threads), 5))
        w1 = ga.ollivier_ricci(attention[0], "markov").w1[tuple(np.array(pairs[:100])[:, 1:].T)]
        apart = float(np.abs(w1 - costs).max())
        rows.append(_row("POT emd2, process pool", "markov", n, graphs, scale, width, ours, peer, apart))
    return rows


def _row(
    peer: str, convention: str, n: int, graphs: int, scale: float, width: int, ours: float, theirs: float, apart: float
) -> dict:
    row = {
        "peer": peer, "convention": convention, "n": n, "graphs": graphs, "logit_scale": scale, "width": width,
        "geoattn_seconds": ours, "peer_seconds": theirs, "ratio": theirs / ours, "largest_difference": apart,
    }  # fmt: skip
    what = f"{peer:30} {convention:8} n={n:<4} scale={scale} width={width}"
    print(f"{what}: {theirs:9.4f} s / {ours:9.5f} s = {theirs / ours:6.1f}x", flush=True)
    return row


def growth(threads: int) -> list[dict]:
    """How the cost of all edges grows with n, on one thread and on all."""
    rows = []
    for n in (17, 33, 65, 129, 197, 257, 384, 512):
        attention = softmax_attention(1, n)[0]
        edges = "all" if n <= 257 else 4000  # a sample of the large ones, scaled up
        share = 1.0 if edges == "all" else edges / (n * (n - 1) / 2)
        row: dict = {"n": n, "edges": n * (n - 1) // 2, "sampled": edges != "all"}
        for convention in ("markov", "grc-0.6"):
            for count in sorted({1, threads}):
                seconds = best_seconds(
                    lambda a=attention, c=convention, e=edges, t=count: ga.ollivier_ricci(a, c, edges=e, threads=t),
                    3 if n < 150 else 1,
                )
                row[f"{convention} seconds, threads={count}"] = seconds / share
        print(row, flush=True)
        rows.append(row)
    return rows


def gradient(threads: int) -> list[dict]:
    """Forward plus backward of the loss against the forward alone.

    One thread for torch: a second one, idle but spinning, would share a core with ours, now here, now there.
    """
    torch.set_num_threads(1)
    rows = []
    for n, graphs in ((17, 64), (65, 2), (197, 1)):
        logits = torch.from_numpy(np.log(softmax_attention(graphs, n))).requires_grad_()

        def forward(x: torch.Tensor = logits) -> torch.Tensor:
            return ga.curvature_loss(x.detach().softmax(-1), threads=threads)

        def both(x: torch.Tensor = logits) -> None:
            x.grad = None
            ga.curvature_loss(x.softmax(-1), threads=threads).backward()

        repeats = 40 if n < 100 else 3  # short calls lie in slow moments more often than not
        plain, full = float("inf"), float("inf")
        for _ in range(repeats):  # interleaved
            plain, full = min(plain, best_seconds(forward, 1)), min(full, best_seconds(both, 1))
        rows.append({"n": n, "graphs": graphs, "forward": plain, "forward_and_backward": full, "ratio": full / plain})
        print(rows[-1], flush=True)
    torch.set_num_threads(threads)
    return rows


def run() -> dict:
    """Everything; the warnings about degenerate distributions are expected here."""
    warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)
    threads = default_threads()
    return {
        "against": against_grc(threads) + against_pot(threads),
        "gradient": gradient(threads),
        "growth": growth(threads),
    }
