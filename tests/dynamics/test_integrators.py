"""The laws that every registered integrator keeps: consistency, order, the norm, the energy. Then stiffness, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn.dynamics.closed_forms import equiangular_cosine
from geoattn.dynamics.integrators import INTEGRATORS, next_step_size
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import equiangular_tokens, uniform_tokens

every_integrator = pytest.mark.parametrize("method", INTEGRATORS.values(), ids=INTEGRATORS)


@every_integrator
def test_tableau_is_consistent(method):
    scheme = method.scheme
    assert len(method.about) > 10
    assert math.isclose(sum(scheme.b), 1.0)
    for row, c in zip(scheme.a, scheme.c, strict=True):
        assert math.isclose(sum(row), c, abs_tol=1e-14)
    if scheme.error is not None:
        assert abs(sum(scheme.error)) < 1e-14


@every_integrator
@pytest.mark.parametrize("flow", ["SA", "USA"])
def test_order_of_convergence(method, flow):
    """Error at t = 1 against a run that is exact to 1e-12, d = 3, general symmetric D; slopes from the last halving.

    The error of an adaptive method is proportional to its tolerance instead.
    """
    x = uniform_tokens(12, 3, seed=7)
    D = torch.diag(torch.tensor([1.0, 0.5, -0.3], dtype=torch.float64))
    common = {"D": D, "V": D, "beta": 1.5, "flow": flow, "until": 1.0, "save": 2}
    exact = simulate(x, method="adaptive", tolerance=1e-13, **common).final
    errors = []
    if method.adaptive:
        for tolerance in (1e-4, 1e-6, 1e-8):
            final = simulate(x, method=method.name, tolerance=tolerance, **common).final
            errors.append(float((final - exact).norm(dim=-1).max()))
            assert errors[-1] < 20 * tolerance
        return
    for count in (8, 16, 32) if method.order > 1 else (32, 64, 128):
        final = simulate(x, method=method.name, step=1.0 / count, **common).final
        errors.append(float((final - exact).norm(dim=-1).max()))
    slopes = np.diff(-np.log2(errors))
    assert abs(slopes[-1] - method.order) < (0.1 if method.order == 1 else 0.25), errors


@every_integrator
def test_norm_is_kept(method):
    run = simulate(uniform_tokens(40, 5, seed=1), beta=4.0, method=method.name, until=10.0)
    assert (run.tokens.norm(dim=-1) - 1).abs().max() < 1e-15 * 3


@every_integrator
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_energy_never_turns(method, sign):
    D = torch.diag(torch.tensor([1.0, 0.5, 0.3], dtype=torch.float64))
    run = simulate(uniform_tokens(20, 3, seed=2), D=D, V=sign * D, method=method.name, until=5.0, step=0.05)
    assert float((sign * run.log_energy.diff()).min()) > -1e-12


@every_integrator
def test_a_single_token_at_an_eigenvector_rests(method):
    x = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    D = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    run = simulate(x, D=D, V=D, method=method.name, until=1.0)
    assert torch.equal(run.final, x)


@pytest.mark.parametrize("tolerance", [1e-5, 1e-8, 1e-11])
def test_adaptive_keeps_its_tolerance(tolerance):
    """The error over t <= 4, some tens of steps, is of the order of the tolerance of a step."""
    run = simulate(
        torch.eye(16, dtype=torch.float64), beta=3.0, method="adaptive", tolerance=tolerance, until=4.0, save=5
    )
    gram = run.tokens @ run.tokens.mT
    exact = equiangular_cosine(run.t[1:].numpy(), 3.0, 16)
    assert np.abs(gram[1:, 0, 1].numpy() - exact).max() < 50 * tolerance + 1e-11


def test_rk4_is_far_better_than_the_layer_map():
    """maths: error at t = 1 of 3e-2 for the layer map at h = 0.1 and of 1.5e-7 for projected RK4."""
    x = uniform_tokens(32, 8, seed=2)
    exact = simulate(x, beta=4.0, method="adaptive", tolerance=1e-13, until=1.0, save=2).final
    error = {
        m: float((simulate(x, beta=4.0, method=m, step=0.1, until=1.0, save=2).final - exact).norm(dim=-1).max())
        for m in ("layer", "rk4")
    }
    assert 5e-3 < error["layer"] < 0.2
    assert error["rk4"] < 1e-5


def test_stiff_usa():
    """Fixed steps of 0.01 are unstable at beta = 6, where tokens meet at the rate 2 e^6; adaptive ones are not."""
    x = equiangular_tokens(8, 0.3)
    run = simulate(x, beta=6.0, flow="USA", method="adaptive", until=0.5)
    assert float((1 - run.final @ run.final.T).max()) < 1e-8
    assert float(run.balance.max()) < 1e-5
    assert (run.log_energy.diff() > -1e-12).all()
    fixed = simulate(x, beta=6.0, flow="USA", method="rk4", step=0.01, until=0.5)
    assert float(fixed.balance.max()) > 1e-2  # the certificate shows it


def test_usa_in_its_own_time():
    """The rate at the end is 2 e^9 = 16,206; in the time e^9 t it is 2."""
    x = torch.eye(4, dtype=torch.float64)
    run = simulate(x, beta=9.0, flow="USA", shift=9.0, method="adaptive", until=800.0, save=3, tolerance=1e-6)
    exact = equiangular_cosine(run.t[1:].numpy() * np.exp(-9.0), 9.0, 4, flow="USA")
    assert np.abs((run.tokens @ run.tokens.mT)[1:, 0, 1].numpy() - exact).max() < 1e-4


def test_brownian_motion_on_the_sphere():
    """V = 0: E <x(t), x(0)> = exp(-sigma^2 (d - 1) t / 2)."""
    x = uniform_tokens(50, 3, runs=80, seed=3)
    settings = {"V": 0.0, "beta": 0.0, "noise": 0.7, "until": 1.0, "save": 2, "observe": (), "method": "euler"}
    run = simulate(x, step=0.02, seed=5, **settings)
    mean = float((run.final * x).sum(-1).mean())
    assert abs(mean - math.exp(-(0.7**2))) < 4 / math.sqrt(4000)
    few, again, other = (simulate(x[0], step=0.2, seed=s, **settings).final for s in (5, 5, 6))
    assert torch.equal(few, again)
    assert not torch.equal(few, other)


def test_step_sizes():
    assert next_step_size(1.0, 0.0, 1e-8, 5) == 5.0
    assert next_step_size(1.0, 1.0, 1e-8, 5) == 0.2
