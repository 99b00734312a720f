"""Densities on the circle and on the 2-sphere: growth rates, dissipation, conservation, particles, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import critical_coupling, growth_rate, uniform_energy
from geoattn.dynamics.density.circle import circle_distance, circle_mean_field, sample_circle
from geoattn.dynamics.density.sphere import SphereGrid, sphere_mean_field
from geoattn.dynamics.simulation import simulate

ANGLES = 2 * np.pi * np.arange(128) / 128


def bump(a: np.ndarray) -> np.ndarray:
    return np.exp(np.cos(a) + 0.5 * np.sin(2 * a))


def blob(x: np.ndarray) -> np.ndarray:
    return np.exp(x[..., 2] + 0.5 * x[..., 0] * x[..., 1])


# ---- near the uniform density


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_growth_on_the_circle(k, flow):
    run = circle_mean_field(lambda a: 1 + 1e-7 * np.cos(k * a), beta=3.0, flow=flow, until=0.2, save=2, points=64)
    modes = run.density @ np.cos(k * ANGLES[::2])
    assert math.log(modes[1] / modes[0]) / 0.2 == pytest.approx(growth_rate(k, 3.0, 2, flow), rel=1e-6)


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_growth_on_the_sphere(k, flow):
    harmonic = (lambda x: x[..., 2], lambda x: x[..., 0] * x[..., 1], lambda x: np.prod(x, axis=-1))[k - 1]
    run = sphere_mean_field(lambda x: 1 + 1e-7 * harmonic(x), beta=3.0, flow=flow, until=0.2, save=2, degree=10)
    grid = SphereGrid(10)
    modes = [grid.mean((rho - 1) * harmonic(grid.points)) for rho in run.density]
    assert math.log(modes[1] / modes[0]) / 0.2 == pytest.approx(growth_rate(k, 3.0, 3, flow), rel=1e-6)


def test_noise():
    """V = 0: mode k decays at sigma^2 k (k + d - 2) / 2. Around K = K_# the first mode turns from decay to growth."""
    still = circle_mean_field(lambda a: 1 + 0.5 * np.cos(2 * a), V=0.0, noise=0.7, until=0.5, save=2, points=64)
    assert still.density[-1].max() - 1 == pytest.approx(0.5 * math.exp(-0.5 * 0.7**2 * 4 * 0.5), rel=1e-8)
    ball = sphere_mean_field(lambda x: 1 + 0.5 * x[..., 2], V=0.0, noise=0.7, until=0.5, save=2, degree=8)
    assert np.ptp(ball.density[-1]) / np.ptp(ball.density[0]) == pytest.approx(math.exp(-(0.7**2) * 0.5), rel=1e-8)
    for factor in (0.98, 1.02):
        K = factor * critical_coupling(2.0, 2)
        run = circle_mean_field(
            lambda a: 1 + 1e-6 * np.cos(a), beta=2.0, V=K, flow="USA", noise=1.0, until=1.0, save=2, points=32
        )
        growth = np.ptp(run.density[1]) / np.ptp(run.density[0])
        assert (growth > 1) == (factor > 1)
        assert math.log(growth) == pytest.approx(0.5 * (factor - 1), rel=1e-2)


# ---- far from it


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_dissipation_and_mass_on_the_circle(flow, sign):
    D = np.diag([1.0, 1.5])
    run = circle_mean_field(bump, D=D, V=sign * D, flow=flow, until=0.2, points=192, save=11)
    assert run.balance.max() < 1e-10
    assert np.abs(run.mass - 1).max() < 1e-13
    assert run.density.min() > 0
    assert (sign * np.diff(run.energy) > 0).all()
    volumes = circle_mean_field(bump, D=D, V=sign * D, flow=flow, until=0.2, points=192, save=3, method="finite-volume")
    assert np.abs(volumes.mass - 1).max() < 1e-13
    assert volumes.density.min() > 0
    assert np.abs(volumes.density[-1] - run.density[-1]).max() < 0.05


def test_no_identity_for_other_values():
    run = circle_mean_field(bump, D=[[1.0, 0.0], [0.0, 2.0]], until=0.1, save=2, points=64)
    assert np.isnan(run.work[1])


