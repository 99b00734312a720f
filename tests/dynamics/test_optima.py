"""Maximisers and minimisers: the table, its reference numbers, and attempts to beat the certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import i0

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import first_order_density, four_particles, uniform_energy
from geoattn.dynamics.energy import interaction_energy
from geoattn.dynamics.minimiser import circle_density
from geoattn.dynamics.optima import energy_optimum
from geoattn.dynamics.starts import uniform_tokens


def diag(*values: float) -> torch.Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def rotated(values: np.ndarray, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(len(values), len(values), generator=draw, dtype=torch.float64)).Q
    D = turn @ torch.diag(torch.from_numpy(values)) @ turn.T
    return (D + D.T) / 2


# ---- the table


@pytest.mark.parametrize(
    ("D", "kind", "value", "name"),
    [
        (diag(1, 3, 4), "max", math.exp(4), "point"),
        (diag(0, 0, 1), "max", math.e, "point"),
        (diag(-1, -3, -4), "max", math.cosh(4), "antipodal pair"),
        (diag(-1, -1), "max", math.cosh(1), "antipodal pair"),
        (diag(-1, 0.4), "max", math.cosh(1), "antipodal pair"),
        (diag(-1, 0.5), "max", math.exp(0.5), "point"),
        (diag(-2, 3), "min", math.exp(-2), "point"),
        (diag(1, 0, 1), "min", 1.0, "kernel"),
        (diag(0, 0, 1), "min", 1.0, "kernel"),
        (diag(1, 1), "min", 1.2660658778, "uniform"),
        (diag(1, 1, 1), "min", 1.1752011936, "uniform"),
        (torch.eye(5), "min", 1.1036383235, "uniform"),
        (torch.eye(10), "min", 1.0510541649, "uniform"),
    ],
)
def test_table(D, kind, value, name):
    best = energy_optimum(D, kind)
    assert best.value == pytest.approx(value, abs=1e-10)
    assert best.case == name
    assert best.gap == 0.0
    if best.atoms is not None:
        assert best.energy(D) == pytest.approx(best.value, rel=1e-12)


def test_crossover_of_the_indefinite_maximum():
    """diag(-1, d): from the pair to the point at d = ln cosh 1 = 0.4337808."""
    edge = math.log(math.cosh(1))
    assert edge == pytest.approx(0.4337808, abs=5e-8)
    assert energy_optimum(diag(-1, edge - 1e-9)).case == "antipodal pair"
    assert energy_optimum(diag(-1, edge + 1e-9)).case == "point"


@given(st.integers(0, 10_000), st.integers(2, 4), st.floats(0.2, 4))
def test_no_measure_beats_the_optimum(seed, d, size):
    """Random measures, some of them near the atoms of the optimum, and the steepest moves of these."""
    rng = np.random.default_rng(seed)
    D = rotated(size * rng.uniform(-1, 1, d), seed)
    for kind, sign in (("max", 1), ("min", -1)):
        best = energy_optimum(D, kind, tolerance=1e-6)
        x = uniform_tokens(3, d, runs=40, seed=seed)
        w = torch.from_numpy(rng.dirichlet(np.full(3, 0.5), 40))
        if best.atoms is not None and len(best.atoms) <= 3:
            near = best.atoms[torch.arange(3) % len(best.atoms)] + 0.05 * x
            x = torch.cat([x, near / near.norm(dim=-1, keepdim=True)])
            w = torch.cat([w, w])
        energies = interaction_energy(x, D, 1.0, w)
        limit = best.upper if kind == "max" else best.lower
        assert (sign * (energies - limit) < 1e-9 * best.upper).all()


def test_indefinite_maximum_against_a_search():
    """Three atoms with free masses climb from many starts to max(e^lambda_max, cosh lambda_min), never above."""
    for top, low in ((0.2, -1.5), (1.0, -1.2), (1.4, -1.5), (0.5, -3.0)):
        D = diag(low, 0.3 * top, top)
        y = uniform_tokens(3, 3, runs=60, seed=1).clone().requires_grad_()
        a = torch.zeros(60, 3, dtype=torch.float64).requires_grad_()
        climber = torch.optim.Adam([y, a], lr=0.05)
        for _ in range(400):
            unit = y / y.norm(dim=-1, keepdim=True)
            w = a.softmax(-1)
            energy = torch.einsum("bi,bij,bj->b", w, torch.exp(unit @ D @ unit.mT), w)
            climber.zero_grad()
            (-energy.sum()).backward()
            climber.step()
        best, reached = energy_optimum(D), energy.max().item()
        assert best.value - 1e-3 < reached <= best.value + 1e-9


# ---- the numerical minimiser


def test_anisotropic_minimum_on_the_sphere():
    """diag(1, 1/4, 1): 1.02794952, second moment 0.8902 along the weak axis."""
    best = energy_optimum(diag(1, 0.25, 1), "min")
    assert best.value == pytest.approx(1.02794952, abs=5e-9)
    assert best.gap < 1e-8
    moment = (best.weights[:, None] * best.atoms**2).sum(0)
    np.testing.assert_allclose(moment, [0.0549, 0.8902, 0.0549], atol=5e-5)
    assert best.energy(diag(1, 0.25, 1)) == pytest.approx(best.value, rel=1e-12)
    turned = rotated(np.array([1.0, 0.25, 1.0]), 3)
    assert energy_optimum(turned, "min").value == pytest.approx(best.value, abs=1e-10)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_numerical_minimum_of_the_identity_is_uniform(d):
    best = energy_optimum(torch.eye(d), "min", uniform=False)
    assert best.value == pytest.approx(uniform_energy(1.0, d), abs=1e-9)
    np.testing.assert_allclose((best.weights[:, None] * best.atoms**2).sum(0), 1 / d, atol=1e-6)


@pytest.mark.parametrize(("d", "value"), [(2, -4.163306), (3, -5.140647), (4, -6.123469)])
def test_first_order_minimiser(d, value):
    """The number -I_{d/2}(1) / I_{d/2+1}(1); the second moments of minimisers near the identity follow it."""
    alpha = first_order_density(d)
    assert alpha == pytest.approx(value, abs=5e-7)
    eps = 1e-3
    best = energy_optimum(torch.eye(d) + eps * diag(*([0.0] * (d - 1)), 1.0), "min", tolerance=1e-12)
    # second moment of 1 + eps alpha (x_d^2 - 1/d): 1/d + eps alpha (3 / (d (d + 2)) - 1 / d^2)
    moment = float((best.weights * best.atoms[:, -1] ** 2).sum())
    slope = (moment - 1 / d) / eps / (3 / (d * (d + 2)) - 1 / d**2)
    assert slope == pytest.approx(alpha, rel=5e-3)


@pytest.mark.parametrize(
    ("eps", "mode"), [(-0.1, 2.1759), (-0.05, 2.1293), (0.05, 2.0334), (0.1, 1.9848), (0.2, 1.8882), (0.3, 1.7939)]
)
def test_second_mode_of_the_minimiser_on_the_circle(eps, mode):
    D = diag(1, 1 + eps)
    density = circle_density(D)
    assert density.mode(2) / eps == pytest.approx(mode, abs=6e-5)
    assert density.gap < 1e-6
    atoms = energy_optimum(D, "min")
    assert density.energy == pytest.approx(atoms.value, abs=1e-9)
    assert density.energy - density.gap <= atoms.value
    angles = torch.atan2(atoms.atoms[:, 1], atoms.atoms[:, 0])
    assert float(2 * (atoms.weights * torch.cos(2 * angles)).sum()) / eps == pytest.approx(mode, abs=6e-5)


def test_uniform_density_on_the_circle():
    density = circle_density(torch.eye(2))
    np.testing.assert_allclose(density.weights * 256, 1.0, atol=1e-12)
    assert density.energy == pytest.approx(i0(1.0))


@pytest.mark.parametrize(
    ("d2", "a2"),
    [(0.5, 0.1937061), (1, 0.5), (2, 0.8237686), (3, 0.9178341), (5, 0.9698280), (8, 0.9881432), (10, 0.9924016)],
)
def test_four_particles(d2, a2):
    """The closed form, its energy, and that no small move lowers it."""
    found, energy = four_particles(1.0, d2)
    assert found == pytest.approx(a2, abs=5e-8)
    a, b = math.sqrt(found), math.sqrt(1 - found)
    x = torch.tensor([[a, b], [-a, b], [a, -b], [-a, -b]], dtype=torch.float64)
    assert float(interaction_energy(x, diag(1, d2))) == pytest.approx(energy, rel=1e-13)
    moved = x + 1e-3 * torch.randn(200, 4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert (interaction_energy(moved, diag(1, d2), normalise=True) > energy - 1e-13).all()


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 0.1], [0.0, 1.0]],), "symmetric"),
        (([1.0, 2.0],), r"\(d, d\)"),
        ((torch.eye(2) * math.nan,), "finite"),
        ((torch.eye(2), "most"), "kind must be one of"),
        ((torch.eye(2), "max", 1e4), "overflow"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(GeoattnError, match=message):
        energy_optimum(*arguments)


def test_density_needs_a_convex_problem():
    with pytest.raises(GeoattnError, match="positive definite"):
        circle_density([[1.0, 0.0], [0.0, -0.1]])
    with pytest.raises(GeoattnError, match="uniform measure has no atoms"):
        energy_optimum(torch.eye(2), "min").energy(torch.eye(2))
