"""One map of 4,096 tokens, 10,000 sampled edges: time, memory and certificate.

python -m benchmarks long_map      # some minutes
"""

from __future__ import annotations

import resource
import time

import geoattn as ga
from benchmarks.attention import softmax_attention
from geoattn.graph.shortest_paths import default_threads

TOKENS, EDGES = 4096, 10_000


def run() -> dict:
    """The figures; memory is what the process needed above the map itself."""
    attention = softmax_attention(1, TOKENS)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, start, last = time.process_time(), time.perf_counter(), [0.0]

    def progress(done: int, total: int) -> None:
        if time.perf_counter() - last[0] > 60:
            last[0] = time.perf_counter()
            print(f"{done} of {total} edges after {last[0] - start:.0f} s", flush=True)

    result = ga.ollivier_ricci(attention, edges=EDGES, progress=progress)
    summary = result.summary()
    x, low, high = result.band()
    middle = len(x) // 2
    return {
        "tokens": TOKENS,
        "edges": len(result.values()),
        "threads": default_threads(),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib_above_the_input": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "max_gap": result.max_gap,
        "mean": summary["mean"],
        "distance_to_one": summary["distance_to_one"],
        "half_width_of_the_band": float(high[middle] - low[middle]) / 2,
        "status": summary["status"],
    }
