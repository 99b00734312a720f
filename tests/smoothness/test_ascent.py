from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.smoothness import ascent
from geoattn.smoothness.ascent import climb_lipschitz
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.bounds import lipschitz_bounds
from geoattn.smoothness.local import local_lipschitz


def attack(seeds: range, steps: int) -> float:
    """Climb from random clouds; the largest ratio of what was reached to an upper bound."""
    worst = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, d, causal = int(rng.integers(2, 12)), int(rng.integers(1, 5)), bool(seed % 2)
        A = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-2, 0.5)
        V = None if seed % 3 else rng.standard_normal((d, d))
        tokens = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 0.3)
        result = climb_lipschitz(tokens, A, V, causal=causal, steps=steps)
        assert result.value >= result.start_value
        assert np.linalg.norm(result.tokens, axis=1).max() <= result.radius * (1 + 1e-12)
        bounds = lipschitz_bounds(A, V, n, result.radius, causal=causal)
        for bound in bounds.applying("upper"):
            worst = max(worst, result.value / bound.value)
    return worst


def test_climbing_does_not_pass_an_upper_bound():
    assert 0.3 < attack(range(6), steps=20) <= 1 + 1e-9


@pytest.mark.slow
def test_climbing_long_does_not_pass_an_upper_bound():
    assert 0.3 < attack(range(100, 140), steps=80) <= 1 + 1e-9


def test_climbing_finds_much_worse_tokens():
    """From random tokens towards what the adversarial configuration proves to be there."""
    rng = np.random.default_rng(0)
    A = np.diag([-1.0, 0.3, 0.2])
    tokens = rng.standard_normal((20, 3))
    tokens *= 3 / np.linalg.norm(tokens, axis=1).max()
    result = climb_lipschitz(tokens, A, steps=60)
    assert result.gain > 2
    assert (np.diff(result.history) >= 0).all()
    assert result.value > 0.9 * lipschitz_bounds(A, None, 20, 3.0)["discrete lower"].value
    assert local_lipschitz(result.tokens, A).value == pytest.approx(result.value, rel=1e-5)


def test_the_gradient_is_that_of_the_constant():
    rng = np.random.default_rng(0)
    f = AttentionMap.of(rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 3)), causal=True)
    x = torch.as_tensor(rng.standard_normal((1, 5, 3)))
    h = torch.as_tensor(rng.standard_normal((1, 5, 3)))

    def constant(t: torch.Tensor) -> float:
        return float(torch.linalg.matrix_norm(torch.func.jacrev(f)(t[0]).reshape(15, 15), 2))

    _, u, v = ascent._triplet(f, x, 0)
    slope = float((ascent._gradient(f, x, u, v) * h).sum())
    assert slope == pytest.approx((constant(x + 1e-5 * h) - constant(x - 1e-5 * h)) / 2e-5, rel=2e-2)


def test_on_the_sphere_and_with_a_radius():
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((6, 3))
    result = climb_lipschitz(tokens, -np.eye(3), radius=2.0, surface="sphere", steps=15)
    np.testing.assert_allclose(np.linalg.norm(result.tokens, axis=1), 2.0)
    assert result.gain > 1


def test_bad_input():
    with pytest.raises(ga.GeoattnError, match="one cloud"):
        climb_lipschitz(np.zeros((2, 3, 2)), np.eye(2))
    with pytest.raises(ga.GeoattnError, match="no direction to climb"):
        climb_lipschitz(np.zeros((3, 2)), np.eye(2))
    with pytest.raises(ga.GeoattnError, match="radius must be a finite number above 0"):
        climb_lipschitz(np.ones((3, 2)), np.eye(2), radius=-1)
    with pytest.raises(ga.GeoattnError, match="steps must be a whole number of at least 1"):
        climb_lipschitz(np.ones((3, 2)), np.eye(2), steps=0)
