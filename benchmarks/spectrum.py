"""All eigenvalues of a 12 x 12-head, 197-token, 16-image profile, against numpy.linalg.eigvals in a loop."""

from __future__ import annotations

import time

import numpy as np

import geoattn as ga
from benchmarks.attention import softmax_attention
from geoattn.graph.shortest_paths import default_threads

LAYERS, HEADS, IMAGES, TOKENS = 12, 12, 16, 197
_BLOCK = 64  # maps; ours and the loop take turns block by block


def run() -> dict:
    """Seconds for everything; ours also computes stationary distribution, reversibility and Dobrushin coefficient."""
    maps = LAYERS * HEADS * IMAGES
    ours = theirs = 0.0
    apart = 0.0
    for seed in range(0, maps, _BLOCK):
        attention = softmax_attention(_BLOCK, TOKENS, 2.0, seed=seed)
        start = time.perf_counter()
        found = ga.spectrum(attention).eigenvalues
        ours += time.perf_counter() - start
        start = time.perf_counter()
        expected = [np.linalg.eigvals(a) for a in attention]
        theirs += time.perf_counter() - start
        largest = [np.sort(np.abs(e))[-2] for e in expected]
        apart = max(apart, float(np.abs(np.abs(found[:, 1]) - largest).max()))
    print(f"spectrum: {maps} maps of {TOKENS} tokens, {ours:.1f} s; numpy in a loop {theirs:.1f} s")
    return {
        "maps": maps, "tokens": TOKENS, "threads": default_threads(), "geoattn_seconds": ours, "numpy_seconds": theirs,
        "ratio": theirs / ours, "largest_difference": apart,
    }  # fmt: skip
