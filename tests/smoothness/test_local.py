from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.smoothness import local
from geoattn.smoothness import operator_norm as search
from geoattn.smoothness.local import local_lipschitz
from geoattn.smoothness.result import Convergence
from tests.smoothness.cases import Case, draw


def against_svd(seeds: range, largest: int) -> tuple[float, int]:
    """Largest relative error against the SVD of the dense Jacobian; all must converge."""
    worst, at = 0.0, -1
    for seed in seeds:
        case = draw(seed, largest=largest)
        result = local_lipschitz(case.tokens, **case.arguments)
        expected = case.norm()
        assert result.status == Convergence.CONVERGED, seed
        assert result.lower <= expected * (1 + 1e-7)
        error = abs(result.value - expected)
        error = error / expected if error > result.settings["rounding"] else 0.0  # of terms that cancel to nothing
        worst, at = max((worst, at), (error, seed))
    return worst, at


def test_the_svd_of_the_dense_jacobian_on_90_cases():
    worst, seed = against_svd(range(1000, 1090), largest=250)
    assert worst <= 1e-6, seed


@pytest.mark.slow
def test_the_svd_of_the_dense_jacobian_on_1000_cases():
    worst, seed = against_svd(range(1000), largest=1000)
    assert worst <= 1e-6, seed


# ---- closed forms


def test_one_token():
    V = np.diag([3.0, -4.0])
    result = local_lipschitz(np.array([[0.3, -2.0]]), np.eye(2), V)
    assert result.value == pytest.approx(4.0, rel=1e-12)
    assert result.residual < 1e-12
    assert isinstance(result.value, float)


@pytest.mark.parametrize("causal", [False, True])
def test_tokens_at_zero(causal):
    """Uniform weights: V times the averaging matrix, whose norm is 1; causal: that of the matrix of running means."""
    V = np.array([[1.0, 2.0], [0.0, 1.0]])
    result = local_lipschitz(np.zeros((7, 2)), np.eye(2), V, causal=causal)
    means = np.tril(np.ones((7, 7))) / np.arange(1, 8)[:, None] if causal else np.full((7, 7), 1 / 7)
    assert result.value == pytest.approx(np.linalg.norm(V, 2) * np.linalg.norm(means, 2), rel=1e-12)
    shifted = local_lipschitz(np.full((7, 2), 1e-160), np.eye(2), V, causal=causal)  # underflows to the same limit
    assert shifted.value == pytest.approx(result.value, rel=1e-12)


def test_values_of_zero():
    result = local_lipschitz(np.ones((3, 2)), np.eye(2), np.zeros((2, 2)))
    assert result.value == 0
    assert result.residual == 0
    assert result.status == Convergence.CONVERGED


@pytest.mark.parametrize(("s", "expected"), [(1.0, 1.52), (10.0, 67.0), (100.0, 6667.0)])
def test_dot_product_attention_is_not_lipschitz(s, expected):
    """One token at 0, others at +-s: the derivative of the first output is 1/3 + 2/3 s^2."""
    result = local_lipschitz(np.array([[0.0], [s], [-s]]), np.eye(1))
    assert result.value == pytest.approx(expected, rel=4e-3)
    assert result.value >= 1 / 3 + 2 / 3 * s**2


def test_the_worked_example():
    """Opposite tokens, R = 1.4, gamma = 1, n = 51."""
    u = np.zeros(3)
    u[0] = 1.4
    result = local_lipschitz(np.stack([-u] + [u] * 50), np.diag([-1.0, 0.3, 0.2]))
    assert result.value == pytest.approx(10.760, abs=1e-3)


# ---- laws


def test_power_iteration_of_the_right_quantity():
    """Not that of |J^T f(X)|: doubling V doubles the value, and J v is as long as it says."""
    case = draw(7, "causal")
    one = local_lipschitz(case.tokens, **case.arguments)
    V = case.arguments.get("V", np.eye(case.tokens.shape[1]))
    two = local_lipschitz(case.tokens, **{**case.arguments, "V": 2 * V})
    assert two.value == pytest.approx(2 * one.value, rel=1e-9)
    J = case.dense().numpy()
    np.testing.assert_allclose(np.linalg.norm(J @ one.direction.ravel()), one.value, rtol=1e-9)
    np.testing.assert_allclose(J.T @ one.response.ravel(), one.value * one.direction.ravel(), atol=2e-6 * one.value)
    assert np.linalg.norm(one.moves()) == pytest.approx(1)


def test_order_of_tokens_does_not_matter():
    rng = np.random.default_rng(0)
    tokens, A = rng.standard_normal((9, 4)), rng.standard_normal((4, 4))
    order = rng.permutation(9)
    one, two = local_lipschitz(tokens, A), local_lipschitz(tokens[order], A)
    assert one.value == pytest.approx(two.value, rel=1e-9)


