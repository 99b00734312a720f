"""The mobility distance: closed forms, a boundary value problem, POT, laws of a metric, the speed of the flow."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from scipy.integrate import quad, solve_bvp

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.density.circle import sample_circle
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.mobility.distance import mobility_distance
from geoattn.dynamics.mobility.path import action, great_arcs
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens


def on_circle(*angles: float) -> torch.Tensor:
    a = torch.tensor(angles, dtype=torch.float64)
    return torch.stack([a.cos(), a.sin()], -1)


def random_matrix(d: int, seed: int, size: float = 1.0) -> torch.Tensor:
    m = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return size * m / torch.linalg.matrix_norm(m, 2)


# ---- values


@pytest.mark.parametrize("beta", [0.5, 2.0, 4.0])
def test_two_tokens_that_stay_symmetric(beta):
    """D = I, angles +-p/2: the distance is the integral of sqrt((e^beta + e^(beta cos p)) / 2) / 2 over p."""
    found = mobility_distance(on_circle(0.25, -0.25), on_circle(1.1, -1.1), beta=beta)
    exact, _ = quad(
        lambda p: math.sqrt((math.exp(beta) + math.exp(beta * math.cos(p))) / 2) / 2, 0.5, 2.2, epsabs=1e-13
    )
    assert found.value == pytest.approx(exact, abs=1e-8)
    assert found.upper - found.value < 1e-8


def boundary_value_length(start: np.ndarray, end: np.ndarray, D: np.ndarray) -> float:
    """Two tokens of mass 1/2 on the circle: the Euler-Lagrange equations of the action, by SciPy."""
    w = 0.5

    def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masses m_i and the derivatives of m_j by theta_i, (i, j)."""
        x, tau = np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])
        k = np.exp(np.einsum("ait,ab,bjt->ijt", x, D, x))
        rows = np.einsum("ait,ab,bjt->ijt", tau, D, x) * k
        columns = np.einsum("ait,ab,bjt->ijt", x, D, tau) * k
        slopes = w * np.moveaxis(columns, 0, 1)  # (i, j): theta_i as the other token of j
        slopes[np.arange(2), np.arange(2)] += w * rows.sum(1)
        return w * k.sum(1), slopes

    def field(t: np.ndarray, y: np.ndarray) -> np.ndarray:
        m, slopes = parts(y[:2])
        v = y[2:]
        force = 0.5 * np.einsum("ijt,jt->it", slopes, v**2)
        rate = np.einsum("ijt,it->jt", slopes, v)
        return np.concatenate([v, (force - rate * v) / m])

    def ends(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.concatenate([a[:2] - start, b[:2] - end])

    t = np.linspace(0, 1, 200)
    guess = start[:, None] + (end - start)[:, None] * t
    solved = solve_bvp(field, ends, t, np.concatenate([guess, np.repeat((end - start)[:, None], 200, 1)]), tol=1e-11,
                       max_nodes=100_000)  # fmt: skip
    assert solved.status == 0
    y = solved.sol(np.array([0.5]))
    m, _ = parts(y[:2])
    return math.sqrt(float((w * m * y[2:] ** 2).sum()))  # the speed of a geodesic is its length


@pytest.mark.parametrize("seed", range(4))
def test_two_tokens_against_a_boundary_value_problem(seed):
    D = random_matrix(2, seed, 1.5).numpy()
    rng = np.random.default_rng(seed)
    start = np.array([0.2, 1.9]) + 0.2 * rng.random(2)
    end = start + np.array([0.9, 0.5]) * rng.choice([-1, 1], 2)
    found = mobility_distance(on_circle(*start), on_circle(*end), D)
    assert found.coupling.target[np.argsort(found.coupling.source)].tolist() == [0, 1]
    assert found.value == pytest.approx(boundary_value_length(start, end, D), abs=1e-8)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 3), (5, 5, 2), (6, 6, 4), (4, 7, 3)])
def test_without_a_kernel_it_is_w2(n, m, d):
    x, y = uniform_tokens(n, d, seed=n), uniform_tokens(m, d, seed=m + 50)
    rng = np.random.default_rng(0)
    a, b = (rng.dirichlet(np.ones(k)) if n != m else np.full(k, 1 / k) for k in (n, m))
    cost = np.arccos(np.clip(x.numpy() @ y.numpy().T, -1, 1)) ** 2
    exact = math.sqrt(ot.emd2(a, b, cost))
    found = mobility_distance((x, a), (y, b), 0.0)
    assert found.value == pytest.approx(exact, abs=1e-9)
    assert found.w2 == pytest.approx(exact, abs=1e-9)
    assert found.lower == pytest.approx(exact, abs=1e-9)


