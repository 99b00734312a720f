from __future__ import annotations

import math

import numpy as np
import pytest

import geoattn as ga
from geoattn.smoothness.adversarial import adversarial_tokens
from geoattn.smoothness.bounds import lipschitz_bounds
from geoattn.smoothness.local import local_lipschitz

MATRICES = [(np.diag([-1.0, 0.3, 0.2, 0.1]), 1), (np.diag([8.0, -0.3, 0.2, 0.1]), 0)]


def exponent(A: np.ndarray, R: float, sizes: list[int], less: int) -> float:
    """Slope of log constant against log(n - less)."""
    values = [local_lipschitz(adversarial_tokens(A, n, R), A).value for n in sizes]
    return float(np.polyfit(np.log(np.array(sizes) - less), np.log(values), 1)[0])


@pytest.mark.parametrize(("A", "less"), MATRICES, ids=["opposite", "half"])
def test_the_exponent_is_one_half(A, less):
    """In n - 1 for tokens on opposite sides; in n where the odd token attends to itself and so counts, too."""
    R = math.sqrt(20)  # R^2 gamma = 20
    sizes = [2, 3, 6, 11, 21, 41, 81, 161]
    assert exponent(A, R, sizes, less) == pytest.approx(0.5, abs=1e-3)
    for n in sizes:
        value = local_lipschitz(adversarial_tokens(A, n, R), A).value
        assert value >= lipschitz_bounds(A, None, n, R)["discrete lower"].value * (1 - 1e-9)
        assert value == pytest.approx(math.sqrt(n - less), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("A", "less"), MATRICES, ids=["opposite", "half"])
def test_the_exponent_is_one_half_to_4097_tokens(A, less):
    assert exponent(A, math.sqrt(20), [2, 5, 17, 65, 257, 1025, 4097], less) == pytest.approx(0.5, abs=1e-3)


def test_lower_bounds_are_reached_for_random_matrices():
    """Both lower bounds, causal or not, any V: no violation where tokens exist that prove them."""
    rng = np.random.default_rng(0)
    tightest = math.inf
    for trial in range(90):
        d, n = int(rng.integers(1, 5)), int(rng.integers(2, 30))
        A = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-1, 0.7)
        A = (A + A.T) / 2 if trial % 2 else A
        V = None if trial % 3 else rng.standard_normal((d, d))
        R, causal = 10.0 ** rng.uniform(-0.5, 0.5), bool(rng.random() < 0.5)
        bounds = lipschitz_bounds(A, V, n, R, causal=causal)
        try:
            tokens = adversarial_tokens(A, n, R)
        except ga.GeoattnError:
            assert not bounds["discrete lower, any V"].applies
            continue
        assert np.linalg.norm(tokens, axis=1).max() <= R * (1 + 1e-12)
        value = local_lipschitz(tokens, A, V, causal=causal).value
        for name in ("discrete lower", "discrete lower, any V"):
            if bounds[name].applies:
                assert value >= bounds[name].value * (1 - 1e-9)
        tightest = min(tightest, value / bounds["discrete lower, any V"].value)
        for upper in bounds.applying("upper"):
            assert value <= upper.value * (1 + 1e-9)
    assert tightest < 1.001


@pytest.mark.parametrize("n", [3, 4, 9, 20])
def test_the_quadratic_lower_bound_is_reached(n):
    rng = np.random.default_rng(n)
    A, V, R = rng.standard_normal((3, 3)), rng.standard_normal((3, 3)), 4.0
    w = np.linalg.svd(A)[0][:, 0]
    k = (n - 1) // 2
    tokens = np.concatenate([np.outer([R] * k + [-R] * k, w), np.zeros((n - 2 * k, 3))])
    bound = lipschitz_bounds(A, V, n, R)["quadratic lower"].value
    assert bound > 1
    for causal in (False, True):
        assert local_lipschitz(tokens, A, V, causal=causal).value >= bound


