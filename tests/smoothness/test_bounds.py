from __future__ import annotations

import math

import numpy as np
import pytest

import geoattn as ga
from geoattn.smoothness.bounds import lipschitz_bounds
from geoattn.smoothness.eigenpairs import gamma_of
from geoattn.smoothness.local import local_lipschitz


def dense_norms(X: np.ndarray, A: np.ndarray, V: np.ndarray, causal: bool) -> np.ndarray:
    """Spectral norms of many small Jacobians, each with its own (X, A, V), block by block from the formula."""
    t, n, d = X.shape
    logits = np.einsum("tij,tnj,tmi->tnm", A, X, X)
    if causal:
        logits = np.where(np.tril(np.ones((n, n), bool)), logits, -np.inf)
    P = np.exp(logits - logits.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    means = P @ X
    queries = np.einsum("tij,tnj->tni", A, X)
    apart = X[:, None] - means[:, :, None]  # t i j d
    J = P[..., None, None] * (np.eye(d) + apart[..., :, None] * queries[:, :, None, None, :])
    covariance = np.einsum("tij,tijk,tjl->tikl", P, apart, X)
    own = np.arange(n)
    J[:, own, own] += covariance @ A[:, None]
    J = np.einsum("tkl,tijlm->tikjm", V, J).reshape(t, n * d, n * d)
    return np.linalg.norm(J, 2, axis=(1, 2))


def in_ball(rng: np.random.Generator, t: int, n: int, d: int, R: np.ndarray) -> np.ndarray:
    """Clouds of several shapes, the farthest token at R."""
    X = rng.standard_normal((t, n, d))
    two = rng.random(t) < 0.3  # few distinct directions, as in the worst cases
    X[two] = np.sign(X[two, :, :1]) * X[two, :1] * rng.choice([1.0, 0.5, -1.0], (int(two.sum()), n, 1))
    sphere = rng.random(t) < 0.3
    X[sphere] /= np.linalg.norm(X[sphere], axis=-1, keepdims=True)
    return X * (R / np.linalg.norm(X, axis=-1).max(-1))[:, None, None]


def ratios_in(trials: int, seed: int) -> dict[str, float]:
    """The largest ratio of a local constant to each upper bound: 25 clouds for each of trials / 25 maps."""
    rng = np.random.default_rng(seed)
    ratios: dict[str, float] = {}
    for _ in range(trials // 25):
        n, d, causal = int(rng.integers(1, 9)), int(rng.integers(1, 5)), bool(rng.random() < 0.5)
        R = 10.0 ** rng.uniform(-2, 1)
        A = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 1)
        A = -A @ A.T if rng.random() < 0.3 else A
        V = np.eye(d) if rng.random() < 0.5 else rng.standard_normal((d, d))
        local = dense_norms(in_ball(rng, 25, n, d, np.full(25, R)), *(np.stack([m] * 25) for m in (A, V)), causal)
        for bound in lipschitz_bounds(A, V, n, R * (1 + 1e-12), causal=causal).applying("upper"):
            ratio = math.exp(math.log(local.max()) - bound.log_value)
            ratios[bound.name] = max(ratios.get(bound.name, 0.0), ratio)
    return ratios


def test_no_upper_bound_is_violated_in_10000_trials():
    ratios = ratios_in(10_000, seed=0)
    assert set(ratios) == {"discrete upper", "discrete upper, sharper", "mean-field upper", "masked upper, any n"}
    assert max(ratios.values()) <= 1 + 1e-9
    # the trials are no walkover
    assert ratios["discrete upper, sharper"] > 0.5
    assert ratios["discrete upper"] > 0.3
    assert ratios["mean-field upper"] > 0.9
    assert ratios["masked upper, any n"] > 0.6


def test_the_mean_field_bound_does_not_hold_with_a_mask():
    """Printed for both; but at zero tokens masked attention takes running means, whose norm grows to 2."""
    norms = [local_lipschitz(np.zeros((n, 1)), np.eye(1), causal=True).value for n in (2, 8, 64, 512)]
    assert norms == sorted(norms)
    assert norms[-1] > 1.7
    assert lipschitz_bounds(np.eye(1), None, 512, 0.0)["mean-field upper"].value == 1
    masked = lipschitz_bounds(np.eye(1), None, 512, 0.0, causal=True)
    assert not masked["mean-field upper"].applies
    assert masked["masked upper, any n"].value == pytest.approx(2)


def test_the_dense_formula_is_the_jacobian():
    rng = np.random.default_rng(0)
    X, A, V = rng.standard_normal((4, 6, 3)), rng.standard_normal((4, 3, 3)), rng.standard_normal((4, 3, 3))
    for causal in (False, True):
        ours = [local_lipschitz(X[k], A[k], V[k], causal=causal).value for k in range(4)]
        np.testing.assert_allclose(dense_norms(X, A, V, causal), ours, rtol=1e-9)


def test_the_sharper_bound_is_never_above_the_printed_one():
    rng = np.random.default_rng(0)
    for _ in range(100):
        A, V = rng.standard_normal((2, 3, 3)) * 10.0 ** rng.uniform(-4, 4)
        bounds = lipschitz_bounds(A, V, int(rng.integers(1, 10**6)), 10.0 ** rng.uniform(-4, 4))
        assert bounds["discrete upper, sharper"].log_value <= bounds["discrete upper"].log_value + 1e-12


def test_multi_head_bounds_hold():
    rng = np.random.default_rng(0)
    for _ in range(15):
        h, n, d = 3, int(rng.integers(1, 7)), 3
        A, V, W = (rng.standard_normal((h, d, d)) for _ in range(3))
        X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 0.7)
        bounds = lipschitz_bounds(A, V, n, np.linalg.norm(X, axis=1).max(), W=W)
        causal = bool(rng.random() < 0.5)
        local = local_lipschitz(X, A, V, W=W, causal=causal).value
        assert local <= bounds["multi-head upper, sharper"].value <= bounds["multi-head upper"].value