def test_a_pair_of_factors_is_their_product():
    rng = np.random.default_rng(0)
    tokens, Q, K, W, V = (rng.standard_normal(s) for s in ((8, 5), (2, 3, 5), (2, 3, 5), (2, 5, 3), (2, 3, 5)))
    one = local_lipschitz(tokens, (Q, K), V, W=W)
    two = local_lipschitz(tokens, np.swapaxes(K, 1, 2) @ Q, W @ V)
    assert one.value == pytest.approx(two.value, rel=1e-9)


def test_heads_bound_the_sum():
    rng = np.random.default_rng(3)
    tokens, A, V = rng.standard_normal((10, 4)), rng.standard_normal((3, 4, 4)), rng.standard_normal((3, 4, 4))
    together = local_lipschitz(tokens, A, V).value
    assert together <= sum(local_lipschitz(tokens, A[h], V[h]).value for h in range(3)) * (1 + 1e-9)


def test_batches_and_padding():
    rng = np.random.default_rng(0)
    tokens, A = rng.standard_normal((3, 8, 4)), rng.standard_normal((4, 4))
    mask = np.array([[1] * 8, [1] * 5 + [0] * 3, [0, 0, 1, 1, 1, 0, 1, 1]])
    tokens[mask == 0] = np.nan  # what is padded does not matter
    result = local_lipschitz(tokens, A, mask=mask, causal=True)
    assert result.value.shape == result.residual.shape == result.status.shape == (3,)
    assert result.direction.shape == (3, 8, 4)
    assert not result.direction[mask == 0].any()
    for k in range(3):
        alone = local_lipschitz(tokens[k][mask[k] == 1], A, causal=True)
        assert result.value[k] == pytest.approx(alone.value, rel=1e-9)


def test_samples_in_groups(monkeypatch):
    rng = np.random.default_rng(0)
    tokens, A = rng.standard_normal((5, 6, 3)), rng.standard_normal((3, 3))
    mask = rng.random((5, 6)) < 0.8
    mask[:, 0] = True
    whole = local_lipschitz(tokens, A, mask=mask)
    monkeypatch.setattr(local, "_BASIS_BYTES", 2.5 * 33 * 36 * 2 * 8)  # two at a time
    parts = local_lipschitz(tokens, A, mask=mask)
    np.testing.assert_allclose(parts.value, whole.value, rtol=1e-9)
    assert parts.direction.shape == whole.direction.shape


def test_cross_attention_by_what_moves():
    rng = np.random.default_rng(0)
    tokens, context, A = rng.standard_normal((5, 3)), rng.standard_normal((7, 4)), rng.standard_normal((4, 3))
    parts = {w: local_lipschitz(tokens, A, context=context, wrt=w) for w in ("tokens", "context", "both")}
    assert max(parts["tokens"].value, parts["context"].value) <= parts["both"].value
    assert parts["both"].value <= np.hypot(parts["tokens"].value, parts["context"].value) * (1 + 1e-9)
    assert parts["both"].direction.shape == (5, 3)
    assert parts["both"].context_direction.shape == (7, 4)
    assert parts["context"].direction is None
    assert parts["tokens"].context_direction is None


def test_self_attention_is_cross_attention_with_itself():
    """The move of tokens and context together, along the diagonal."""
    case = draw(3, "plain", largest=60, logits=1.0)
    tokens, A = case.tokens, case.arguments["A"][0]
    J = Case(tokens, {"A": A, "context": tokens}).dense()
    half = J.shape[1] // 2
    own = float(torch.linalg.matrix_norm(J[:, :half] + J[:, half:], 2))
    assert local_lipschitz(tokens, A).value == pytest.approx(own, rel=1e-9)


def test_same_numbers_each_time_whatever_the_batch():
    rng = np.random.default_rng(0)
    tokens, A = rng.standard_normal((2, 6, 3)), rng.standard_normal((3, 3))
    torch.manual_seed(1)
    one = local_lipschitz(tokens, A)
    torch.manual_seed(2)
    two = local_lipschitz(tokens, A)
    np.testing.assert_array_equal(one.value, two.value)
    np.testing.assert_array_equal(one.direction, two.direction)
    assert local_lipschitz(tokens, A, seed=1).value == pytest.approx(one.value, rel=1e-9)
    assert not np.array_equal(local_lipschitz(tokens, A, seed=1).direction, one.direction)


@pytest.mark.parametrize("kind", ["plain", "causal padded", "heads factored", "cross", "around"])
def test_search_in_single_precision(kind):
    """The certificate is in float64, so the value is far better than the search."""
    for seed in range(5):
        case = draw(seed * 11, kind, largest=300, logits=1.5)
        exact = local_lipschitz(case.tokens, **case.arguments)
        quick = local_lipschitz(case.tokens, **case.arguments, search="float32", tolerance=1e-4)
        assert quick.value == pytest.approx(exact.value, rel=1e-6, abs=exact.settings["rounding"])
        assert quick.lower <= exact.value * (1 + 1e-12) + exact.settings["rounding"]