def test_the_path_has_constant_speed_and_is_the_value():
    x, y, D = uniform_tokens(5, 3, seed=1), uniform_tokens(5, 3, seed=2), random_matrix(3, 3, 2.0)
    found = mobility_distance(x, y, D, times=9)
    tokens, v, w = found.path.tokens, found.path.velocities, found.path.weights
    mass = (tokens @ D @ tokens.mT).exp() @ w
    speed = (w * mass * v.square().sum(-1)).sum(-1).sqrt()
    np.testing.assert_allclose(speed, found.value, rtol=2e-5)
    np.testing.assert_allclose(tokens.norm(dim=-1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(tokens[0], x[found.coupling.source], atol=1e-14)
    np.testing.assert_allclose(tokens[-1], y[found.coupling.target], atol=1e-14)


def test_gradient_of_the_action():
    x, y = uniform_tokens(3, 3, seed=1), uniform_tokens(3, 3, seed=2)
    arcs, D = great_arcs(x, y, torch.full((3,), 1 / 3, dtype=torch.float64)), random_matrix(3, 0)
    bend = 0.1 * torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, gradient, _ = action(arcs, bend, D, 12)
    there, back = (action(arcs, bend + h * step, D, 12)[0] for h in (1e-5, -1e-5))
    assert float((gradient * step).sum()) == pytest.approx((there - back) / 2e-5, rel=1e-8)


# ---- laws


def triple(seed: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    n, d = 2 + seed % 3, 2 + seed % 2
    return [uniform_tokens(n, d, seed=10 * seed + k) for k in range(3)], random_matrix(d, seed, 0.5 + seed % 4 / 2)


def violation(seed: int) -> float:
    (x, y, z), D = triple(seed)
    xy, yz, xz = mobility_distance(x, y, D), mobility_distance(y, z, D), mobility_distance(x, z, D)
    for found in (xy, yz, xz):
        assert found.lower <= found.value <= found.upper
        norm = found.settings["norm"]
        assert math.exp(-norm / 2) * found.w2 <= found.value * (1 + 1e-12)
        assert found.value <= math.exp(norm / 2) * found.w2 * (1 + 1e-12)
    assert xz.lower <= xy.value + yz.value
    return xz.value - xy.value - yz.value


def test_triangle_inequality():
    assert [k for k in range(3) if violation(k) > 1e-6] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_triangle_inequality_of_many_triples(record_property):
    broken = [k for k in range(3, 203) if violation(k) > 1e-6]
    record_property("violations", broken)
    assert len(broken) <= 2


@pytest.mark.parametrize("seed", [0, 1])
def test_symmetric(seed):
    (x, y, _), D = triple(seed)
    there, back = mobility_distance(x, y, D, starts=3), mobility_distance(y, x, D, starts=3)
    assert there.value == back.value
    assert there.lower == back.lower
    assert torch.equal(there.path.tokens, back.path.tokens.flip(0))
    turned = mobility_distance(x.flip(0), y, D, starts=1)
    assert turned.value == mobility_distance(x, y, D, starts=1).value


def test_zero_on_equal_measures():
    x = uniform_tokens(6, 3, seed=1)
    found = mobility_distance(x, x[[3, 1, 0, 5, 4, 2]], 2.0)
    assert found.value == found.lower == found.upper == 0.0
    doubled = torch.cat([x, x])
    assert mobility_distance(doubled, x).value == pytest.approx(
        0.0, abs=1e-12
    )  # coincident tokens are one of both masses
    assert mobility_distance(lambda a: 1 + 0.5 * np.cos(a), lambda a: 2 + np.cos(a)).value == 0.0


def test_coincident_tokens_are_one_of_both_masses():
    """Tokens listed twice, and tokens with the masses of two, are the same measure: the distance is the same."""
    x, y, D = uniform_tokens(2, 3, seed=4), uniform_tokens(2, 3, seed=5), random_matrix(3, 6, 1.5)
    once = mobility_distance(x, y, D, starts=2).value
    twice = mobility_distance(torch.cat([x, x]), torch.cat([y, y]), D, starts=2).value
    assert twice == pytest.approx(once, rel=1e-6)
    third = mobility_distance((x, [1 / 3, 2 / 3]), (y, [1 / 3, 2 / 3]), D, starts=2).value
    listed = mobility_distance(x[[0, 1, 1]], y[[0, 1, 1]], D, starts=2).value
    assert listed == pytest.approx(third, rel=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_short_distances_along_the_flow_have_its_metric_speed(sign):
    """W(mu_t, mu_(t+h)) / h tends to the root of sum w m |v|^2, with order 1 in h."""
    x = uniform_tokens(6, 3, seed=3)
    D = torch.diag(torch.tensor([1.0, 0.5, -0.7], dtype=torch.float64))
    v = velocity(x, D=D, V=sign * D)
    mass = (x @ D @ x.mT).exp().mean(-1)
    speed = math.sqrt(float((mass * v.square().sum(-1)).mean()))
    errors = []
    for h in (0.1, 0.05, 0.025):
        later = simulate(x, D=D, V=sign * D, until=h, save=2, method="adaptive", tolerance=1e-13).final
        errors.append(abs(mobility_distance(x, later, D, starts=2).value / h - speed))
    orders = np.diff(-np.log2(errors))
    assert errors[-1] < 0.02 * speed
    assert np.abs(orders - 1).max() < 0.15


def test_the_energy_bound_is_used_where_it_is_better():
    """From one point to the uniform pair at large D the energies are far apart: sqrt(e^s) against 1."""
    D = torch.diag(torch.tensor([6.0, 0.0], dtype=torch.float64))
    found = mobility_distance(on_circle(0.0), on_circle(math.pi / 2), D)
    bound = (math.exp(3.0) - 1.0) / 6.0
    assert found.lower == pytest.approx(bound, rel=1e-12)
    assert bound > math.exp(-3.0) * found.w2
    exact, _ = quad(lambda a: math.exp(3 * math.cos(a) ** 2), 0, math.pi / 2)
    assert found.value == pytest.approx(exact, rel=1e-8)


# ---- densities on the circle


def test_densities_and_their_quantiles():
    """The distance of many quantile tokens tends to that of the densities."""
    mu, nu, D = (lambda a: 1 + 0.5 * np.cos(a)), (lambda a: 1 + 0.3 * np.sin(2 * a)), np.diag([1.0, 0.3])
    found = mobility_distance(mu, nu, D, points=48)
    assert found.lower <= found.value <= found.upper
    assert found.upper - found.value < 1e-5
    angles = 2 * np.pi * np.arange(256) / 256
    x, y = (sample_circle(f(angles), 60) for f in (mu, nu))
    assert mobility_distance(x, y, D, starts=1).value == pytest.approx(found.value, rel=5e-3)
    assert mobility_distance(nu, mu, D, points=16).value == mobility_distance(mu, nu, D, points=16).value


def test_a_turn_of_a_density():
    """D = 0: a shift of the mean by the best turn; the density 1 + cos(a)/2 turned by 0.4 is at most 0.4 away."""
    found = mobility_distance(lambda a: 1 + 0.5 * np.cos(a), lambda a: 1 + 0.5 * np.cos(a - 0.4), 0.0)
    x, y = (sample_circle(1 + 0.5 * np.cos(2 * np.pi * np.arange(64) / 64 - s), 400) for s in (0.0, 0.4))
    cost = np.arccos(np.clip(x.numpy() @ y.numpy().T, -1, 1)) ** 2
    assert found.value == pytest.approx(math.sqrt(ot.emd2([], [], cost)), rel=2e-3)


# ---- looks and bad input


def test_it_shows_itself(tmp_path):
    found = mobility_distance(on_circle(0.0, 1.0), on_circle(2.0, 3.0))
    assert "MobilityDistance(" in repr(found)
    assert "<table>" in found._repr_html_()
    found.animate(tmp_path / "geodesic.gif", frames=3)
    assert (tmp_path / "geodesic.gif").read_bytes()[:6] == b"GIF89a"
    assert repr(found.path) == "MobilityPath(2 tokens in dimension 2 at 33 times)"


X = on_circle(0.0, 1.0)


@pytest.mark.parametrize(
    ("mu", "nu", "options", "message"),
    [
        (2 * X, X, {}, "mu: tokens must lie on the unit sphere"),
        ((X, [0.5, 0.6]), X, {}, "weights must sum to one"),
        (X, (X, [1.5, -0.5]), {}, "nu: weights must be finite and not negative"),
        (X, uniform_tokens(2, 3), {}, "must have one dimension"),
        (X, X, {"D": np.ones((3, 3))}, "D must be a number or a matrix"),
        (X, X, {"D": np.full((2, 2), np.nan)}, "finite"),
        (X, X, {"beta": 1000.0}, "overflows"),
        (X[None], X, {}, "one .n, d. array"),
        (np.ones(32), X, {}, "both be densities"),
        (lambda a: 1 + np.cos(a), np.ones(32), {}, "at least 0.001 of its mean"),
        (X, X, {"starts": 0}, "starts"),
    ],
)
def test_bad_input(mu, nu, options, message):
    with pytest.raises(GeoattnError, match=message):
        mobility_distance(mu, nu, **options)


def test_unnormalised_tokens_if_told_to():
    assert mobility_distance(2 * X, X, normalise=True).value == 0.0


def test_antipodes_have_many_geodesics():
    """One token, D = I: the mass is e everywhere, so each half circle is a geodesic of length sqrt(e) pi."""
    x = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    assert mobility_distance(x, -x).value == pytest.approx(math.sqrt(math.e) * math.pi, rel=1e-10)
