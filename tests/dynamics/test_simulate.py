"""Flows against closed forms and laws; stopping, saving, batches, span, norms, weights that change, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import equiangular_cosine, pair_time
from geoattn.dynamics.drift import velocity
from geoattn.dynamics.energy import interaction_energy
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens
from geoattn.dynamics.trajectory import Trajectory
from tests.dynamics.plain import cosines

# ---- orthogonal starts: the equation of the common cosine


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("beta", [0.0, 1.0, 4.0])
def test_orthogonal_tokens_follow_the_scalar_equation(beta, flow):
    n = 8
    end = 4.0 if flow == "SA" else 4.0 * math.exp(-beta) * n / 4
    run = simulate(
        torch.eye(n, dtype=torch.float64), beta=beta, flow=flow, method="adaptive", tolerance=1e-13, until=end, save=9
    )
    exact = equiangular_cosine(run.t[1:].numpy(), beta, n, flow)
    np.testing.assert_allclose(cosines(run)[1:], exact, atol=1e-11)
    gram = run.tokens @ run.tokens.mT
    apart = gram[-1][~torch.eye(n, dtype=torch.bool)]
    assert float(apart.max() - apart.min()) < 1e-12  # it stays equiangular


def test_beta_zero_is_explicit():
    run = simulate(torch.eye(5, dtype=torch.float64), beta=0.0, method="adaptive", tolerance=1e-13, until=3.0, save=7)
    e = np.exp(2 * run.t.numpy())
    np.testing.assert_allclose(cosines(run), (e - 1) / (e + 4), atol=1e-11)


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_two_tokens_meet_in_the_time_of_the_integral(beta):
    x = torch.tensor([[1.0, 0.0], [math.cos(2.0), math.sin(2.0)]], dtype=torch.float64)
    end = pair_time(2.0, 0.05, beta)
    run = simulate(x, beta=beta, method="adaptive", tolerance=1e-12, until=end, save=2)
    assert abs(math.acos(float(cosines(run)[-1])) - 0.05) < 1e-7


# ---- the dissipation identity


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rate_of_the_energy(flow, sign):
    """The derivative by central differences along the velocity against the formula; a long run balances."""
    x = uniform_tokens(15, 3, seed=4)
    D = torch.diag(torch.tensor([0.7, 1.2, -0.4], dtype=torch.float64))
    beta = 1.3
    v = velocity(x, beta=beta, D=D, V=sign * D, flow=flow)
    mass = torch.exp(beta * x @ D @ x.T).mean(1) if flow == "SA" else torch.ones(15)
    formula = float(sign * 2 * beta * (v.square().sum(-1) * mass).mean())
    h = 1e-4
    ends = [interaction_energy((x + s * h * v), D, beta, normalise=True).item() for s in (1, -1, 2, -2)]
    central = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / (12 * h)
    assert abs(central - formula) < 1e-10 * max(1, abs(formula))
    run = simulate(x, beta=beta, D=D, V=sign * D, flow=flow, method="adaptive", tolerance=1e-12, until=3.0)
    assert float(run.balance.max()) < 1e-10
    assert (sign * run.energy.diff() > -1e-13).all()


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("c", [1.0, -1.0, 0.5])
def test_energy_is_monotone(flow, c):
    """For 100 random symmetric D at once."""
    D = torch.randn(100, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    D = (D + D.mT) / 2
    run = simulate(uniform_tokens(6, 3, runs=100, seed=2), D=D, V=c * D, flow=flow, until=1.0, save=5, step=0.02)
    assert (math.copysign(1, c) * run.log_energy.diff(dim=0) > -1e-12).all()
    assert float(run.balance.max()) < 2e-3  # of the stiffest of them


def test_no_identity_is_nan_and_not_a_number():
    draw = torch.Generator().manual_seed(0)
    D = torch.randn(3, 3, generator=draw).double()
    x = uniform_tokens(6, 3, seed=1)
    for settings in ({"D": D, "V": D}, {"D": D + D.T}, {"causal": True}, {"norm": "pre"}, {"method": "layer"}):
        assert simulate(x, until=0.2, save=3, **settings).balance.isnan().all()


def test_hemisphere_law():
    """Tokens of an open hemisphere: min <x_i, w> does not decrease, for any Q and K; they end in one cluster."""
    draw = torch.Generator().manual_seed(3)
    x = uniform_tokens(10, 3, seed=5)
    x = x * torch.sign(x[:, :1])
    D = torch.randn(3, 3, generator=draw).double()
    run = simulate(x, D=D, beta=1.0, until="stationary", observe=("clusters",))
    lowest = run.tokens[..., 0].amin(-1)
    assert (lowest.diff() > -1e-12).all()
    assert run.status == "stationary"
    assert int(run.observables["clusters"][-1]) == 1


# ---- stopping, saving, batches, span


def test_stop_when_stationary():
    x = uniform_tokens(10, 3, runs=3, seed=6)
    run = simulate(x, beta=2.0, stationary=1e-6)
    assert run.status == "stationary"
    assert run.stationary.all()
    assert float(run.speed[-1].max()) <= 1e-6
    np.testing.assert_allclose(run.energy[-1], math.exp(2.0), rtol=1e-9)
    assert 101 <= len(run.t) <= 203
    adaptive = simulate(x[0], beta=2.0, method="adaptive", tolerance=1e-6)
    assert adaptive.status == "stationary"
    assert float(adaptive.speed[-1]) <= 1e-9
    assert adaptive.steps < 300
    short = simulate(x, beta=2.0, longest=1.0)
    assert short.status == "time limit"
    assert not short.stationary.any()


def test_saved_times_are_hit_exactly():
    x = uniform_tokens(5, 3, seed=7)
    times = [0.0, 0.123, 1.0, 1.7]
    full = simulate(x, until=2.0, method="adaptive", tolerance=1e-12, save=[*times, 2.0])
    for method in ("rk4", "adaptive"):
        run = simulate(x, until=2.0, save=times, method=method)
        assert run.t.tolist() == [*times, 2.0]
        torch.testing.assert_close(run.tokens, full.tokens, rtol=0, atol=1e-6)
    layers = simulate(x, until=1.0, method="layer", step=0.25)
    assert layers.t.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert layers.steps == 4


def test_keep_last_and_observables():
    x = uniform_tokens(6, 3, runs=(2, 2), seed=8)
    observe = {"first": lambda tokens: tokens[..., 0, 0]}
    run = simulate(x, until=1.0, save=5, keep="last", observe=observe)
    assert run.tokens.shape == (1, 2, 2, 6, 3)
    assert run.observables["first"].shape == (5, 2, 2)
    torch.testing.assert_close(run.observables["first"][-1], run.final[..., 0, 0])
    named = simulate(x, until=1.0, save=5, observe=("polarisation", "nematic", "clusters", "histogram"))
    assert named.observables["histogram"].shape == (5, 2, 2, 50)
    table = named.to_pandas()
    assert len(table) == 20
    assert {"t", "run_0", "run_1", "log_energy", "speed", "clusters"} <= set(table.columns)


def test_batches_are_runs_side_by_side():
    x = uniform_tokens(7, 3, runs=(2, 3), seed=9)
    beta = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    together = simulate(x, beta=beta, until=1.0, step=0.05, save=3)
    for i in range(2):
        for j in range(3):
            alone = simulate(x[i, j], beta=float(beta[j]), until=1.0, step=0.05, save=3)
            torch.testing.assert_close(together.tokens[:, i, j], alone.tokens, rtol=0, atol=1e-13)
            torch.testing.assert_close(
                together.work[:, i, j], alone.work * math.exp(alone.log_scale - together.log_scale)
            )


@pytest.mark.parametrize("flow", ["SA", "USA"])
@pytest.mark.parametrize("matrices", [{}, {"D": 0.5, "V": -1.0}])
def test_few_tokens_in_many_dimensions_run_in_their_span(flow, matrices):
    x = uniform_tokens(5, 40, runs=2, seed=10)
    run = simulate(x, beta=2.0, flow=flow, until=1.0, step=0.05, save=3, **matrices)
    assert run.coordinates.shape == (3, 2, 5, 5)
    dense = {k: v * torch.eye(40, dtype=torch.float64) for k, v in matrices.items()} or {"V": torch.eye(40).double()}
    dense["V"] = dense["V"] + 1e-300 * torch.ones(
        40, 40, dtype=torch.float64
    )  # not a multiple of the identity any more: no rotation
    full = simulate(x, beta=2.0, flow=flow, until=1.0, step=0.05, save=3, **dense)
    assert full.coordinates.shape == (3, 2, 5, 40)
    torch.testing.assert_close(run.tokens, full.tokens, rtol=0, atol=1e-13)
    torch.testing.assert_close(run.log_energy, full.log_energy, rtol=0, atol=1e-12)


def test_save_and_load(tmp_path):
    run = simulate(uniform_tokens(4, 6, runs=2, seed=11), until=1.0, save=4, norm="pre")
    run.save(tmp_path / "run.npz")
    back = Trajectory.load(tmp_path / "run.npz")
    torch.testing.assert_close(back.tokens, run.tokens)
    assert back.radius is not None
    assert repr(back) == repr(run)
    assert back.settings == run.settings
    assert back.settings["beta"] == 1.0
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(GeoattnError, match="not a trajectory"):
        Trajectory.load(tmp_path / "junk.npz")


def test_a_rejected_step_is_no_moment_of_its_own():
    """A run to rest keeps every step, and each moment once."""
    x = uniform_tokens(8, 2, seed=3)
    run = simulate(x, beta=2.0, longest=50.0, method="adaptive", tolerance=1e-4)
    assert run.rejected > 0
    assert bool((run.t.diff() > 0).all())


# ---- bad input

GOOD = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 2 * GOOD}, "unit sphere.*norm 2.*normalise=True"),
        ({"tokens": 0 * GOOD}, "zero vector"),
        ({"tokens": 0 * GOOD, "normalise": True}, "zero vector"),
        ({"tokens": GOOD * math.nan}, "finite"),
        ({"tokens": GOOD[0]}, r"\(\.\.\., n, d\)"),
        ({"tokens": torch.empty(0, 3)}, "at least one token"),
        ({"tokens": GOOD.to(torch.complex64)}, "real"),
        ({"tokens": "tokens"}, "real numbers"),
        ({"beta": math.inf}, "beta must be a finite number"),
        ({"beta": "warm"}, "beta must be a finite number"),
        ({"beta": [1.0, 2.0]}, "does not fit"),
        ({"D": torch.eye(4)}, r"D must be a number or a matrix \(3, 3\)"),
        ({"V": torch.full((3, 3), math.nan)}, "V must be finite"),
        ({"flow": "softmax"}, "flow must be one of 'SA', 'USA'"),
        ({"method": "rk5"}, "method must be one of"),
        ({"norm": "layer"}, "norm must be one of"),
        ({"engine": "gpu"}, "engine must be one of"),
        ({"until": -1.0}, "until"),
        ({"until": "forever"}, "'stationary'"),
        ({"step": 0.0}, "step"),
        ({"noise": -0.1}, "noise"),
        ({"noise": 0.1, "method": "adaptive"}, "fixed step"),
        ({"noise": 0.1, "until": "stationary"}, "fixed step"),
        ({"save": [0.0, 5.0]}, "increasing times"),
        ({"save": 0}, "save"),
        ({"save": True}, "save"),
        ({"observe": "temperature"}, "observe must be one of"),
        ({"observe": {"x": 3}}, "function of tokens"),
        ({"weights": [1.0, 1.0, 1.0]}, "sum to one"),
        ({"weights": [1.0, 1.0, -1.0]}, "not negative"),
        ({"weights": [0.5, 0.5]}, "one per token"),
        ({"beta": 1000.0, "flow": "USA", "method": "adaptive"}, "overflows.*shift"),
        ({"V": 1e5, "step": 0.1}, "too long"),
        ({"most_steps": 3, "step": 0.01}, "3 steps reached only"),
        ({"D": lambda t: torch.eye(4)}, r"\(3, 3\)"),
    ],
)  # fmt: skip
def test_bad_input(change, message):
    arguments = {"tokens": uniform_tokens(3, 3, seed=1), "until": 1.0, **change}
    with pytest.raises(GeoattnError, match=message):
        simulate(**arguments)


def test_tokens_are_normalised_only_if_told_to():
    run = simulate(2 * GOOD, until=0.1, save=2, normalise=True)
    torch.testing.assert_close(run.tokens[0], GOOD)
    half = simulate(GOOD.half(), until=0.1, save=2)
    assert half.tokens.dtype == torch.float32
    nearly = simulate(GOOD * (1 + 1e-10), until=0.0, save=1)
    assert torch.equal(nearly.final, GOOD)


def test_large_beta_is_right():
    """SA at beta = 5000 by the log domain: two tokens at 60 degrees do not move by more than e^{-2500}."""
    x = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)]], dtype=torch.float64)
    run = simulate(x, beta=5000.0, until=1.0, save=2, step=0.01)
    assert float((run.final - x).abs().max()) < 1e-15
    assert float(run.log_energy[-1]) == pytest.approx(5000 - math.log(2))
    with pytest.raises(GeoattnError, match="log_energy"):
        _ = run.energy
