from __future__ import annotations

import numpy as np
import ot
import pytest

import geoattn as ga
from geoattn.smoothness.wasserstein import TokenMeasure, wasserstein2


def draw(rng: np.random.Generator, n: int, d: int, equal: bool) -> TokenMeasure:
    w = None if equal else rng.dirichlet(np.ones(n))
    if w is not None and n > 3:
        w[0], w[1] = 0.0, w[0] + w[1]  # an atom without mass
    return TokenMeasure.of(rng.standard_normal((n, d)), w)


@pytest.mark.parametrize("equal", [True, False])
def test_against_pot(equal):
    rng = np.random.default_rng(0)
    for _ in range(20):
        n, d = int(rng.integers(1, 15)), int(rng.integers(1, 4))
        m = n if equal else int(rng.integers(1, 15))
        mu, nu = draw(rng, n, d, equal), draw(rng, m, d, equal)
        expected = ot.emd2(mu.weights, nu.weights, ot.dist(mu.points, nu.points))
        assert wasserstein2(mu, nu) ** 2 == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_it_is_a_metric():
    rng = np.random.default_rng(1)
    for _ in range(20):
        a, b, c = (draw(rng, 6, 2, bool(rng.random() < 0.5)) for _ in range(3))
        assert wasserstein2(a, b) == pytest.approx(wasserstein2(b, a), rel=1e-9)
        assert wasserstein2(a, c) <= wasserstein2(a, b) + wasserstein2(b, c) + 1e-9
        assert wasserstein2(a, a) == pytest.approx(0, abs=1e-7)


def test_shifts_and_scales():
    rng = np.random.default_rng(2)
    mu = draw(rng, 8, 3, False)
    shift = np.array([1.0, -2.0, 2.0])
    assert wasserstein2(mu, TokenMeasure.of(mu.points + shift, mu.weights)) == pytest.approx(3.0)
    tiny, moved = (TokenMeasure.of(1e-9 * x, mu.weights) for x in (mu.points, mu.points + shift))
    assert wasserstein2(tiny, moved) == pytest.approx(3e-9)


def test_positions():
    x, y = np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])
    s = np.array([0.5, 1.0])
    mu, nu = TokenMeasure.of(x, positions=s), TokenMeasure.of(y, positions=s)
    assert wasserstein2(mu, nu) == pytest.approx(1.0)  # each stays at its position
    assert wasserstein2(mu, nu, positions="ignored") == 0
    assert wasserstein2(mu, nu, positions="free") == pytest.approx(0.5)  # cheaper to change the position
    same = np.array([0.5, 0.5])
    assert wasserstein2(TokenMeasure.of(x, positions=same), TokenMeasure.of(y, positions=same)) == 0
    with pytest.raises(ga.GeoattnError, match="same mass at each"):
        wasserstein2(mu, TokenMeasure.of(y, positions=same))
    with pytest.raises(ga.GeoattnError, match="the other has not"):
        wasserstein2(mu, TokenMeasure.of(y))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((2, 2)), np.array([0.5, 0.6])), "sum to one"),
        ((np.zeros((2, 2)), np.array([1.5, -0.5])), "not negative"),
        ((np.zeros((2, 2)), np.array([np.nan, 1.0])), "not negative"),
        ((np.zeros((2, 2)), np.ones(3) / 3), "2 numbers"),
        ((np.zeros((2, 2)), None, np.array([0.0, 2.0])), r"in \[0, 1\]"),
        ((np.zeros((2, 2, 2)),), r"shape \(n, d\)"),
        ((np.array([[np.nan]]),), "points must be finite"),
    ],
)
def test_bad_measures(arguments, words):
    with pytest.raises(ga.GeoattnError, match=words):
        TokenMeasure.of(*arguments)


def test_dimensions_must_match():
    with pytest.raises(ga.GeoattnError, match="same dimension"):
        wasserstein2(TokenMeasure.of(np.zeros((2, 2))), TokenMeasure.of(np.zeros((2, 3))))
