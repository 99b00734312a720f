"""The energy, its logarithm and its gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.energy import energy_gradient, interaction_energy, log_interaction_energy
from geoattn.dynamics.starts import uniform_tokens


def case(n: int = 12, d: int = 4, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    D = torch.randn(d, d, generator=draw).double()
    w = torch.rand(n, generator=draw).double()
    return uniform_tokens(n, d, seed=seed), D, w / w.sum()


@pytest.mark.parametrize("beta", [-1.0, 0.0, 2.0])
def test_definition(beta):
    x, D, w = case()
    kernel = np.exp(beta * (x @ D @ x.T).numpy())
    assert float(interaction_energy(x, D, beta)) == pytest.approx(kernel.mean(), rel=1e-14)
    assert float(interaction_energy(x, D, beta, w)) == pytest.approx(w.numpy() @ kernel @ w.numpy(), rel=1e-14)
    batch = torch.stack([x, x.flip(0)])
    assert interaction_energy(batch, D, beta).shape == (2,)


def test_gradient_is_that_of_autograd():
    x, D, w = case()
    y = x.clone().requires_grad_()
    unit = y / y.norm(dim=-1, keepdim=True)
    energy = w @ torch.exp(1.3 * unit @ D @ unit.T) @ w
    (expected,) = torch.autograd.grad(energy, y)
    torch.testing.assert_close(energy_gradient(x, D, 1.3, w), expected, rtol=1e-12, atol=1e-14)


def test_fused_energy_of_many_tokens():
    x, _, _ = case(700, 6)
    assert float(interaction_energy(x)) == pytest.approx(float(torch.exp(x @ x.T).mean()), rel=1e-13)


def test_weights_of_zero_do_not_count():
    x, D, _ = case(4)
    assert float(interaction_energy(x, D, 1.0, [0.0, 1.0, 0.0, 0.0])) == pytest.approx(math.exp(float(x[1] @ D @ x[1])))


def test_log_domain():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert float(log_interaction_energy(x, beta=5e5)) == pytest.approx(5e5 - math.log(2))
    with pytest.raises(GeoattnError, match=r"overflows.*log_interaction_energy"):
        interaction_energy(x, beta=5e5)
    with pytest.raises(GeoattnError, match="overflows"):
        energy_gradient(x, beta=5e5)
    with pytest.raises(GeoattnError, match="unit sphere"):
        interaction_energy(2 * x)
    with pytest.raises(GeoattnError, match="functions of time"):
        interaction_energy(x, beta=lambda t: t)