def test_formulas():
    A, V = np.diag([-2.0, 1.0]), np.diag([3.0, 1.0])
    b = lipschitz_bounds(A, V, 10, 1.5)
    assert b["discrete upper"].value == pytest.approx(math.sqrt(3) * 3 * math.sqrt(4 * 1.5**4 * 41 + 10))
    assert b["mean-field upper"].value == pytest.approx(3 * (1 + 3 * 2 * 2.25) * math.exp(4 * 2.25))
    assert not b["discrete lower"].applies
    assert "identity" in b["discrete lower"].reason
    assert math.isnan(b["discrete lower"].value)
    b = lipschitz_bounds(A, np.eye(2), 10, 1.5)
    assert b.gamma == pytest.approx(2.0)
    assert b.r2_gamma == pytest.approx(4.5)
    P = 1 / (1 + 9 * math.exp(-9))
    assert b["discrete lower"].value == pytest.approx(3 * P)
    assert b["discrete lower, any V"].value == pytest.approx(3 * P * (1 + 9 * (1 - P)))
    lower = b["mean-field lower"]
    assert lower.value == pytest.approx(1 * 2.25 * math.exp(4.5))
    assert lower.asymptotic
    assert lower not in b.applying()
    assert "infinity" in " ".join(lower.conditions)


def test_the_finite_mean_field_bound_approaches_the_asymptotic_one():
    """At n - 1 = exp(2 gamma R^2) it is half of (1 + gamma R^2) exp(gamma R^2)."""
    for R in (2.0, 5.0, 20.0, 100.0):
        b = lipschitz_bounds(-np.eye(3), None, 5, R)
        finite, limit = b["mean-field lower, finite"].log_value, b["mean-field lower"].log_value
        assert finite - limit == pytest.approx(math.log1p(1 / R**2), abs=1e-3)
        assert finite < b["mean-field upper"].log_value


def test_the_worked_example():
    b = lipschitz_bounds(np.diag([-1.0, 0.3, 0.2]), None, 51, 1.4)
    assert b["mean-field lower"].value == pytest.approx(6.957, abs=1e-3)
    assert b["mean-field upper"].value == pytest.approx(346.8, abs=0.1)
    assert b["discrete lower, any V"].value == pytest.approx(10.479, abs=1e-3)


