"""Peak memory above the input, each case in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MIB = 2**20

# Attention is made map by map, so that making it takes no more memory than having it.
SCRIPT = """
import json, os, sys, time
import numpy as np
import geoattn as ga

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def high_water():
    # not ru_maxrss: that one survives exec, so it would show the peak of the tests' own process
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

def softmax(shape):
    random, maps = np.random.default_rng(0), np.empty(shape, np.float32)
    for one in maps.reshape(-1, *shape[-2:]):
        random.standard_normal(out=one, dtype=np.float32)
        one *= 2
        np.exp(one, out=one)
        one /= one.sum(axis=-1, keepdims=True)
    return maps

shape, edges = json.loads(sys.argv[1])
ga.ollivier_ricci(softmax((5, 5)))  # what is loaded once is not the cost of the batch
attention = softmax(shape)
before, started = resident(), time.perf_counter()
result = ga.ollivier_ricci(attention, edges=edges)
peak = high_water()
print(json.dumps({
    "above": peak - before, "seconds": time.perf_counter() - started, "values": len(result.values()),
    "gap": result.max_gap,
}))
"""


def measure(shape: list[int], edges: str | int, timeout: float) -> dict[str, float]:
    command = [sys.executable, "-c", SCRIPT, json.dumps([shape, edges])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_batch_is_solved_in_pieces():
    """Two pieces of a batch already show its peak, however many edges; the slow tests do it in full."""
    found = measure([16, 12, 197, 197], 1, 300)
    assert found["values"] == 16 * 12
    assert found["above"] < 512 * MIB


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_batch_of_64_images_with_256_edges_a_map():
    found = measure([64, 12, 197, 197], 256, 1800)
    assert found["values"] == 64 * 12 * 256
    assert found["above"] < 1024 * MIB


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_image_with_all_edges():
    found = measure([12, 197, 197], "all", 1800)
    assert found["values"] == 12 * 197 * 196 // 2
    assert found["above"] < 1024 * MIB


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_a_map_of_4096_tokens_with_10000_edges():
    found = measure([4096, 4096], 10_000, 6 * 3600)
    assert found["values"] == 10_000
    assert found["gap"] < 1e-9
