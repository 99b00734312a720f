"""The gradient share: one for gradient flows, less for others, the same by a dense Jacobian and by probes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.gradient_derivative import Derivative, covariant_derivative
from geoattn.dynamics.gradient_shares import gradient_share
from geoattn.dynamics.starts import uniform_tokens


def matrices(d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A symmetric and an antisymmetric matrix."""
    m = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (m + m.T) / 2, (m - m.T) / 2


def dense_share(x: torch.Tensor, D: torch.Tensor, V: torch.Tensor, beta: float) -> float:
    """By autograd of the one-form w m v, in a basis of the tangent space."""
    n, d = x.shape

    def one_form(flat: torch.Tensor) -> torch.Tensor:
        y = flat.reshape(n, d)
        y = y / y.norm(dim=-1, keepdim=True)
        kernel = (beta * y @ D @ y.T).exp() / n
        out = kernel @ y @ V.T
        return (out - (y * out).sum(-1, keepdim=True) * y).reshape(-1)

    J = torch.autograd.functional.jacobian(one_form, x.reshape(-1))
    frames = torch.block_diag(*(torch.linalg.svd(row[None]).Vh[1:] for row in x))
    J = frames @ J @ frames.T
    return float(((J + J.T) / 2).square().sum() / J.square().sum())


@pytest.mark.parametrize("seed", range(3))
def test_against_a_dense_jacobian(seed):
    x, (S, K) = uniform_tokens(6, 3, seed=seed), matrices(3, seed)
    V = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed + 9), dtype=torch.float64)
    found = gradient_share(x, S + K, V, beta=1.3)
    assert found.share == pytest.approx(dense_share(x, S + K, V, 1.3), abs=1e-6)
    assert found.low == found.share == found.high


@pytest.mark.parametrize("sign", [1.0, -1.0, 2.5])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_gradient_flows_have_all_of_it(sign, d):
    x, (S, _) = uniform_tokens(7, d, seed=d), matrices(d, d)
    found = gradient_share(x, S, sign * S, beta=0.8)
    assert found.share == pytest.approx(1.0, abs=1e-12)
    assert found.symmetry == pytest.approx(1.0, abs=1e-14)
    assert found.alignment == pytest.approx(math.copysign(1.0, sign), abs=1e-12)
    assert found.residual == pytest.approx(0.0, abs=1e-12)
    weights = np.random.default_rng(0).dirichlet(np.ones(7))
    assert gradient_share(x, S, sign * S, weights=weights, fit=False).share == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_it_falls_with_the_antisymmetric_part(seed):
    x, (S, K) = uniform_tokens(6, 3, seed=seed), matrices(3, seed)
    shares = [gradient_share(x, S + t * K, S + t * K, fit=False).share for t in np.linspace(0, 1, 6)]
    assert shares[0] == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(shares) < 0).all()


@pytest.mark.parametrize("n", [6, 40])
def test_probes(n):
    """The interval holds the dense value; with many probes it is narrow."""
    x, (S, K) = uniform_tokens(n, 4, seed=1), matrices(4, 2)
    exact = gradient_share(x, S + K, S, method="dense", fit=False).share
    found = gradient_share(x, S + K, S, method="probes", probes=400, fit=False)
    assert found.low <= exact <= found.high
    assert found.high - found.low < 0.05
    assert gradient_share(x, S, S, method="probes", fit=False).share == pytest.approx(1.0, abs=1e-12)


def test_the_interval_holds_as_often_as_it_says():
    x, (S, K) = uniform_tokens(8, 3, seed=1), matrices(3, 2)
    exact = gradient_share(x, S + K, S, fit=False).share
    runs = [gradient_share(x, S + K, S, method="probes", probes=24, fit=False, seed=k) for k in range(100)]
    assert sum(r.low <= exact <= r.high for r in runs) >= 88


def test_the_derivative_is_that_of_the_flow():
    """J times a tangent vector is the covariant difference of w m v along it."""
    x, (S, K) = uniform_tokens(5, 3, seed=3), matrices(3, 4)
    D, V, w = S + K, S - 2 * K, torch.full((5,), 0.2, dtype=torch.float64)
    u = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = u - (u * x).sum(-1, keepdim=True) * x

    def one_form(y: torch.Tensor) -> torch.Tensor:
        y = y / y.norm(dim=-1, keepdim=True)
        return (y @ D @ y.T).exp().mean(-1)[:, None] * velocity(y, D=D, V=V)

    h = 1e-5
    difference = (one_form(x + h * u) - one_form(x - h * u)) / (2 * h)
    difference = difference - (difference * x).sum(-1, keepdim=True) * x
    J = covariant_derivative(x, w, D, V)
    scale = float((x @ D @ x.T).exp().max())
    np.testing.assert_allclose(J @ u.reshape(-1) * scale, difference.reshape(-1), atol=1e-8)


