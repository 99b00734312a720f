"""The laws that every kind of attention keeps, then the closed forms and limits of each."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.interaction import FLOWS, read_interaction
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import equiangular_tokens, uniform_tokens
from geoattn.dynamics.variants import VARIANTS, has_energy, push
from tests.dynamics.plain import plain_velocity

every_flow = pytest.mark.parametrize("flow", FLOWS)
smooth_flow = pytest.mark.parametrize("flow", [f for f in FLOWS if f != "hardmax"])
S = torch.tensor([[1.0, 0.3, 0.0], [0.3, 0.5, 0.2], [0.0, 0.2, -0.7]], dtype=torch.float64)
G = S + torch.tensor([[0.0, 0.4, 0.0], [-0.4, 0.0, 0.1], [0.0, -0.1, 0.0]], dtype=torch.float64)
X = uniform_tokens(7, 3, seed=4)


def test_registry():
    assert tuple(VARIANTS) == FLOWS
    for kind in VARIANTS.values():
        assert "arXiv" in kind.reference
        assert (kind.metric is None) == (kind.energy == "never")


@every_flow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_velocity_against_the_formula(flow, causal, weighed):
    if causal and not VARIANTS[flow].causal:
        with pytest.raises(GeoattnError, match="no causal version"):
            velocity(X, flow=flow, causal=True)
        return
    w = np.random.default_rng(1).dirichlet(np.ones(7)) if weighed else None
    common = {"beta": 1.7, "flow": flow, "causal": causal, "weights": w, "shift": 0.4}
    for D, V in ((S, G), (G, S), (S, 2.0 * torch.eye(3, dtype=torch.float64))):
        exact = plain_velocity(X.numpy(), D=D.numpy(), V=V.numpy(), **common)
        np.testing.assert_allclose(velocity(X, D=D, V=V, **common), exact, atol=1e-12)


@smooth_flow
@pytest.mark.parametrize("causal", [False, True])
def test_against_an_independent_integrator(flow, causal):
    """SciPy's DOP853 on the plain formula, to 1e-8."""
    if causal and not VARIANTS[flow].causal:
        return
    common = {"beta": 1.5, "flow": flow, "causal": causal, "shift": 0.3}

    def field(_: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(X.shape)
        return plain_velocity(x, D=G.numpy(), V=S.numpy(), **common).ravel()

    exact = solve_ivp(field, (0.0, 1.5), X.numpy().ravel(), method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    run = simulate(X, D=G, V=S, until=1.5, save=2, method="adaptive", tolerance=1e-11, **common)
    np.testing.assert_allclose(run.final, exact.reshape(X.shape), atol=1e-8)


@every_flow
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("D", [S, torch.eye(3, dtype=torch.float64)], ids=["symmetric", "identity"])
def test_energy(flow, sign, D):
    """The energy rises or falls all the time and keeps the dissipation identity, where there is one."""
    method = "rk4" if flow == "hardmax" else "adaptive"  # its field jumps, so that an adapted step never ends
    run = simulate(X, D=D, V=sign * D, beta=1.3, flow=flow, until=1.0, method=method, tolerance=1e-10, shift=0.2)
    settings = read_interaction(X, D=D, V=sign * D, beta=1.3, flow=flow)
    if not has_energy(settings):
        assert VARIANTS[flow].energy == "never" or (VARIANTS[flow].energy == "isotropic" and D is S)
        assert bool(run.work.isnan().all())
        return
    assert float(run.balance.max()) < 1e-8
    assert float((sign * run.log_energy.diff()).min()) > 0


@smooth_flow
def test_an_asymmetric_matrix_has_no_energy(flow):
    assert not has_energy(read_interaction(X, D=G, V=G, flow=flow))


@every_flow
def test_laws(flow):
    """Rotations commute, tokens that are one move as one of their masses, and a mask hides later tokens."""
    Q = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    turned = velocity(X @ Q.T, D=Q @ G @ Q.T, V=Q @ S @ Q.T, flow=flow, beta=2.0)
    np.testing.assert_allclose(turned, velocity(X, D=G, V=S, flow=flow, beta=2.0) @ Q.T, atol=1e-12)
    w = torch.tensor([2.0, 1, 1, 1, 1, 1, 1], dtype=torch.float64) / 8
    twice = velocity(torch.cat([X[:1], X]), D=G, V=S, flow=flow)
    np.testing.assert_allclose(twice[1:], velocity(X, D=G, V=S, flow=flow, weights=w), atol=1e-12)
    if VARIANTS[flow].causal:
        some, whole = (velocity(x, D=G, V=S, flow=flow, causal=True) for x in (X[:4], X))
        np.testing.assert_allclose(whole[:4], some, atol=1e-13)
    one = simulate(X[:1], V=1.0, flow=flow, until=1.0)
    np.testing.assert_allclose(one.final, X[:1], atol=1e-15)


@every_flow
def test_bad_tokens_and_weights(flow):
    """Unnormalised tokens and weights that do not sum to one are errors; coincident tokens rest, as one does."""
    with pytest.raises(GeoattnError, match="on the unit sphere"):
        simulate(2 * X, flow=flow, until=0.1)
    with pytest.raises(GeoattnError, match="weights must sum to one; got 7"):
        simulate(X, flow=flow, until=0.1, weights=np.ones(7))
    same = X[:1].expand(4, 3)
    np.testing.assert_allclose(simulate(same, flow=flow, until=1.0).final, same, atol=1e-15)


@every_flow
def test_batches_and_blocks(flow, monkeypatch):
    from geoattn.dynamics import variants

    x = uniform_tokens(9, 3, runs=2, seed=1)
    whole, _ = push(x, read_interaction(x, D=G, V=S, beta=[1.0, 2.0], flow=flow))
    monkeypatch.setattr(variants, "_BLOCK_ENTRIES", 40)
    parts, _ = push(x, read_interaction(x, D=G, V=S, beta=[1.0, 2.0], flow=flow))
    np.testing.assert_allclose(parts, whole, atol=1e-13)
    for k, beta in enumerate((1.0, 2.0)):
        single, _ = push(x[k : k + 1], read_interaction(x[k], D=G, V=S, beta=beta, flow=flow))
        np.testing.assert_allclose(whole[k], single[0], atol=1e-12)


# ---- closed forms and limits


@pytest.mark.parametrize("beta", [0.5, 2.0])
@pytest.mark.parametrize(
    ("flow", "slope"),
    [
        ("USA", lambda s: np.exp(s)),
        ("sigmoid", lambda s: 1 / (1 + np.exp(-s))),
        ("linear", lambda s: s),
    ],
)
def test_equiangular_tokens_of_pairwise_flows(flow, slope, beta):
    """The common cosine obeys g' = (2/n) f(beta g) (1 - g) ((n - 1) g + 1), f the weight of a logit."""
    n, start = 5, 0.2
    run = simulate(
        equiangular_tokens(n, start), beta=beta, flow=flow, until=1.0, save=2, method="adaptive", tolerance=1e-12
    )
    exact = solve_ivp(
        lambda _, g: 2 / n * slope(beta * g) * (1 - g) * ((n - 1) * g + 1), (0, 1), [start], rtol=1e-12, atol=1e-13
    ).y[0, -1]
    assert float(run.final[0] @ run.final[1]) == pytest.approx(exact, abs=1e-8)


def test_linear_attention_of_a_pair():
    """G = g0 e^(beta t) / sqrt(1 - g0^2 + g0^2 e^(2 beta t))."""
    run = simulate(equiangular_tokens(2, 0.3), beta=1.4, flow="linear", until=2.0, save=2, step=0.01)
    grown = 0.3 * math.exp(2.8)
    assert float(run.final[0] @ run.final[1]) == pytest.approx(grown / math.sqrt(1 - 0.09 + grown**2), abs=1e-8)


def test_linear_attention_without_a_sphere_moves_the_second_moment_by_its_own_equation():
    """In one line of directions: s(t) = s0 / (1 - 2 beta s0 t), the law of Gaussian clouds under softmax."""
    x = torch.stack([torch.linspace(-1, 1, 9, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)], -1)
    s = float(x[:, 0].square().mean())
    run = simulate(x, flow="linear", beta=0.5, norm="none", until=1.0, step=0.005, save=2)
    assert float(run.final[:, 0].square().mean()) == pytest.approx(s / (1 - s), abs=1e-8)


@pytest.mark.parametrize("n", [2, 6])
def test_sinkhorn_of_equiangular_tokens_is_softmax(n):
    x = equiangular_tokens(n, 0.1)
    both = [simulate(x, beta=2.0, flow=f, until=2.0, save=2, step=0.05).final for f in ("SA", "sinkhorn")]
    np.testing.assert_allclose(both[0], both[1], atol=1e-12)


def test_sinkhorn_at_beta_zero_and_at_large_beta():
    np.testing.assert_allclose(velocity(X, beta=0.0, flow="sinkhorn"), velocity(X, beta=0.0), atol=1e-14)
    assert float(velocity(X, beta=60.0, flow="sinkhorn").norm(dim=-1).max()) < 1e-2  # the identity couples best


def test_sinkhorn_energy_is_entropic_transport():
    """Against POT: the negative of the entropic cost of moving the tokens to themselves, with cost -<x, Dy>."""
    import ot

    beta = 1.3
    cost = -(X @ S @ X.T).numpy()
    plan = ot.sinkhorn(np.full(7, 1 / 7), np.full(7, 1 / 7), cost, 1 / beta, stopThr=1e-14, numItermax=10_000)
    exact = -beta * (plan * cost).sum() - (plan * np.log(plan * 49)).sum()
    _, log_energy = push(X[None], read_interaction(X, D=S, beta=beta, flow="sinkhorn"))
    assert float(log_energy[0, 0]) == pytest.approx(exact, abs=1e-9)
    _, softmax = push(X[None], read_interaction(X, D=S, beta=beta))
    assert float(log_energy[0, 0]) <= float(torch.logsumexp(softmax - math.log(7), -1))


def test_l2_is_softmax_on_the_sphere_for_the_identity():
    np.testing.assert_allclose(velocity(X, beta=3.0, flow="L2"), velocity(X, beta=3.0), atol=1e-14)
    assert float((velocity(X, D=S, beta=3.0, flow="L2") - velocity(X, D=S, beta=3.0)).abs().max()) > 1e-2


def test_sigmoid_with_a_large_shift_is_unnormalised_softmax():
    both = [velocity(X, D=G, V=S, beta=2.0, flow=f, shift=30.0) for f in ("USA", "sigmoid")]
    np.testing.assert_allclose(both[1] * 1e13, both[0] * 1e13, rtol=1e-10)


def test_hardmax_is_softmax_at_large_beta():
    np.testing.assert_allclose(velocity(X, D=G, V=S, flow="hardmax"), velocity(X, D=G, V=S, beta=2000.0), atol=1e-12)
    assert float(velocity(X, flow="hardmax").abs().max()) < 1e-15  # D = I: each token attends to itself


@pytest.mark.parametrize("causal", [False, True])
def test_hardmax_follows_a_leader(causal):
    """D = e1 e1^T: all attend to the token with the largest first coordinate; tan(p/2) falls like e^-t."""
    angles = torch.tensor([0.0, 0.7, 1.2, -1.4], dtype=torch.float64)
    x = torch.stack([angles.cos(), angles.sin()], -1)
    run = simulate(x, D=np.diag([1.0, 0.0]), flow="hardmax", until=2.0, step=0.01, save=2, causal=causal)
    exact = 2 * torch.atan(math.exp(-2.0) * torch.tan(angles / 2))
    np.testing.assert_allclose(torch.atan2(run.final[:, 1], run.final[:, 0]), exact, atol=1e-8)


def test_tied_leaders_share():
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.6, -0.8]], dtype=torch.float64)
    found = velocity(x, D=np.diag([-1.0, 0.0]), flow="hardmax")
    np.testing.assert_allclose(found[0], [0.0, 0.0], atol=1e-15)  # between both


def test_sinkhorn_says_when_it_does_not_converge():
    with pytest.raises(GeoattnError, match="does not converge"):
        velocity(uniform_tokens(12, 3, seed=3), D=G, beta=1e5, flow="sinkhorn")