def test_finite_volumes_are_of_second_order():
    """Away from the extrema, where the limiter is of first order: the error in the mean."""
    exact = circle_mean_field(bump, beta=2.0, until=0.5, save=2, points=256).density[-1]
    errors = []
    for n in (64, 128, 256):
        rho = circle_mean_field(bump, beta=2.0, until=0.5, save=2, points=n, method="finite-volume").density[-1]
        errors.append(np.abs(rho - exact[:: 256 // n]).mean())
    assert np.log2(errors[0] / errors[1]) > 1.6
    assert np.log2(errors[1] / errors[2]) > 1.6


def test_finite_volumes_go_on_where_clusters_form():
    with pytest.raises(GeoattnError, match="no longer smooth"):
        circle_mean_field(bump, beta=4.0, until=20.0, points=64)
    run = circle_mean_field(bump, beta=4.0, until=10.0, points=64, method="finite-volume", save=11)
    assert np.abs(run.mass - 1).max() < 1e-12
    assert run.density.min() >= 0
    assert (np.diff(run.energy) > -1e-9).all()
    assert run.density[-1].max() > 20  # concentrated in a few cells of 64


def test_repulsion_flattens():
    run = circle_mean_field(bump, V=-1.0, beta=1.0, until=15.0, save=6, points=96, method="finite-volume")
    assert (np.diff(run.energy) < 1e-12).all()
    assert run.energy[-1] == pytest.approx(uniform_energy(1.0, 2), abs=1e-5)


@pytest.mark.parametrize("flow", ["SA", "USA"])
def test_dissipation_and_mass_on_the_sphere(flow):
    run = sphere_mean_field(blob, beta=1.5, flow=flow, until=0.3, save=4, degree=20)
    assert run.balance.max() < 1e-9
    assert np.abs(run.mass - 1).max() < 1e-13
    assert (np.diff(run.energy) > 0).all()


def test_transform_is_exact():
    grid = SphereGrid(9)
    draw = np.random.default_rng(0)
    c = np.tril(draw.standard_normal((10, 10)) + 1j * draw.standard_normal((10, 10)))
    c[:, 0] = c[:, 0].real
    np.testing.assert_allclose(grid.analyse(grid.synthesise(c)), c, atol=1e-12)
    z = grid.points[..., 2]
    np.testing.assert_allclose(grid.scale(3 * z**2 - 1, grid.eigenvalues), -6 * (3 * z**2 - 1), atol=1e-10)
    assert grid.mean(z**2) == pytest.approx(1 / 3)


# ---- particles


def test_weighted_particles_are_a_quadrature_of_the_density_on_the_circle():
    """The grid as atoms with the masses of the density: the energy agrees to 1e-9 along the flow."""
    run = circle_mean_field(bump, beta=1.5, until=0.6, save=4, points=128)
    x = np.stack([np.cos(ANGLES), np.sin(ANGLES)], -1)
    weights = bump(ANGLES) / bump(ANGLES).sum()
    atoms = simulate(x, beta=1.5, weights=weights, until=0.6, save=4, method="adaptive", tolerance=1e-12)
    np.testing.assert_allclose(atoms.energy, run.energy, rtol=1e-9)


def test_weighted_particles_are_a_quadrature_of_the_density_on_the_sphere():
    run = sphere_mean_field(blob, beta=1.5, until=0.3, save=3, degree=20)
    grid = SphereGrid(20)
    weights = (blob(grid.points) * grid.weights[:, None]).ravel()
    atoms = simulate(
        grid.points.reshape(-1, 3), beta=1.5, weights=weights / weights.sum(), until=0.3, save=3, step=0.05, observe=()
    )
    np.testing.assert_allclose(atoms.energy, run.energy, rtol=1e-7)


@pytest.mark.parametrize(("seed", "power", "slack"), [(None, 1.0, 0.05), (3, 0.5, 0.25)])
def test_particles_tend_to_the_density(seed, power, slack):
    """W1 between n tokens and the density at t = 0.5: 1/n for quantiles, 1/sqrt(n) for random tokens (8 draws each)."""
    run = circle_mean_field(bump, beta=1.0, until=0.5, save=2, points=128)
    sizes, distances = (64, 256, 1024), []
    for n in sizes:
        draws = [None] if seed is None else [seed + k for k in range(8)]
        x = torch.stack([sample_circle(bump(ANGLES), n, seed=s) for s in draws])
        final = simulate(x, beta=1.0, until=0.5, step=0.05, save=2, observe=()).final
        distances.append(np.mean([circle_distance(y, run.density[-1]) for y in final]))
    slope = -np.polyfit(np.log(sizes), np.log(distances), 1)[0]
    assert slope == pytest.approx(power, abs=slack)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circle_mean_field(np.ones(4)), "at least 16"),
        (lambda: circle_mean_field(-np.ones(64)), "not negative"),
        (lambda: circle_mean_field(np.full(64, np.nan)), "finite"),
        (lambda: circle_mean_field(bump, method="fv"), "method must be one of"),
        (lambda: circle_mean_field(bump, beta=[1.0, 2.0]), "does not fit"),
        (lambda: circle_mean_field(bump, beta=800.0, flow="USA"), "overflows"),
        (lambda: sphere_mean_field(np.ones(3)), "function of points"),
        (lambda: sphere_mean_field(lambda x: -np.ones(x.shape[:-1])), "not negative"),
        (lambda: sphere_mean_field(blob, beta=-1.0), "beta"),
        (lambda: sphere_mean_field(blob, beta=30.0, until=20.0, degree=8), "no longer smooth|not resolved"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(GeoattnError, match=message):
        call()


# ---- other kinds of attention

ABOVE = 0.4  # the shift of sigmoid


def pair_modes(flow: str, beta: float, k: int, d: int) -> float:
    """Coefficient of mode k of the energy of a pair, by quadrature: cosines on the circle, Legendre on the sphere."""
    energy = {
        "sigmoid": lambda s: np.logaddexp(0.0, s - ABOVE), "linear": lambda s: 0.5 * s**2, "sinkhorn": np.exp
    }[flow]  # fmt: skip
    if d == 2:
        a = 2 * np.pi * np.arange(400) / 400
        return float((energy(beta * np.cos(a)) * np.cos(k * a)).mean())
    t, w = np.polynomial.legendre.leggauss(200)
    return float((energy(beta * t) * np.polynomial.legendre.Legendre.basis(k)(t) * w).sum() / 2)


def variant_rate(flow: str, beta: float, k: int, d: int) -> float:
    """Growth of mode k near the uniform density: k (k + d - 2) a_k / beta; for sinkhorn a_k is r / (1 + r)."""
    size = pair_modes(flow, beta, k, d)
    if flow == "sinkhorn":
        ratio = size / pair_modes(flow, beta, 0, d)
        size = ratio / (1 + ratio)
    return k * (k + d - 2) * size / beta


@pytest.mark.parametrize("flow", ["sigmoid", "linear", "sinkhorn"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("d", [2, 3])
def test_growth_under_other_attention(flow, k, d):
    """The odd part of the answer to a small start and to its negative: errors of the third order and of rounding."""
    options = {"beta": 2.0, "flow": flow, "shift": ABOVE if flow == "sigmoid" else 0.0, "until": 0.2, "save": 2}
    grid, harmonic = SphereGrid(8), (lambda x: x[..., 2], lambda x: x[..., 0] * x[..., 1])[k - 1]
    modes = np.zeros(2)
    for small in (2e-5, -2e-5):
        if d == 2:
            run = circle_mean_field(lambda a: 1 + small * np.cos(k * a), points=32, **options)  # noqa: B023
            modes += np.sign(small) * (run.density @ np.cos(k * ANGLES[::4]))
        else:
            run = sphere_mean_field(lambda x: 1 + small * harmonic(x), degree=8, **options)  # noqa: B023
            modes += [np.sign(small) * grid.mean((rho - 1) * harmonic(grid.points)) for rho in run.density]
    assert math.log(modes[1] / modes[0]) / 0.2 == pytest.approx(variant_rate(flow, 2.0, k, d), abs=1e-8)


@pytest.mark.parametrize("flow", ["sigmoid", "linear", "sinkhorn", "L2"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_energy_of_other_attention(flow, sign):
    D = np.eye(2) if flow == "L2" else np.diag([1.0, 1.5])
    run = circle_mean_field(bump, D=D, V=sign * D, flow=flow, until=0.1, points=128, save=3, shift=0.2)
    assert run.balance.max() < 1e-9
    assert (sign * np.diff(run.energy) > 0).all()
    ball = sphere_mean_field(blob, V=sign, flow=flow, until=0.1, degree=24, save=3, shift=0.2)
    assert ball.balance.max() < 1e-9
    assert np.abs(ball.mass - 1).max() < 1e-12
    assert (sign * np.diff(ball.energy) > 0).all()


@pytest.mark.parametrize("flow", ["sigmoid", "linear", "sinkhorn", "L2", "hardmax"])
def test_other_attention_moves_densities_as_tokens(flow):
    """The velocity of tokens with the masses of the density, at its points; then finite volumes against modes."""
    from geoattn.dynamics.density.circle_field import CircleField
    from geoattn.dynamics.drift import velocity
    from geoattn.dynamics.interaction import read_interaction

    D, V = np.array([[1.2, 0.3], [-0.2, 0.8]]), np.array([[0.7, 0.0], [0.4, 1.0]])
    n = 1440 if flow == "hardmax" else 96
    angles = 2 * np.pi * np.arange(n) / n
    x = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], -1))
    rho = bump(angles) / bump(angles).mean()
    settings = read_interaction(x, D=D, V=V, beta=1.3, flow=flow, shift=0.3)
    v, _ = CircleField(settings, x.numpy()).velocity(rho, CircleField(settings, x.numpy()).kernel)
    along = velocity(x, D=D, V=V, beta=1.3, flow=flow, shift=0.3, weights=rho / n)
    exact = (along * torch.stack([-x[:, 1], x[:, 0]], -1)).sum(-1)
    np.testing.assert_allclose(v, exact, atol=1e-2 if flow == "hardmax" else 1e-12)  # tokens miss the best direction
    options = {"D": D, "V": V, "flow": flow, "shift": 0.3, "until": 0.1, "save": 2, "points": 96}
    smooth, volumes = (circle_mean_field(bump, method=m, **options) for m in ("spectral", "finite-volume"))
    assert np.abs(smooth.density[-1] - volumes.density[-1]).max() < 0.05


def test_limits_of_other_attention():
    """L2 is softmax for D = I; hardmax is softmax at large beta; sigmoid with a large shift is USA with it."""
    both = [circle_mean_field(bump, flow=f, beta=2.0, until=0.2, save=2, points=96).density[-1] for f in ("SA", "L2")]
    np.testing.assert_allclose(both[0], both[1], atol=1e-12)
    D, V = np.diag([1.0, 0.5]), np.eye(2)
    hard, soft = (
        circle_mean_field(bump, D=D, V=V, until=0.1, save=2, points=512, flow=f, beta=b).density[-1]
        for f, b in (("hardmax", 1.0), ("SA", 400.0))
    )
    assert np.abs(hard - soft).max() < 0.02
    few, plain = (
        circle_mean_field(bump, flow=f, shift=30.0, V=1e13, until=0.1, save=2, points=96).density[-1]
        for f in ("sigmoid", "USA")
    )
    np.testing.assert_allclose(few, plain, atol=1e-9)


@pytest.mark.parametrize(
    ("solve", "options", "message"),
    [
        (circle_mean_field, {"flow": "hardmax", "D": [[1.0, 0.0], [0.0, 0.0]]}, "vanishes"),
        (circle_mean_field, {"flow": "softmax"}, "flow must be one of"),
        (sphere_mean_field, {"flow": "softmax"}, "flow must be one of"),
        (circle_mean_field, {"flow": "USA", "beta": 900.0}, "USA overflows"),
        (sphere_mean_field, {"flow": "USA", "beta": 900.0}, "USA overflows"),
    ],
)
def test_bad_flows(solve, options, message):
    with pytest.raises(GeoattnError, match=message):
        solve(bump if solve is circle_mean_field else blob, until=0.1, save=2, **options)


def test_hardmax_on_the_sphere_stays():
    ball = sphere_mean_field(blob, flow="hardmax", until=0.5, save=2, degree=12)
    assert np.array_equal(ball.density[0], ball.density[1])
