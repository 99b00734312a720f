"""Stationary measures and their linear stability."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import ring_tokens, uniform_tokens
from geoattn.dynamics.stationary import (
    eigenvector_measure,
    pair_rates,
    pair_threshold,
    stability,
    stationary_residual,
)


def diag(*values: float) -> torch.Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize(
    ("values", "plus", "minus"),
    [
        ([1, 2, 3], [0, 1, 0], [0, 0, 0]),  # a point
        ([1, 2, 3], [0, 0.3, 0], [0, 0.7, 0]),  # a pair with any masses
        ([1, 2, 3], [0.1, 0.2, 0.2], [0.1, 0.2, 0.2]),  # balanced pairs
        ([1, 2, 3], [0.1, 0.3, 0.2], [0.1, 0.1, 0.2]),  # one pair out of balance beside others
        ([0, 0, 3], [0.2, 0.5, 0.15], [0, 0, 0.15]),  # anything on the kernel
        ([-1, 0, 3], [0.2, 0.5, 0.1], [0.2, 0, 0]),
        ([-1, 0, 3], [0.2, 0.4, 0.1], [0.2, 0, 0.1]),
    ],
)
def test_criterion_for_eigenvector_measures(values, plus, minus, flow):
    """Stationary iff lambda_j (p_j - q_j) = 0 for every j other than i, for each i in play."""
    p, q, lam = map(np.array, (plus, minus, values))
    force = np.abs(lam * (p - q))
    active = np.flatnonzero(p + q)
    criterion = all(force[j] == 0 for i in active for j in active if j != i)
    atoms, weights = eigenvector_measure(diag(*values), plus, minus)
    residual = float(stationary_residual(atoms, diag(*values), weights=weights, flow=flow))
    assert (residual < 1e-14) == criterion


def test_uniform_is_stationary_for_the_identity():
    assert float(stationary_residual(ring_tokens(50))) < 1e-14
    assert float(stationary_residual(uniform_tokens(20, 3))) > 1e-3


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize(("lam", "mu"), [(1.0, 0.5), (1.0, 0.9), (0.3, 2.0), (2.0, -1.0), (-1.0, 0.4), (1.5, 1.5)])
@pytest.mark.parametrize("p", [0.5, 0.3])
def test_pair_rates_are_those_of_the_jacobian(lam, mu, p, flow):
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    found = stability(x, diag(lam, mu), weights=[p, 1 - p], flow=flow)
    np.testing.assert_allclose(np.sort(found.rates.real)[::-1], pair_rates(lam, mu, p, flow), atol=1e-12)
    assert found.residual < 1e-15
    if p == 0.5:
        rate = mu - lam * math.tanh(lam)
        in_phase = rate if flow == "SA" else rate * math.cosh(lam)
        assert min(abs(found.rates - in_phase)) < 1e-12


@pytest.mark.parametrize(("p", "value"), [(0.5, 0.7616), (0.4, 0.7386), (0.3, 0.6566), (0.2, 0.4514)])
def test_threshold_of_unequal_pairs(p, value):
    assert pair_threshold(1.0, p) == pytest.approx(value, abs=5e-5)
    assert pair_threshold(1.0, 1 - p) == pytest.approx(pair_threshold(1.0, p), abs=1e-12)


def test_thresholds_of_the_split():
    """The values tanh 1 = 0.76159 and the root 1.19968 of lambda tanh lambda = 1."""
    assert pair_threshold(1.0) == pytest.approx(0.76159, abs=5e-6)
    root = brentq(lambda lam: pair_threshold(lam) - 1.0, 1.0, 2.0)
    assert root == pytest.approx(1.19968, abs=5e-6)


def test_linear_rate_is_seen_in_the_flow():
    """A pair pushed by 1e-6 in phase grows at the rate mu - lambda tanh(lambda)."""
    D = diag(1.0, 1.3)
    eps = 1e-6
    x = torch.tensor([[1.0, eps], [-1.0, eps]], dtype=torch.float64)
    run = simulate(x, D=D, V=D, normalise=True, until=2.0, save=2, method="adaptive", tolerance=1e-13)
    rate = math.log(float(run.final[0, 1]) / eps) / 2
    assert rate == pytest.approx(1.3 - math.tanh(1.0), abs=1e-6)


def test_one_cluster_is_stable_and_rotates_freely():
    found = stability(torch.tensor([[0.0, 0.0, 1.0]] * 3, dtype=torch.float64), beta=2.0)
    assert found.unstable == 0
    np.testing.assert_allclose(np.sort(found.rates.real), [-1, -1, -1, -1, 0, 0], atol=1e-12)


def test_bad_input():
    with pytest.raises(GeoattnError, match="symmetric"):
        eigenvector_measure([[1.0, 2.0], [0.0, 1.0]], [1, 0], [0, 0])
    with pytest.raises(GeoattnError, match="sum to one"):
        eigenvector_measure(diag(1, 2), [1, 0], [1, 0])
    with pytest.raises(GeoattnError, match="masses each"):
        eigenvector_measure(diag(1, 2), [1], [0])
    with pytest.raises(GeoattnError, match="one configuration"):
        stability(uniform_tokens(2, 2, runs=2))
    with pytest.raises(GeoattnError, match="share"):
        pair_rates(1.0, 1.0, 1.5)
