"""Causal masks, pre-LN, long context, no sphere, weights of time: the flows beside the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.attend import attend
from geoattn.dynamics.closed_forms import long_context_cosine
from geoattn.dynamics.gaussian import gaussian_flow
from geoattn.dynamics.interaction import read_interaction
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import equiangular_tokens, uniform_tokens
from tests.dynamics.plain import cosines


def test_causal_collapse():
    """All tokens end at the first, which never moves: 1e-13 at t = 160, n = 20, d = 3."""
    x = uniform_tokens(20, 3, seed=12)
    run = simulate(x, causal=True, until=160.0, save=2, step=0.4)
    assert torch.equal(run.tokens[0, 0], x[0])
    assert float((run.final - x[0]).norm(dim=-1).max()) < 1e-13


def test_causal_collapse_with_any_queries_and_keys():
    D = torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double()
    x = uniform_tokens(12, 3, seed=13)
    run = simulate(x, D=D, causal=True, until=60.0, save=2, step=0.3)
    assert float((run.final - x[0]).norm(dim=-1).max()) < 1e-5


def test_pre_ln_is_polynomial_and_post_ln_exponential():
    """1 - cosine goes like t^-2 and e^{-2t}: local slopes."""
    x = equiangular_tokens(6, 0.2)
    times = [0.0, 200.0, 400.0, 800.0]
    pre = simulate(x, norm="pre", until=800.0, save=times, method="adaptive", tolerance=1e-10)
    gap = 1 - cosines(pre)[1:].numpy()
    slopes = -np.diff(np.log(gap)) / np.log(2)
    assert np.abs(slopes - 2).max() < 0.02
    assert pre.radius is not None
    assert float((pre.radius[-1] / 800 - 1).abs().max()) < 0.02  # r grows like t
    assert float((pre.tokens.norm(dim=-1) - 1).abs().max()) < 1e-14
    post = simulate(x, until=8.0, save=[0.0, 6.0, 7.0, 8.0], method="adaptive", tolerance=1e-13)
    rates = -np.diff(np.log(1 - cosines(post)[1:].numpy()))
    assert np.abs(rates - 2).max() < 1e-3


@pytest.mark.parametrize("rho", [0.2, 0.5])
@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_long_context(rho, times):
    """One attention layer at beta = gamma log n: the formula for n is exact, and tends to the limit."""
    gamma = times / (1 - rho)
    n = 400
    x = equiangular_tokens(n, rho)
    settings = read_interaction(x, beta=gamma * math.log(n))
    out, _ = attend(x[None], settings)
    y = out[0] / out[0].norm(dim=-1, keepdim=True)
    assert abs(float(y[0] @ y[1]) - long_context_cosine(rho, gamma, n)) < 1e-12
    assert abs(long_context_cosine(rho, gamma, 10**12) - long_context_cosine(rho, gamma)) < 2e-5
    assert long_context_cosine(0.2, 1.25) == pytest.approx(0.5)
    assert long_context_cosine(0.5, 2.0) == pytest.approx(0.8)


def test_gaussian_clouds_without_a_sphere():
    """2,000 Gaussian tokens under norm="none": mean and covariance follow their equations, to Monte Carlo error."""
    draw = torch.Generator().manual_seed(2)
    L = torch.tensor([[1.0, 0.0], [0.4, 0.6]], dtype=torch.float64)
    mean = torch.tensor([0.5, -0.2], dtype=torch.float64)
    z = torch.randn(2000, 2, generator=draw).double()
    z = (z - z.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky((z - z.mean(0)).T @ (z - z.mean(0)) / 2000)).T
    x = mean + z @ L.T
    D = torch.tensor([[-0.5, 0.2], [-0.1, -0.3]], dtype=torch.float64)
    run = simulate(x, D=D, norm="none", until=1.0, save=2, step=0.1, engine="fused")
    flow = gaussian_flow(mean.numpy(), (L @ L.T).numpy(), D.T.numpy(), until=1.0, save=2)
    np.testing.assert_allclose(run.final.mean(0), flow.mean[-1], atol=0.05)
    np.testing.assert_allclose(np.cov(run.final.T.numpy()), flow.covariance[-1], atol=0.03)


@pytest.mark.parametrize("d", [2, 3])
def test_many_tokens_without_a_sphere(d):
    """They may not be summed by harmonics of the sphere, which take all tokens to be of length one."""
    x = uniform_tokens(3000, d, seed=1) * torch.linspace(0.5, 1.5, 3000).double()[:, None]
    settings = {"norm": "none", "until": 0.1, "step": 0.1, "save": 2, "observe": ()}
    plain = simulate(x, engine="blocks", **settings)
    torch.testing.assert_close(simulate(x, **settings).final, plain.final, rtol=0, atol=1e-13)
    with pytest.raises(GeoattnError, match="on the unit sphere"):
        simulate(x, engine="harmonic", **settings)


def test_weights_that_change_in_time():
    """V(t) = -I after t = 1 runs the film backwards (beta = 0, two tokens: tanh, and back)."""
    x = torch.eye(2, dtype=torch.float64)
    there = simulate(x, beta=0.0, V=lambda t: 1.0 if t < 1.0 else -1.0, until=1.0, step=0.01, save=2)
    assert abs(float(cosines(there)[-1]) - math.tanh(1.0)) < 2e-2  # the last stages are at t = 1
    growing = simulate(x, beta=0.0, V=lambda t: t, until=2.0, save=5, step=0.04)
    np.testing.assert_allclose(cosines(growing), np.tanh(growing.t.numpy() ** 2 / 2), atol=1e-7)
    ramp = simulate(torch.eye(4, dtype=torch.float64), beta=lambda t: 2.0, D=lambda t: None, until=1.0, save=2)
    plain = simulate(torch.eye(4, dtype=torch.float64), beta=2.0, until=1.0, save=2, step=ramp.settings["step"])
    torch.testing.assert_close(ramp.final, plain.final)


def test_layer_map_is_the_transformer():
    x = uniform_tokens(6, 4, seed=15)
    V = torch.randn(4, 4, generator=torch.Generator().manual_seed(4)).double()
    run = simulate(x, beta=2.0, V=V, method="layer", step=0.3, until=0.9, save=4)
    y = x
    for _ in range(3):
        y = y + 0.3 * torch.softmax(2.0 * y @ y.T, -1) @ y @ V.T
        y = y / y.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(run.final, y, rtol=0, atol=1e-14)
    pre = simulate(x, beta=2.0, V=V, method="layer", step=0.3, until=0.9, save=4, norm="pre")
    z = x
    for _ in range(3):
        u = z / z.norm(dim=-1, keepdim=True)
        z = z + 0.3 * torch.softmax(2.0 * u @ u.T, -1) @ u @ V.T
    torch.testing.assert_close(pre.final * pre.radius[-1][..., None], z, rtol=0, atol=1e-13)


def test_weighted_tokens_are_many_tokens():
    x = uniform_tokens(3, 3, seed=16)
    many = x[[0, 0, 0, 1, 2, 2]]
    weights = torch.tensor([3, 1, 2]).double() / 6
    light = simulate(x, beta=2.0, weights=weights, until=1.0, save=3, step=0.05)
    heavy = simulate(many, beta=2.0, until=1.0, save=3, step=0.05)
    torch.testing.assert_close(light.tokens, heavy.tokens[:, [0, 3, 4]], rtol=0, atol=1e-13)
    torch.testing.assert_close(light.log_energy, heavy.log_energy)
    torch.testing.assert_close(light.work, heavy.work)


def test_progress_is_called():
    seen = []
    simulate(uniform_tokens(3, 3), until=1.0, save=2, progress=lambda t, end: seen.append((t, end)))
    assert seen[0] == (0.0, 1.0)
    assert seen[-1] == (1.0, 1.0)
