"""Closed forms against reference numbers and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.special import iv

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import (
    clustering_time,
    critical_coupling,
    equiangular_cosine,
    fastest_mode,
    four_particles,
    growth_rate,
    hemisphere_probability,
    long_context_cosine,
    pair_time,
    uniform_energy,
)
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.gaussian import gaussian_flow
from geoattn.dynamics.starts import equiangular_tokens, ring_tokens, uniform_tokens

CURVE = {0: 5.18626, 1: 5.27028, 2: 5.45839, 4: 6.95350, 5: 9.54433, 6: 15.9953, 7: 32.2331, 8: 73.4457, 9: 178.731}
BETAS = (1, 2, 3, 5, 7, 9, 16, 25, 50, 100)
MODES = {
    2: (1, 2, 2, 3, 4, 4, 6, 7, 10, 14),
    3: (1, 2, 2, 3, 3, 4, 5, 7, 10, 14),
    8: (1, 1, 1, 1, 2, 2, 3, 5, 7, 11),
}


@pytest.mark.parametrize(("beta", "value"), CURVE.items())
def test_phase_curve(beta, value):
    assert clustering_time(beta) == pytest.approx(value, rel=1e-5)
    if beta == 0:
        assert clustering_time(0) == pytest.approx(0.5 * math.log((31 * 0.999 + 1) / 1e-3), rel=1e-12)


@pytest.mark.parametrize("beta", [1.0, 5.0])
def test_phase_curve_is_where_the_cosine_arrives(beta):
    assert equiangular_cosine([clustering_time(beta)], beta, 32)[0] == pytest.approx(1 - 1e-3, abs=1e-10)


@pytest.mark.parametrize(("beta", "value"), [(1, 5.1327), (4, 42.893), (8, 5803.58)])
def test_time_of_a_pair(beta, value):
    assert pair_time(2.0, 0.05, beta) == pytest.approx(value, rel=2e-5)


@pytest.mark.parametrize("d", MODES)
def test_fastest_modes(d):
    assert tuple(fastest_mode(float(b), d) for b in BETAS) == MODES[d]


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("beta", [0.5, 2.0, 6.0])
def test_growth_on_the_circle_is_that_of_a_ring(beta, flow):
    """A ring of 200 tokens displaced by eps cos(k theta): the Jacobian times the push is the rate, to 1e-10."""
    n = 200
    x = ring_tokens(n)
    angle = torch.atan2(x[:, 1], x[:, 0])
    side = torch.stack([-x[:, 1], x[:, 0]], -1)
    for k in (1, 2, 5):
        push = torch.cos(k * angle)
        h = 1e-3

        def along(s: float, push: torch.Tensor = push) -> torch.Tensor:
            moved = angle + s * push
            y = torch.stack([moved.cos(), moved.sin()], -1)
            v = velocity(y, beta=beta, flow=flow, engine="blocks")
            return -v[:, 0] * moved.sin() + v[:, 1] * moved.cos()

        # sixth-order central difference of the angular velocity
        stencil = ((45, 1), (-9, 2), (1, 3))
        derivative = sum(c * (along(j * h) - along(-j * h)) for c, j in stencil) / (60 * h)
        rate = float((derivative * push).sum() / (push * push).sum())
        expected = growth_rate(k, beta, 2, flow)
        assert rate == pytest.approx(expected, abs=1e-10 * max(1.0, abs(expected)))
        plain = k**2 * iv(k, beta) / beta / (iv(0, beta) if flow == "SA" else 1)
        assert expected == pytest.approx(plain, rel=1e-12)
    assert side.shape == (n, 2)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_critical_coupling_is_where_the_first_mode_stops_decaying(d):
    """K rate_1 = (d - 1) / 2."""
    for beta in (0.5, 2.0, 8.0):
        assert critical_coupling(beta, d) * growth_rate(1, beta, d, "USA") == pytest.approx((d - 1) / 2, rel=1e-12)


@pytest.mark.parametrize(("n", "d", "value"), [(5, 2, 0.3125), (5, 3, 0.6875), (8, 3, 0.2266)])
def test_wendel(n, d, value):
    """The formula, and a count over 2,000 draws (0 outside the convex hull, by least squares)."""
    assert hemisphere_probability(n, d) == pytest.approx(value, abs=5e-5)
    draws = uniform_tokens(n, d, runs=2000, seed=n + d).numpy()
    target = np.append(np.zeros(d), 1.0)
    inside = sum(nnls(np.vstack([x.T, np.ones(n)]), target)[1] > 1e-9 for x in draws)
    assert inside / 2000 == pytest.approx(value, abs=4 * math.sqrt(0.25 / 2000))


@pytest.mark.parametrize(("d", "value"), [(2, 1.2660658778), (3, 1.1752011936), (5, 1.1036383235), (10, 1.0510541649)])
def test_uniform_energy(d, value):
    assert uniform_energy(1.0, d) == pytest.approx(value, abs=5e-11)


def test_gaussian_covariance():
    """One dimension in closed form, with its blow-up; many by the average m + Sigma A x over Gauss-Hermite nodes."""
    flow = gaussian_flow([0.3], [[0.5]], [[0.4]], [[0.8]], until=1.0)
    s = 0.5 / (1 - 2 * 0.8 * 0.4 * 0.5 * flow.t)
    np.testing.assert_allclose(flow.covariance[:, 0, 0], s, rtol=1e-9)
    burst = gaussian_flow([0.0], [[0.5]], [[0.4]], [[0.8]], until=10.0)
    assert burst.blow_up
    assert burst.t[-1] == pytest.approx(1 / (2 * 0.8 * 0.4 * 0.5), rel=1e-6)
    nodes, w = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    w2 = np.outer(w, w).ravel() / w.sum() ** 2
    mean, root = np.array([0.2, -0.4]), np.array([[0.8, 0.0], [0.3, 0.5]])
    y = mean + grid @ root.T
    A = np.array([[0.3, -0.6], [0.2, 0.4]])
    x = np.array([0.7, 0.1])
    kernel = w2 * np.exp(y @ (A @ x))
    np.testing.assert_allclose(kernel @ y / kernel.sum(), mean + root @ root.T @ A @ x, rtol=1e-10)


def test_covariance_rate_is_that_of_the_tokens():
    """d/dt of the covariance of affine velocities V (m + Sigma A x), by hand."""
    mean, s = np.array([0.2, -0.4]), np.array([[0.7, 0.2], [0.2, 0.4]])
    A, V = np.array([[0.3, -0.6], [0.2, 0.4]]), np.array([[1.0, 0.1], [-0.3, 0.5]])
    h = 1e-4
    flow = gaussian_flow(mean, s, A, V, until=h, save=2)
    pushed = V @ s @ A @ s
    np.testing.assert_allclose((flow.covariance[-1] - s) / h, pushed + pushed.T, atol=1e-3)
    np.testing.assert_allclose((flow.mean[-1] - mean) / h, V @ (mean + s @ A @ mean), atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustering_time(1.0, n=-3), "n must be a whole number of at least 2"),
        (lambda: clustering_time(1.0, n=1), "n must be"),
        (lambda: clustering_time(1.0, delta=0.0), "delta"),
        (lambda: clustering_time(1.0, delta=1.5), "delta"),
        (lambda: uniform_tokens(-4, 3), "n must be a whole number of at least 1; got -4"),
        (lambda: uniform_tokens(4, 1), "d must be"),
        (lambda: equiangular_tokens(3, -0.9), "equal cosines from -0.5"),
        (lambda: equiangular_tokens(3, d=2), "d must be"),
        (lambda: pair_time(0.1, 0.2, 1.0), "angles"),
        (lambda: growth_rate(1, -1.0), "beta"),
        (lambda: four_particles(0.0, 1.0), "d1"),
        (lambda: long_context_cosine(1.0, 2.0), "cosine"),
        (lambda: gaussian_flow([0.0], [[-1.0]], [[1.0]], until=1.0), "semidefinite"),
        (lambda: gaussian_flow([0.0, 1.0], [[1.0]], [[1.0]], until=1.0), "must fit"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(GeoattnError, match=message):
        call()
