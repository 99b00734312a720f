"""The drift: every engine against the plain matrix formula, laws, extremes of beta."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geoattn.dynamics import attend as attend_module
from geoattn.dynamics.drift import tangent, velocity
from geoattn.dynamics.starts import equiangular_tokens, ring_tokens, uniform_tokens
from tests.dynamics.plain import plain_velocity


def matrices(d: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(d, d, generator=draw).double(), torch.randn(d, d, generator=draw).double()


CASES = [(d, engine) for d in (2, 3, 7) for engine in ("auto", "fused", "blocks")] + [(2, "harmonic"), (3, "harmonic")]


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize(("d", "engine"), CASES)
def test_engines_agree_with_the_formula(d, flow, engine):
    x = uniform_tokens(150, d, seed=d)
    weights = torch.rand(150, generator=torch.Generator().manual_seed(5)).double()
    weights /= weights.sum()
    D, V = matrices(d)
    for settings in (
        {"beta": 0.0}, {"beta": 1.0}, {"beta": 7.0}, {"beta": -2.0}, {"beta": 1.5, "D": D, "V": V},
        {"beta": 2.0, "V": -torch.eye(d).double()}, {"beta": 3.0, "weights": weights},
    ):  # fmt: skip
        ours = velocity(x, flow=flow, engine=engine, **settings).numpy()
        arrays = {k: v.numpy() if torch.is_tensor(v) else v for k, v in settings.items()}
        plain = plain_velocity(x.numpy(), flow=flow, **arrays)
        np.testing.assert_allclose(ours, plain, rtol=0, atol=2e-14 * max(1.0, np.abs(plain).max()))


@pytest.mark.parametrize("engine", ["fused", "blocks"])
@pytest.mark.parametrize("flow", ["SA", "USA"])
def test_causal(flow, engine):
    x = uniform_tokens(100, 4, seed=3)
    ours = velocity(x, beta=2.0, flow=flow, causal=True, engine=engine)
    np.testing.assert_allclose(ours, plain_velocity(x.numpy(), 2.0, flow=flow, causal=True), atol=1e-14)
    assert ours[0].abs().max() < 1e-15  # the first token sees only itself


def test_batches_are_runs_side_by_side():
    x = uniform_tokens(90, 3, runs=(2, 3), seed=4)
    D, V = matrices(3)
    beta = torch.tensor([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]], dtype=torch.float64)
    many = torch.stack([D, 2 * D, -D])
    for engine in ("fused", "blocks", "harmonic"):
        together = velocity(x, beta=beta, D=many, V=V, engine=engine)
        for i in range(2):
            for j in range(3):
                alone = plain_velocity(x[i, j].numpy(), float(beta[i, j]), many[j].numpy(), V.numpy())
                np.testing.assert_allclose(together[i, j], alone, atol=1e-12)


def test_many_blocks_are_one(monkeypatch):
    x = uniform_tokens(90, 5, runs=7, seed=5)
    whole = velocity(x, beta=3.0, causal=True, engine="blocks")
    monkeypatch.setattr(attend_module, "_BLOCK_ENTRIES", 400)  # four rows of one run at a time
    torch.testing.assert_close(velocity(x, beta=3.0, causal=True, engine="blocks"), whole, rtol=0, atol=1e-15)
    monkeypatch.setattr(attend_module, "_BLOCK_ENTRIES", 20_000)  # two runs at a time
    torch.testing.assert_close(velocity(x, beta=3.0, causal=True, engine="blocks"), whole, rtol=0, atol=1e-15)


def test_without_the_private_kernel(monkeypatch):
    x = uniform_tokens(200, 5, seed=6)
    fused = velocity(x, beta=3.0, flow="USA")
    monkeypatch.setattr(attend_module, "_flash", None)
    torch.testing.assert_close(velocity(x, beta=3.0, flow="USA"), fused, rtol=1e-13, atol=1e-13)


@given(st.integers(0, 10_000), st.floats(0, 20), st.sampled_from(["SA", "USA"]))
def test_commutes_with_rotations_and_stays_in_the_span(seed, beta, flow):
    x = uniform_tokens(4, 6, seed=seed)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)).double()).Q
    v = velocity(x, beta=beta, flow=flow)
    size = float(v.abs().max()) + 1e-30
    torch.testing.assert_close(
        velocity(x @ turn, beta=beta, flow=flow, normalise=True), v @ turn, rtol=0, atol=1e-12 * size + 1e-15
    )
    basis = torch.linalg.qr(x.T).Q
    assert float((v - v @ basis @ basis.T).abs().max()) < 1e-13 * max(1.0, size)
    assert float((x * v).sum(-1).abs().max()) < 1e-14 * max(1.0, size)


def test_tangent():
    x, y = uniform_tokens(20, 4, seed=1), uniform_tokens(20, 4, seed=2)
    assert (tangent(x, y) * x).sum(-1).abs().max() < 1e-15


# ---- extremes of beta


def test_far_tokens_move_by_their_true_tiny_velocity():
    """Two tokens, beta = 60: the velocity is exp(-60 (1 - cos)) / ..., far below the rounding of a projection."""
    angle = 2.0
    x = torch.tensor([[1.0, 0.0], [np.cos(angle), np.sin(angle)]], dtype=torch.float64)
    weight = 1 / (1 + np.exp(60 * (1 - np.cos(angle))))
    v = velocity(x, beta=60.0)
    np.testing.assert_allclose(v[0, 1], weight * np.sin(angle), rtol=1e-12)
    assert weight < 1e-36


@pytest.mark.parametrize("engine", ["fused", "blocks"])
def test_sa_at_a_huge_beta_is_the_nearest_token(engine):
    x = ring_tokens(200)
    v = velocity(x, beta=1e8, engine=engine)
    assert v.isfinite().all()
    assert v.abs().max() < 1e-10


def test_usa_overflow_is_an_error_and_a_shift_cures_it():
    x = equiangular_tokens(3, 0.9)
    with pytest.raises(ValueError, match=r"USA overflows.*shift="):
        velocity(x, beta=800.0, flow="USA")
    shifted = velocity(x, beta=800.0, flow="USA", shift=800.0)
    step = np.exp(800 * (0.9 - 1)) / 3
    np.testing.assert_allclose(shifted[0], step * tangent(x, x.sum(0).expand(3, 3))[0], rtol=1e-10)
    x32 = x.float()
    with pytest.raises(ValueError, match="USA overflows"):
        velocity(x32, beta=100.0, flow="USA")
    assert velocity(x32, beta=100.0, flow="USA", shift=100.0).isfinite().all()


def test_harmonics_say_when_they_lose_digits():
    """With D = -I a cluster has the mass exp(-beta), tiny beside exp(beta): auto falls back, harmonic refuses."""
    angles = torch.linspace(0, 0.1, 2000, dtype=torch.float64)
    x = torch.stack([angles.cos(), angles.sin()], dim=-1)
    with pytest.raises(ValueError, match="loses digits"):
        velocity(x, beta=12.0, D=-1.0, engine="harmonic")
    np.testing.assert_allclose(
        velocity(x, beta=12.0, D=-1.0), plain_velocity(x.numpy(), 12.0, -np.eye(2)), rtol=0, atol=1e-14
    )


def test_float32_follows_the_input():
    x = uniform_tokens(300, 8, seed=9).float()
    v = velocity(x, beta=2.0)
    assert v.dtype == torch.float32
    np.testing.assert_allclose(v, plain_velocity(x.double().numpy(), 2.0), atol=2e-6)


# ---- memory, each case in a process of its own

_SCRIPT = """
import json, sys, time
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.starts import uniform_tokens

def high_water():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

found = []
for n, d, flow, engine in json.loads(sys.argv[1]):
    x = uniform_tokens(n, d)
    velocity(x[:100], beta=4.0, flow=flow, engine=engine)
    before, start = high_water(), time.perf_counter()
    v = velocity(x, beta=4.0, flow=flow, engine=engine)
    seconds = time.perf_counter() - start
    assert v.isfinite().all()
    found.append({"peak": high_water(), "above": high_water() - before, "seconds": seconds})
print(json.dumps(found))
"""


def measure(*cases) -> list[dict]:
    command = [sys.executable, "-c", _SCRIPT, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_linear():
    """16,000 tokens: the matrix alone would be 2 GB; 100,000 tokens in d = 3 and 1,000,000 on the circle under 2 GB."""
    found = measure((16_000, 3, "USA", "fused"), (100_000, 3, "SA", "auto"), (1_000_000, 2, "SA", "auto"))
    assert found[0]["above"] < 100e6
    assert all(case["peak"] < 2e9 for case in found)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("flow", ["SA", "USA"])
def test_memory_of_100_000_tokens_with_the_fused_kernel(flow, record_property):
    (found,) = measure((100_000, 3, flow, "fused"))
    record_property("found", found)
    assert found["peak"] < 2e9