def test_several_heads():
    """The tokens of one head still give sqrt(n) when the others take part; the best head is found."""
    rng = np.random.default_rng(0)
    h, d, R = 3, 4, 8.0
    A, V, W = rng.standard_normal((h, d, d)), rng.standard_normal((h, d, d)), rng.standard_normal((h, d, d))
    values = []
    for n in (17, 65, 257):
        best = local_lipschitz(adversarial_tokens(A, n, R, V=V, W=W), A, V, W=W).value
        for head in range(h):
            for name in ("half", "opposite"):
                try:
                    tokens = adversarial_tokens(A, n, R, head=head, configuration=name)
                except ga.GeoattnError:
                    continue
                assert np.linalg.norm(tokens, axis=1).max() <= R * (1 + 1e-12)
                value = local_lipschitz(tokens, A, V, W=W).value
                assert best >= 0.98 * value
                if (head, name) == (1, "opposite"):
                    values.append(value)
        assert best <= lipschitz_bounds(A, V, n, R, W=W)["multi-head upper, sharper"].value
    assert np.polyfit(np.log([16, 64, 256]), np.log(values), 1)[0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("surface", ["sphere", "layernorm"])
def test_on_the_sphere(surface):
    rng = np.random.default_rng(1)
    d, R = 6, math.sqrt(6) * 3
    for A in (rng.standard_normal((d, d)), np.diag(np.arange(1.0, d + 1)), -np.eye(d)):
        values = []
        for n in (5, 17, 65):
            tokens = adversarial_tokens(A, n, R, surface=surface)
            np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), R)
            if surface == "layernorm":
                np.testing.assert_allclose(tokens.mean(axis=1), 0, atol=1e-12)
            logits = tokens @ A.T @ tokens.T
            weights = np.exp(logits - logits.max(1, keepdims=True))
            P = (weights / weights.sum(1, keepdims=True))[1, 0]
            values.append(local_lipschitz(tokens, A).value)
            assert values[-1] >= P * math.sqrt(n - 1) * (1 - 1e-9)
        assert P > 0.9
        assert np.polyfit(np.log([4, 16, 64]), np.log(values), 1)[0] == pytest.approx(0.5, abs=0.05)


def test_the_gap_on_the_sphere_is_the_largest():
    """diag(1, 0): cos(t) - cos(t)^2 is largest at 60 degrees, a quarter; -I: opposite points, 2."""
    for A, gap in ((np.diag([1.0, 0.0]), 0.25), (-np.eye(2), 2.0), (np.diag([1.0, -1.0]), 2.0)):
        x = adversarial_tokens(A, 2, 1.0, surface="sphere")
        assert x[1] @ A.T @ (x[0] - x[1]) == pytest.approx(gap, abs=1e-6)


def test_after_layer_norm_with_radius_sqrt_d():
    """Tokens that LayerNorm leaves where they are."""
    rng = np.random.default_rng(2)
    d = 8
    tokens = adversarial_tokens(4 * rng.standard_normal((d, d)), 10, math.sqrt(d), surface="layernorm")
    normed = (tokens - tokens.mean(1, keepdims=True)) / tokens.std(1, keepdims=True)
    np.testing.assert_allclose(normed, tokens, atol=1e-12)


TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((TURN, 5, 1.0), {}, "no real eigenvalue"),
        ((np.stack([TURN, TURN]), 5, 1.0), {}, "in every head"),
        ((np.eye(2), 5, 1.0), {"configuration": "opposite"}, "needs a negative real eigenvalue"),
        ((-np.eye(2), 5, 1.0), {"configuration": "half"}, "needs a positive real eigenvalue"),
        ((np.zeros((2, 2)), 5, 1.0), {}, "needs a negative real eigenvalue"),
        ((np.eye(2), 5, 1.0), {"surface": "sphere"}, "multiple of the identity"),
        ((np.eye(2), 5, 1.0), {"surface": "layernorm"}, "too few coordinates"),
        ((np.eye(2), 5, 1.0), {"surface": "sphere", "configuration": "half"}, "in the ball"),
        ((np.eye(2), 1, 1.0), {}, "n must be a whole number of at least 2"),
        ((np.eye(2), 5, 0.0), {}, "R must be a finite number above 0"),
        ((np.ones((2, 3)), 5, 1.0), {}, "square"),
        ((np.eye(2), 5, 1.0), {"head": 1}, "head must be below 1"),
    ],
)
def test_bad_input(arguments, options, words):
    with pytest.raises(ga.GeoattnError, match=words):
        adversarial_tokens(*arguments, **options)
