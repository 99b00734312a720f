"""The table of the energy-dissipation balance: no defect for gradient flows, a positive one for others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.interaction import FLOWS
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens
from geoattn.dynamics.trajectory import Trajectory
from geoattn.dynamics.variants import VARIANTS

S = torch.tensor([[1.0, 0.3, 0.0], [0.3, 0.5, 0.2], [0.0, 0.2, -0.7]], dtype=torch.float64)
K = torch.tensor([[0.0, 0.5, 0.0], [-0.5, 0.0, 0.3], [0.0, -0.3, 0.0]], dtype=torch.float64)
X = uniform_tokens(6, 3, seed=4)


@pytest.mark.parametrize("flow", [f for f in FLOWS if VARIANTS[f].metric is not None])
@pytest.mark.parametrize("sign", [1.0, -2.0])
def test_a_gradient_flow_has_no_defect(flow, sign):
    D = S if VARIANTS[flow].energy == "symmetric" else torch.eye(3, dtype=torch.float64)
    run = simulate(X, D=D, V=sign * D, beta=1.3, flow=flow, until=1.0, save=201, method="adaptive", tolerance=1e-10)
    table = run.dissipation()
    size = float((table.speed**2).max())
    assert np.abs(table.speed - table.slope).max() < 1e-9 * max(1.0, size)
    assert np.abs(table.defect).max() < 1e-9 * size
    assert (table.rate > 0).all()
    np.testing.assert_allclose(table.gained, table.dissipated, atol=1e-4 * size)


@pytest.mark.parametrize("flow", ["SA", "USA", "sigmoid"])
def test_others_have_one(flow):
    table = simulate(X, D=S + K, V=S, flow=flow, until=0.5, save=5, method="adaptive").dissipation()
    assert (table.defect > 1e-6).all()
    turned = simulate(X, D=S, V=S + K, flow=flow, until=0.5, save=5, method="adaptive").dissipation()
    assert (turned.defect > 1e-6).all()


def test_batches_weights_and_files(tmp_path):
    x = uniform_tokens(5, 3, runs=2, seed=1)
    w = [0.1, 0.2, 0.3, 0.25, 0.15]
    run = simulate(x, D=S, V=S, weights=w, until=0.5, save=4)
    table = run.dissipation()
    assert len(table) == 8
    assert np.abs(table.defect).max() < 1e-10
    run.save(tmp_path / "run.npz")
    again = Trajectory.load(tmp_path / "run.npz").dissipation()
    np.testing.assert_allclose(again, table)


def test_one_token():
    table = simulate(X[:1], D=S, V=S, until=1.0, save=3).dissipation()
    assert np.abs(table.defect).max() < 1e-12


def test_coincident_tokens_are_one_of_both_masses():
    once, twice = (simulate(x, D=S, V=S, until=0.5, save=3).dissipation() for x in (X, torch.cat([X, X])))
    np.testing.assert_allclose(twice, once, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": True}, "has no metric"),
        ({"flow": "hardmax"}, "has no metric"),
        ({"norm": "pre"}, "has no metric"),
        ({"V": lambda t: t}, "functions of time"),
        ({"keep": "last"}, "keep='all'"),
    ],
)
def test_bad_input(options, message):
    run = simulate(X, until=0.2, save=3, **options)
    with pytest.raises(GeoattnError, match=message):
        run.dissipation()
