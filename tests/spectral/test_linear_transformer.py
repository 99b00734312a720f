"""The linear transformer, its tangent kernel, and the assumptions of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.spectral.depth import depth_limit
from geoattn.spectral.entropy import gaussian_entropy_inequality, row_entropy
from geoattn.spectral.linear_transformer import (
    check_assumptions,
    layer_spectrum,
    pl_probability,
    tangent_kernel_values,
)
from geoattn.spectral.neural_tangent import pl_ratio, tangent_kernel
from tests.graphs import draw


def shared_query_key(n: int, seed: int, scale: float = 1.0) -> np.ndarray:
    q = scale * np.random.default_rng(seed).standard_normal((n, 5))
    weights = np.exp(q @ q.T / np.sqrt(5))
    return weights / weights.sum(-1, keepdims=True)


def test_kronecker_spectrum() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        a, h = draw("softmax-1", 5, 1, seed=seed)[0], rng.standard_normal((3, 3)) / 2
        dense = np.linalg.eigvals(np.linalg.matrix_power(np.eye(15) + np.kron(h, a), 4))
        found = layer_spectrum(a, h, 4).ravel()
        for value in dense:  # as sets: each one has a partner
            nearest = np.abs(found - value).argmin()
            assert abs(found[nearest] - value) < 1e-9
            found = np.delete(found, nearest)


def test_shared_projections_leave_no_negative_eigenvalue() -> None:
    """Assumptions A0 and A5 of the paper exclude each other."""
    smallest = [np.linalg.eigvals(shared_query_key(9, seed, scale=2.0)).real.min() for seed in range(500)]
    assert min(smallest) > -1e-12
    found = {a.name: a for a in check_assumptions(shared_query_key(9, 0), np.eye(2) / 2, shared_query_key=True)}
    assert found["A0"].holds
    assert found["A1"].holds
    assert found["A2"].holds
    assert found["A3"].holds
    assert found["A4"].holds is None
    assert not found["A5"].holds
    assert "impossible" in found["A5"].found
    free = [np.linalg.eigvals(a).real.min() for a in draw("softmax-3", 9, 200)]
    assert min(free) < -0.3


def test_tangent_values_and_probability() -> None:
    a, h = shared_query_key(6, 1), np.diag([0.2, 0.4])
    values = tangent_kernel_values(a, h, depth=3, eta=0.5)
    smallest = np.linalg.eigvals(a).real.min()
    assert values.min() == pytest.approx(0.25 * (1 + smallest * 0.2) ** 4)  # j = 1, not j = d as printed
    maps = np.stack([shared_query_key(6, s) for s in range(30)])
    weights = np.stack([np.diag(np.random.default_rng(s).uniform(0.1, 1, 2)) for s in range(30)])
    chances = [pl_probability(maps, weights, 3, mu).p for mu in (0.9, 1.05, 1.3, 3.0)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == 1
    middle = pl_probability(maps, weights, 3, 1.1)
    assert 0 <= middle.lower <= middle.p <= middle.upper <= 1


@pytest.mark.parametrize(("values", "regime"), [((0.3, 0.6), "oversmoothing"), ((-0.3, -0.9), "sharpening")])
def test_depth_goes_where_the_eigenvalues_say(values: tuple[float, float], regime: str) -> None:
    a, h = shared_query_key(7, 2), np.diag(values)
    limit = depth_limit(a, h)
    assert limit.regime == regime
    x = np.random.default_rng(0).standard_normal((7, 2))
    for _ in range(4000):
        x = x + a @ x @ h.T
        x /= np.linalg.norm(x)
    spread = np.ptp(x / np.abs(x).max(axis=0, keepdims=True).max(), axis=0).max()
    assert (spread < 1e-6) == (regime == "oversmoothing")


def test_equal_moduli_are_undecided() -> None:
    assert depth_limit(np.eye(2), np.eye(2) / 2).regime == "undecided"


def test_tangent_kernel_against_plain_gradients() -> None:
    model = ga.load_model("lvit-digits").train()
    images = ga.load_data("digits", split="test", limit=2).pixels()
    found = tangent_kernel(model, images, output=lambda logits: logits[:, :3])
    assert model.training
    twin = ga.load_model("lvit-digits").double()
    rows = []
    for k in range(2):
        for c in range(3):
            out = twin(images[k : k + 1].double())[0, c]
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(out, list(twin.parameters()))]))
    rows = torch.stack(rows)
    np.testing.assert_allclose(found.kernel, (rows @ rows.T).numpy(), rtol=1e-9)
    assert found.smallest > found.rounding
    assert found.condition > 1


def test_more_outputs_than_parameters_are_singular() -> None:
    found = tangent_kernel(torch.nn.Linear(1, 1, bias=False), torch.tensor([[1.0], [2.0]]))
    assert found.smallest <= found.rounding
    assert found.condition == float("inf")


def test_pl_ratio_of_a_quadratic() -> None:
    x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    assert pl_ratio((x**2).sum(), [x]) == pytest.approx(4.0)
    with pytest.raises(ga.GeoattnError, match="positive loss"):
        pl_ratio((0 * x).sum(), [x])


def test_entropy_of_rows() -> None:
    a = draw("softmax-1", 6, 2)
    expected = -(a * np.log(a)).sum(-1)
    np.testing.assert_allclose(row_entropy(a), expected)
    assert row_entropy(np.full((4, 4), 0.25), normalised=True) == pytest.approx(np.ones(4))
    mask = np.array([True, True, False])
    rows = np.array([[0.5, 0.5, 0], [1.0, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(row_entropy(rows, mask=mask), [np.log(2), 0, np.nan])


def test_lott_villani_on_the_line() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        m, s = rng.standard_normal(2) * 3, rng.uniform(0.05, 4, 2)
        bound = gaussian_entropy_inequality((m[0], s[0]), (m[1], s[1]), rng.uniform(0.01, 5), rng.uniform())
        assert bound.theorem
        assert bound.slack >= -1e-10
    strict = gaussian_entropy_inequality((0, 1), (0, 3), 1.0, 0.5)
    assert strict.slack > 0.01


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layer_spectrum(np.ones((2, 3)), np.eye(2), 1), "attention must be a square"),
        (lambda: layer_spectrum(np.eye(2), np.full((2, 2), np.inf), 1), "H must be finite"),
        (lambda: layer_spectrum(np.eye(2), np.eye(2), 0), "depth"),
        (lambda: pl_probability(np.zeros((0, 2, 2)), np.eye(2)[None], 2, 0.1), "at least one"),
        (lambda: depth_limit(np.eye(2), np.eye(2), margin=2), "margin"),
        (lambda: tangent_kernel(torch.nn.ReLU(), torch.ones(2, 2)), "no parameter"),
        (lambda: tangent_kernel(torch.nn.Linear(2, 2), torch.ones(0, 2)), "at least one sample"),
        (lambda: gaussian_entropy_inequality((0, 0), (0, 1), 1, 0.5), "positive"),
    ],
)
def test_bad_input(call, words: str) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        call()