# ---- results that are no results


def test_too_few_steps_give_no_value():
    case = draw(4, "heads", largest=200)
    result = local_lipschitz(case.tokens, **case.arguments, iterations=1, tolerance=1e-9)
    assert result.status == Convergence.NOT_CONVERGED
    assert np.isnan(result.value)
    assert 0 < result.lower <= case.norm() * (1 + 1e-9)
    assert "more steps" in result.status.sentence


def test_starts_that_disagree_give_no_value(monkeypatch):
    """Two decoupled samples' worth of tokens, each start confined to one half: they find different values."""
    rng = np.random.default_rng(0)
    tokens = np.concatenate([rng.standard_normal((3, 2)), rng.standard_normal((3, 2))])

    def confined(b, starts, n, real, like, seed, round_):
        v = torch.zeros(2, n, dtype=like.dtype)
        v[0, : n // 2], v[1, n // 2 :] = 1.0, 1.0
        v[0, 0] = 1.0 if round_ == 0 else 0.0

        def draw_() -> torch.Tensor:
            return v.clone()

        return draw_

    # a block-diagonal operator: far apart tokens that attend within their half only
    tokens[:3, 0] += 60
    tokens[3:, 0] -= 60
    monkeypatch.setattr(search, "_fresh", confined)
    monkeypatch.setattr(search, "_ROUNDS", 1)
    result = local_lipschitz(tokens, np.diag([1.0, 1.0]))
    assert result.status == Convergence.STARTS_DISAGREE
    assert np.isnan(result.value)
    assert result.agreement > 1e-5


NAN_TOKENS = np.array([[0.0, 1.0], [np.nan, 0.0]])


@pytest.mark.parametrize(
    ("tokens", "arguments", "words"),
    [
        (NAN_TOKENS, {}, "token 1, coordinate 0"),
        (NAN_TOKENS[None], {}, "of sample 0"),
        (np.array([[np.inf, 0.0]]), {}, "finite"),
        (np.zeros((0, 2)), {}, "at least one token"),
        (np.zeros((2, 0)), {"A": np.zeros((0, 0))}, "at least one token"),
        (np.zeros(2), {}, r"shape \(n, d\)"),
        (np.zeros((1, 2, 2, 2)), {}, r"shape \(n, d\)"),
        (np.zeros((2, 2), dtype=int), {}, "floating dtype"),
        (torch.zeros(2, 2, dtype=torch.int64), {}, "floating dtype"),
        (torch.zeros(2, 2, device="meta"), {}, "dense tensor"),
        ([[1.0], [1.0, 2.0]], {}, "array of numbers"),
        (np.zeros((2, 3)), {}, "width 2"),
        (np.zeros((2, 2)), {"mask": [True]}, "mask of tokens must have shape"),
        (np.zeros((2, 2)), {"mask": [False, False]}, "no real token"),
        (np.zeros((2, 2)), {"mask": [0.5, 1.0]}, "boolean"),
        (np.zeros((2, 2)), {"context_mask": [True, True]}, "without a context"),
        (np.zeros((2, 2)), {"context": np.zeros((1, 2, 2))}, "same samples"),
        (np.zeros((2, 2)), {"context": np.zeros((3, 3))}, "context of width 2"),
        (np.zeros((2, 2)), {"starts": 0}, "starts must be a whole number of at least 1"),
        (np.zeros((2, 2)), {"starts": True}, "starts must be a whole number"),
        (np.zeros((2, 2)), {"iterations": 2.5}, "iterations must be a whole number"),
        (np.zeros((2, 2)), {"tolerance": 0.0}, "tolerance must be a finite number above 0"),
        (np.zeros((2, 2)), {"tolerance": float("nan")}, "tolerance must be a finite number"),
        (np.zeros((2, 2)), {"tolerance": "small"}, "tolerance must be a finite number"),
        (np.zeros((2, 2)), {"seed": -1}, "seed must be a whole number of at least 0"),
        (np.full((2, 2), 1e3), {"search": "float32"}, "search in float64"),
        (np.ones((2, 2)), {"V": np.eye(2) * 1e-200}, "V and W must together have a norm between"),
        (np.ones((2, 2)), {"V": np.eye(2) * 1e200}, "V and W must together have a norm between"),
    ],
)  # fmt: skip
def test_bad_input(tokens, arguments, words):
    with pytest.raises(ga.GeoattnError, match=words):
        local_lipschitz(tokens, **{"A": np.eye(2), **arguments})


def test_one_start_has_no_agreement():
    result = local_lipschitz(np.eye(3), np.eye(3), starts=1)
    assert result.status == Convergence.CONVERGED
    assert np.isnan(result.agreement)