def test_huge_radius_does_not_overflow_silently():
    b = lipschitz_bounds(-np.eye(2), None, 1000, 1e6)
    top = b["mean-field upper"]
    assert top.overflows
    assert top.value == math.inf
    assert top.log_value == pytest.approx(2e12, rel=1e-9)
    assert b["discrete lower"].value == pytest.approx(math.sqrt(999))
    assert b["discrete upper"].value == pytest.approx(math.sqrt(3 * (1e24 * 4001 + 1000)))
    far = lipschitz_bounds(np.eye(2) * 1e100, None, 3, 1e100)
    assert far["discrete upper"].log_value == pytest.approx(math.log(math.sqrt(39)) + 300 * math.log(10))
    assert not any(math.isnan(x.log_value) for x in far if x.applies)


def test_limits():
    b = lipschitz_bounds(np.eye(2), None, 5, 0.0)  # R = 0: uniform weights, constant 1
    assert b["discrete upper"].value == pytest.approx(math.sqrt(15))
    assert b["discrete lower"].value == pytest.approx(2 / 5)
    assert b["mean-field upper"].value == pytest.approx(1)
    assert b["quadratic lower"].value == 0
    b = lipschitz_bounds(np.eye(2), None, 1, 3.0)
    assert b["discrete lower"].value == 0
    assert not b["quadratic lower"].applies
    b = lipschitz_bounds(np.zeros((2, 2)), np.zeros((2, 2)), 4, 1.0)
    assert b["discrete upper"].value == 0


def test_no_real_eigenvalue():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    b = lipschitz_bounds(turn, None, 5, 1.0)
    assert np.isnan(b.gamma[0])
    for name in ("discrete lower", "discrete lower, any V", "mean-field lower", "mean-field lower, finite"):
        assert not b[name].applies
        assert b[name].reason == "A has no real eigenvalue"
        assert math.isnan(b[name].value)
    assert b["discrete upper"].applies


def test_gamma_per_head():
    A = np.stack([np.diag([-1.0, 2.0]), np.diag([16.0, -1.0]), np.array([[0.0, -1.0], [1.0, 0.0]])])
    b = lipschitz_bounds(A, None, 5, 2.0)
    np.testing.assert_allclose(b.gamma, [1.0, 2.0, np.nan])
    np.testing.assert_allclose(b.r2_gamma, [4.0, 8.0, np.nan])
    assert gamma_of(A[0])[2] == "opposite"
    assert gamma_of(A[1])[2] == "half"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones((2, 3)), None, 5, 1.0), "square"),
        ((np.eye(2), np.ones((2, 3)), 5, 1.0), "V must have 2 columns"),
        ((np.ones((2, 2, 2)), np.ones((3, 2, 2)), 5, 1.0), "number of heads"),
        ((np.eye(2), None, 0, 1.0), "n must be a whole number of at least 1"),
        ((np.eye(2), None, 2.0, 1.0), "n must be a whole number"),
        ((np.eye(2), None, 5, -1.0), "R must be a finite number of at least 0"),
        ((np.eye(2), None, 5, float("inf")), "R must be a finite number"),
        ((np.eye(2), None, 5, 1e101), "at most 1e100"),
        ((np.full((2, 2), np.nan), None, 5, 1.0), "A must be finite"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(ga.GeoattnError, match=words):
        lipschitz_bounds(*arguments)


def test_bad_name():
    names = "there are 'discrete upper', 'discrete upper, sharper', "
    with pytest.raises(ga.GeoattnError, match=f"no bound is called 'upper'; {names}"):
        lipschitz_bounds(np.eye(2), None, 5, 1.0)["upper"]


def test_bounds_as_a_table():
    bounds = ga.lipschitz_bounds(-np.eye(2), None, n=10, R=2.0)
    table = bounds.to_pandas()
    assert list(table["name"]) == [bound.name for bound in bounds]
    np.testing.assert_array_equal(table["value"], [bound.value for bound in bounds])
    assert (table["reason"] != "").equals(~table["applies"])
