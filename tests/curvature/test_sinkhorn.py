"""Sinkhorn stays below the exact value, near it, says how near, and gives no number without convergence."""

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.curvature.entropic import EntropicTransport
from geoattn.graph.convention import PRESETS

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def softmax(n, scale, seed, *, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(scale * torch.randn(*batch, n, n, generator=generator, dtype=torch.float64), dim=-1)


def assert_brackets(result, exact):
    same = ~((result.status == ga.curvature.Status.STALLED) & (exact.status == ga.curvature.Status.SOLVED))
    np.testing.assert_array_equal(result.status[same], exact.status[same])
    have = np.isfinite(result.kappa)
    assert (result.kappa[have] <= exact.kappa[have] + 1e-9).all()
    assert (exact.kappa[have] <= result.upper[have] + 1e-9).all()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scale", [1, 4])
def test_near_the_exact_value_from_below_with_the_error_shown(preset, scale):
    attention = softmax(17, scale, 0, batch=(2,))
    result = ga.sinkhorn_ricci(attention, preset, edges=40, check=1000)
    exact = ga.ollivier_ricci(attention, preset, edges=40)
    np.testing.assert_array_equal(result.index, exact.index)
    assert_brackets(result, exact)
    off = np.abs(result.kappa - exact.kappa)[result.status == ga.curvature.Status.SOLVED]
    assert off.max() < 5e-3
    assert off.mean() < 5e-4
    assert result.error.edges == len(off)
    assert result.error.largest == pytest.approx(off.max(), rel=1e-9, abs=1e-15)
    assert result.error.mean == pytest.approx(off.mean(), rel=1e-9, abs=1e-15)
    assert "error against exact on" in repr(result)
    assert result.summary()["error_max"] == result.error.largest


def test_error_falls_with_the_regularisation():
    attention = softmax(12, 2, 3)
    errors = [
        ga.sinkhorn_ricci(attention, regularisation=rho, tolerance=1e-6, check=66).error.mean
        for rho in (0.3, 0.1, 0.03, 0.01)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-2 * errors[0]


def test_dense_layout_matches_the_exact_one():
    attention = softmax(9, 1, 5, batch=(2, 2))
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    attention = attention * mask[:, None, None, :]
    attention = attention / attention.sum(-1, keepdim=True)
    exact = ga.ollivier_ricci(attention, mask=mask)
    result = ga.sinkhorn_ricci(attention, mask=mask)
    assert_brackets(result, exact)
    np.testing.assert_array_equal(np.isnan(result.kappa), np.isnan(exact.kappa))
    np.testing.assert_allclose(result.values(), exact.values(), atol=5e-3)
    np.testing.assert_allclose(result.w1, exact.w1, atol=2e-2)
    np.testing.assert_allclose(result.distance, exact.distance)


def test_scaling_all_lengths_changes_nothing():
    """The regularisation is relative: weights of 1e-9 give what weights of 1 give."""
    weights = softmax(8, 1, 2)
    weights = (weights + weights.T) / 2
    convention = ga.Convention(length="w", measure="uniform", alpha=0.3)
    large = ga.sinkhorn_ricci(weights, convention)
    small = ga.sinkhorn_ricci(weights * 1e-9, convention)
    np.testing.assert_allclose(large.values(), small.values(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, "limit"])
def test_directed_and_lin_lu_yau(alpha):
    attention = softmax(8, 1, 1)
    convention = ga.Convention(direction="directed", alpha=alpha)
    result = ga.sinkhorn_ricci(attention, convention, check=100)
    assert_brackets(result, ga.ollivier_ricci(attention, convention))
    assert result.error.largest < 1e-2


def test_an_edge_that_did_not_converge_has_no_number():
    attention = softmax(10, 4, 0)
    result = ga.sinkhorn_ricci(attention, regularisation=1e-3, iterations=10, tolerance=1e-9)
    stalled = result.status == ga.curvature.Status.STALLED
    assert result.unconverged == stalled.sum() // 2 > 0
    assert np.isnan(result.kappa[stalled]).all()
    assert np.isnan(result.upper[stalled]).all()
    assert f"{result.unconverged} not converged" in repr(result)
    assert result.summary()["unconverged"] == result.unconverged


def test_causal_pairs_that_cannot_be_cut_to_the_marginals_are_not_converged():
    attention = torch.tril(softmax(7, 1, 0))
    attention = attention / attention.sum(-1, keepdim=True)
    convention = ga.Convention(direction="directed")
    exact = ga.ollivier_ricci(attention, convention)
    result = ga.sinkhorn_ricci(attention, convention)
    assert_brackets(result, exact)
    unreachable = exact.status == ga.curvature.Status.UNREACHABLE
    assert unreachable.any()
    assert np.isnan(result.kappa[unreachable]).all()


@pytest.mark.parametrize(
    "attention",
    [
        torch.full((5, 5), 0.2, dtype=torch.float64),  # nothing moves
        torch.eye(5, dtype=torch.float64)[[1, 2, 3, 4, 0]],  # one-hot
        torch.block_diag(softmax(3, 1, 0), softmax(4, 1, 1)),  # padding of one part lies in the other
        torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64),
    ],
    ids=["uniform", "one-hot", "two parts", "two tokens"],
)
@pytest.mark.parametrize("preset", PRESETS)
def test_hostile_graphs(attention, preset):
    result = ga.sinkhorn_ricci(attention, preset)
    exact = ga.ollivier_ricci(attention, preset)
    assert_brackets(result, exact)
    assert result.unconverged == 0
    np.testing.assert_allclose(result.kappa, exact.kappa, atol=5e-3)


def test_half_precision_and_numpy_give_the_same():
    attention = softmax(6, 1, 0).half()
    ours = ga.sinkhorn_ricci(attention)
    np.testing.assert_array_equal(ours.kappa, ga.sinkhorn_ricci(attention.numpy()).kappa)
    assert ours.settings["device"] == "cpu"


def test_no_edges_no_values():
    result = ga.sinkhorn_ricci(np.eye(4))
    assert np.isnan(result.kappa).all()
    assert result.error.edges == 0
    assert "0 values" in repr(result)


def test_transport_on_a_line_is_the_distance_of_the_quantiles():
    rng = np.random.default_rng(0)
    s, t = rng.dirichlet(np.ones(6), size=20), rng.dirichlet(np.ones(6), size=20)
    line = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    exact = np.abs(np.cumsum(s - t, axis=1)).sum(axis=1)
    surplus, deficit = np.maximum(s - t, 0), np.maximum(t - s, 0)
    plan, bound = EntropicTransport(torch.device("cpu"), 0.01, 5000, 1e-6).solve(surplus, deficit, line)
    assert (bound <= exact + 1e-12).all()
    assert (exact <= plan + 1e-12).all()
    np.testing.assert_allclose(plan, exact, rtol=1e-2)
    np.testing.assert_allclose(bound, exact, rtol=2e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularisation": 0.0}, "regularisation must be a positive number"),
        ({"tolerance": -1.0}, "tolerance must be a positive number"),
        ({"iterations": 0}, "iterations must be a whole number of at least 1"),
        ({"check": 0}, "check must be a whole number of at least 1"),
        ({"edges": -3}, "'all' or"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ga.GeoattnError, match=message):
        ga.sinkhorn_ricci(softmax(4, 1, 0), **options)