@pytest.mark.parametrize("norm", ["round", "mobility"])
def test_products_are_those_of_the_matrix(norm):
    x, (S, K) = uniform_tokens(5, 4, seed=3), matrices(4, 4)
    w = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15], dtype=torch.float64)
    J = covariant_derivative(x, w, 2 * S + K, S - 2 * K, norm)
    products = Derivative(x, w, 2 * S + K, S - 2 * K, norm)
    u = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(products.apply(u).flatten(1), u.flatten(1) @ J.T, atol=1e-12)
    np.testing.assert_allclose(products.adjoint(u).flatten(1), u.flatten(1) @ J, atol=1e-12)


def test_the_norm_of_the_metric():
    """J / sqrt(m_i m_j) by the dense Jacobian of the round norm; one for gradient flows; probes agree."""
    x, (S, K) = uniform_tokens(6, 3, seed=3), matrices(3, 4)
    w, mass = torch.full((6,), 1 / 6, dtype=torch.float64), (x @ (S + K) @ x.T).exp().mean(-1)
    J = covariant_derivative(x, w, S + K, S) * float((x @ (S + K) @ x.T).exp().max())
    J = J / (mass[:, None] * mass[None, :]).sqrt().repeat_interleave(3, 0).repeat_interleave(3, 1)
    found = gradient_share(x, S + K, S, norm="mobility", fit=False)
    assert found.share == pytest.approx(float(((J + J.T) / 2).square().sum() / J.square().sum()), abs=1e-12)
    assert gradient_share(x, S, -S, norm="mobility").share == pytest.approx(1.0, abs=1e-12)
    drawn = gradient_share(x, S + K, S, norm="mobility", fit=False, method="probes", probes=400)
    assert drawn.low <= found.share <= drawn.high


def test_large_logits():
    """Logits of hundreds, as some heads have them: no overflow, and an energy that does not carry over is not used."""
    x, (S, K) = uniform_tokens(16, 3, seed=5), matrices(3, 6)
    for norm in ("round", "mobility"):
        found = gradient_share(x, 300 * (S + K), S - K, norm=norm)
        assert 0 <= found.share <= 1
        assert 0 <= found.residual < 10
    assert gradient_share(x, 300 * S, 300 * S, norm="mobility").residual == pytest.approx(0.0, abs=1e-12)


def test_the_fit_in_the_span_of_few_tokens():
    """Six tokens in 40 dimensions: the fit in their span leaves at the tokens used what the whole one leaves."""
    from geoattn.dynamics.gradient_fit import _Fit, fit_energy

    x, (S, K) = uniform_tokens(6, 40, seed=5), matrices(40, 6)
    w, used = torch.full((6,), 1 / 6, dtype=torch.float64), torch.arange(6) % 2 == 0
    A, V = (S + K) / 4, (S - K) / 4
    found, c = fit_energy(x, w, A, V, used)
    fit = _Fit(x, w, A, V)
    _, start = fit.best((A + A.T) / 2, used)
    size = fit.loss(torch.zeros(()), fit.goal, used)
    assert fit.loss(torch.tensor(c), fit.found(found), used) / size < 1e-3 * float(start)
    np.testing.assert_allclose(found, found.T, atol=1e-14)


def test_residual_of_a_rotation_is_large():
    """V antisymmetric turns tokens round, which no energy explains."""
    x, (S, K) = uniform_tokens(30, 3, seed=5), matrices(3, 6)
    assert gradient_share(x, S, S).residual < 1e-10
    assert gradient_share(x, S, K).residual > 0.3


def test_one_token():
    x, (S, K) = uniform_tokens(1, 3, seed=1), matrices(3, 1)
    found = gradient_share(x, S, S)
    assert found.share == pytest.approx(1.0, abs=1e-12)
    assert math.isnan(found.residual)
    assert gradient_share(x, S, S + K).share < 1


def test_coincident_tokens():
    x, (S, _) = uniform_tokens(3, 3, seed=1), matrices(3, 1)
    assert gradient_share(torch.cat([x, x]), S, S).share == pytest.approx(1.0, abs=1e-12)


def test_it_shows_itself():
    found = gradient_share(uniform_tokens(4, 3), method="probes", fit=False)
    assert "GradientShare(1 in [1.0000, 1.0000]" in repr(found)
    assert "<table>" in found._repr_html_()
    assert set(found.to_dict()) == {"share", "low", "high", "residual", "symmetry", "alignment"}


X = uniform_tokens(3, 3)


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (2 * X, {}, "unit sphere"),
        (X, {"V": 0.0}, "0/0"),
        (X, {"weights": [0.5, 0.5, 0.5]}, "sum to one"),
        (X, {"D": np.eye(2)}, "D must be a number or a matrix"),
        (X, {"method": "guess"}, "method must be one of"),
        (X, {"norm": "flat"}, "norm must be one of"),
        (X, {"method": "probes", "probes": 1}, "probes"),
        (X[None], {}, "one .n, d. array"),
    ],
)
def test_bad_input(tokens, options, message):
    with pytest.raises(GeoattnError, match=message):
        gradient_share(tokens, **options)
