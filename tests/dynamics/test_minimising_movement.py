"""Steps of least movement: order one against the flow, the functional never rises, any functional, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.mobility.distance import mobility_distance
from geoattn.dynamics.mobility.minimising_movement import minimising_movement
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens

D = torch.diag(torch.tensor([1.0, 0.5, -0.3], dtype=torch.float64))
X = uniform_tokens(10, 3, seed=7)


@pytest.mark.parametrize(("metric", "flow"), [("mobility", "SA"), ("W2", "USA")])
@pytest.mark.parametrize(("functional", "sign"), [("ascend", 1.0), ("descend", -1.0)])
def test_order_one_against_the_flow(metric, flow, functional, sign):
    exact = simulate(
        X, D=D, V=sign * D, beta=1.5, flow=flow, until=1.0, save=2, method="adaptive", tolerance=1e-12
    ).final
    errors = []
    for count in (10, 20, 40):
        run = minimising_movement(X, functional, D=D, beta=1.5, metric=metric, step=1 / count, steps=count)
        errors.append(float((run.final - exact).norm(dim=-1).max()))
        assert float(run.functional.diff().max()) < 0
        assert float(run.residual.max()) < 1e-5
        assert float((run.tokens.norm(dim=-1) - 1).abs().max()) < 1e-14
    assert np.abs(np.diff(-np.log2(errors)) - 1).max() < 0.1, errors


def test_each_step_pays_for_its_movement():
    """F(x') + d^2 / (2 step) <= F(x): what makes the scheme converge."""
    run = minimising_movement(X, D=D, step=0.3, steps=10)
    assert float((run.functional.diff() + run.distance.square() / 0.6).max()) <= 1e-12


def test_the_length_of_a_step_is_the_distance():
    run = minimising_movement(X, D=D, step=0.1, steps=2)
    found = mobility_distance(run.tokens[1], run.tokens[2], D, starts=1)
    assert float(run.distance[1]) == pytest.approx(found.value, rel=1e-4)


def test_any_functional():
    """Half the squared distance to a pole in W2 with masses: each token follows the arc, tan(p'/2) and so on."""
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    run = minimising_movement(X, lambda x, w: -(w * (x @ pole)).sum(), metric="W2", step=0.01, steps=100)
    start, end = (torch.acos(x[:, 2]) for x in (run.tokens[0], run.final))
    exact = 2 * torch.atan(torch.exp(torch.tensor(-1.0)) * torch.tan(start / 2))  # angle' = -sin(angle)
    np.testing.assert_allclose(end, exact, atol=1e-2)
    assert float(run.functional.diff().max()) < 0


def test_a_functional_of_ones_own_takes_any_matrix_in_the_metric():
    """The mass is that of x . D y for any D; against the velocity -grad F / (w m) of the flow, by small steps."""
    G = D + torch.tensor([[0.0, 0.6, 0.0], [-0.6, 0.0, 0.3], [0.0, -0.3, 0.0]], dtype=torch.float64)
    run = minimising_movement(X, lambda x, w: -(w * x[:, 2]).sum(), D=G, step=1e-5, steps=1)
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    slope = (pole - X[:, 2:] * X) / (X @ G @ X.mT).exp().mean(-1)[:, None]
    np.testing.assert_allclose((run.final - X) / 1e-5, slope, atol=1e-4)


def test_a_stiff_flow_takes_long_steps():
    """USA at beta = 6 has rates of 2 e^6: explicit steps of 0.05 jump, implicit ones go to the maximum."""
    x = X[X[:, 2] > 0]
    run = minimising_movement(x, beta=6.0, metric="W2", step=0.05, steps=40)
    assert float(run.functional.diff().max()) <= 0
    assert float((run.final @ run.final.T).min()) > 1 - 1e-6


def test_rest_and_one_token():
    run = minimising_movement(torch.eye(3, dtype=torch.float64)[:1], D=D, step=0.5, steps=3)
    assert torch.equal(run.final, run.tokens[0])
    assert float(run.distance.max()) == 0.0
    twins = torch.cat([X, X])
    both, one = (minimising_movement(x, D=D, step=0.2, steps=3).final for x in (twins, X))
    np.testing.assert_allclose(both[: len(X)], one, atol=1e-6)


def test_it_shows_itself(tmp_path):
    from geoattn.dynamics.animation import animate

    run = minimising_movement(X, steps=2)
    assert repr(run).startswith("MinimisingMovement(mobility, n=10, d=3, 2 steps")
    animate(run, tmp_path / "film.gif")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 2 * X}, "unit sphere"),
        ({"tokens": X[None]}, "one .n, d. array"),
        ({"weights": np.ones(10)}, "sum to one"),
        ({"weights": np.eye(10)[0]}, "must be positive"),
        ({"D": np.triu(np.ones((3, 3)))}, "must be symmetric"),
        ({"D": np.eye(2)}, "matrix .3, 3."),
        ({"metric": "L2"}, "metric must be one of"),
        ({"functional": "fall"}, "functional must be one of"),
        ({"functional": lambda x, w: x.sum(-1)}, "one number"),
        ({"functional": lambda x, w: x.sum() / 0.0}, "must be finite at the given tokens"),
        ({"beta": 0.0}, "beta"),
        ({"step": 0.0}, "step"),
        ({"steps": 0}, "steps"),
    ],
)
def test_bad_input(change, message):
    settings = {"tokens": X, "steps": 1} | change
    with pytest.raises(GeoattnError, match=message):
        minimising_movement(settings.pop("tokens"), settings.pop("functional", "ascend"), **settings)
