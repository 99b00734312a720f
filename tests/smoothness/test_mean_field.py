from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.bounds import lipschitz_bounds
from geoattn.smoothness.local import local_lipschitz
from geoattn.smoothness.measure_map import mean_field_constant, mean_field_map, mean_field_ratio
from geoattn.smoothness.wasserstein import TokenMeasure, wasserstein2


@pytest.mark.parametrize("causal", [False, True])
def test_equal_weights_are_attention(causal):
    rng = np.random.default_rng(0)
    x, A, V = rng.standard_normal((7, 3)), rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    mu = TokenMeasure.of(x, positions=np.arange(1, 8) / 7)
    expected = AttentionMap.of(A, V, causal=causal)(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(mean_field_map(mu, A, V, causal=causal).points, expected, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_only_the_measure_matters(causal):
    """An atom split in two is the same measure and goes to the same measure; atoms without mass are not there."""
    rng = np.random.default_rng(1)
    x, A = rng.standard_normal((5, 2)), rng.standard_normal((2, 2))
    w, s = rng.dirichlet(np.ones(5)), np.linspace(0.2, 1, 5)
    one = TokenMeasure.of(x, w, s)
    split = TokenMeasure.of(
        np.concatenate([x, x[:1], 9 + x[:1]]), np.concatenate([[w[0] / 3], w[1:], [w[0] * 2 / 3], [0.0]]),
        np.concatenate([s, s[:1], [0.0]]),
    )  # fmt: skip
    images = [mean_field_map(m, A, causal=causal) for m in (one, split)]
    assert wasserstein2(*images) == pytest.approx(0, abs=1e-7)
    np.testing.assert_array_equal(images[0].weights, one.weights)


def test_gaussians_stay_gaussian():
    """Gamma(x) = m + S A x for a Gaussian of mean m and covariance S: by a fine quadrature in one dimension."""
    grid = np.linspace(-8, 8, 1601)
    w = np.exp(-((grid - 0.3) ** 2) / (2 * 0.49))
    mu = TokenMeasure.of(grid[:, None], w / w.sum())
    image = mean_field_map(mu, np.array([[0.8]])).points[:, 0]
    inside = np.abs(grid) < 2
    np.testing.assert_allclose(image[inside], 0.3 + 0.49 * 0.8 * grid[inside], atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_small_moves_show_the_local_constant(causal):
    rng = np.random.default_rng(2)
    x, A = rng.standard_normal((6, 2)), rng.standard_normal((2, 2))
    s = np.arange(1, 7) / 6 if causal else None
    found = local_lipschitz(x, A, causal=causal)
    mu, nu = TokenMeasure.of(x, positions=s), TokenMeasure.of(x + 1e-6 * found.direction, positions=s)
    assert mean_field_ratio(mu, nu, A, causal=causal) == pytest.approx(found.value, rel=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_bounds_hold_between_measures(causal):
    rng = np.random.default_rng(3)
    worst = 0.0
    for seed in range(8):
        d = int(rng.integers(1, 4))
        A = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 0.3)
        V = None if seed % 2 else rng.standard_normal((d, d))
        found = mean_field_constant(A, V, 10.0 ** rng.uniform(-1, 0.3), 8, causal=causal, trials=3, seed=seed)
        assert found.value == found.ratios.max()
        worst = max(worst, found.value / found.bound.value)
    assert 0.5 < worst <= 1 + 1e-6


def test_lower_bound_at_the_critical_number_of_atoms():
    """R = 1.4, gamma = 1: n - 1 next to exp(2 gamma R^2) = 50.4."""
    A = np.diag([-1.0, 0.3, 0.2])
    bounds = lipschitz_bounds(A, None, 51, 1.4)
    found = mean_field_constant(A, None, 1.4, 1 + round(math.exp(2 * 1.96)), trials=0)
    assert found.found_by == "adversarial tokens, worst move"
    assert found.value == pytest.approx(10.760, rel=2e-3)
    assert bounds["mean-field lower, finite"].value * (1 - 1e-3) <= found.value <= bounds["mean-field upper"].value


def test_masked_attention_breaks_the_bound_that_is_printed_for_it():
    """Equal tokens near zero: running means, in Wasserstein-2 with coupled or with free positions."""
    n = 64
    found = local_lipschitz(np.zeros((n, 1)), np.eye(1), causal=True)
    s = np.arange(1, n + 1) / n
    mu, nu = (TokenMeasure.of(x, positions=s) for x in (np.zeros((n, 1)), 1e-4 * found.direction))
    images = [mean_field_map(m, np.eye(1), causal=True) for m in (mu, nu)]
    printed = lipschitz_bounds(np.eye(1), None, n, 1e-4)["mean-field upper"].value
    assert printed < 1.001
    for positions in ("coupled", "free"):
        ratio = wasserstein2(*images, positions=positions) / wasserstein2(mu, nu, positions=positions)
        assert ratio > 1.5
    assert ratio <= lipschitz_bounds(np.eye(1), None, n, 1e-4, causal=True)["masked upper, any n"].value


def test_bad_input():
    mu = TokenMeasure.of(np.zeros((2, 2)))
    with pytest.raises(ga.GeoattnError, match="needs positions"):
        mean_field_map(mu, np.eye(2), causal=True)
    with pytest.raises(ga.GeoattnError, match="A must be one matrix"):
        mean_field_map(mu, np.eye(3))
    with pytest.raises(ga.GeoattnError, match="are equal"):
        mean_field_ratio(mu, mu, np.eye(2))
    with pytest.raises(ga.GeoattnError, match="R must be a finite number above 0"):
        mean_field_constant(np.eye(2), None, 0.0, 4)
    with pytest.raises(ga.GeoattnError, match="nothing to try"):
        mean_field_constant(np.array([[0.0, -1.0], [1.0, 0.0]]), None, 1.0, 4, trials=0)
    with pytest.raises(ga.GeoattnError, match="overflow"):
        mean_field_map(TokenMeasure.of(np.full((2, 2), 1e200)), np.eye(2))
