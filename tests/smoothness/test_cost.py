"""Time and memory. Times are CPU seconds in one process, best of several."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.smoothness import against_dense, long, seconds
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.jacobian import Jacobian

PEAK = """
import json, resource, torch
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.jacobian import Jacobian
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = torch.randn(1, 8192, 64, generator=torch.Generator().manual_seed(0))
jacobian = Jacobian(AttentionMap.of(torch.eye(64).double() / 32, causal=True), x)
out = jacobian.apply(torch.ones(1, 1, 8192 * 64))
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, float(out.norm())]))
"""


def test_memory_of_a_product_is_linear_in_n():
    """At n = 8,192 the weights alone would be 262,144 kilobytes."""
    done = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    kilobytes, norm = json.loads(done.stdout)
    assert norm > 0
    assert kilobytes < 130_000


def test_a_step_costs_a_few_forward_passes():
    """One product and one transposed product: ten matrix products where the forward pass has two."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2048, 64, generator=g)
    jacobian = Jacobian(AttentionMap.of(torch.eye(64).double() / 32, causal=True), x)
    move = torch.randn(1, 1, 2048 * 64, generator=g)

    def forward() -> None:
        scaled_dot_product_attention(x[None] / 32, x[None], x[None], is_causal=True, scale=1.0)

    def step() -> None:
        jacobian.adjoint(jacobian.apply(move))

    one, two = float("inf"), float("inf")
    for _ in range(6):
        one, two = min(one, seconds(forward)), min(two, seconds(step))
    assert two < 25 * one


def test_much_quicker_than_the_dense_jacobian():
    small = against_dense(128, 12)
    assert small["relative_difference"] < 1e-9
    assert small["ratio"] > 10


@pytest.mark.slow
def test_fifty_times_quicker_than_the_dense_jacobian_at_256_by_16():
    found = against_dense(256, 16)
    assert found["relative_difference"] < 1e-9
    assert found["ratio"] >= 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_16384_tokens_in_two_gigabytes_and_200_forward_passes():
    command = [sys.executable, "-m", "benchmarks.smoothness", "gaussian, logits 2"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["status"] == "CONVERGED"
    assert found["relative_residual"] < 1e-3
    assert found["peak_gib"] < 2
    assert found["ratio"] < 200


def test_the_benchmark_runs_small():
    found = long("gaussian, logits 2", n=256, repeats=1)
    assert found["status"] == "CONVERGED"
    assert found["agreement"] < 1e-3
