"""The bound by the norm of the softmax: rows against dense eigenvalues, never below the constant, real heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.profiles.batches import read_batch
from geoattn.profiles.model_constants import SmoothnessPass
from geoattn.smoothness import local_lipschitz, softmax_bound
from geoattn.smoothness.layer_smoothness import layer_smoothness
from geoattn.smoothness.softmax_norms import head_softmax_bound, softmax_norm


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_rows_against_eigenvalues(logits):
    p = torch.tensor(logits, dtype=torch.float64).softmax(-1)
    exact = torch.linalg.matrix_norm(torch.diag(p) - torch.outer(p, p), 2)
    assert float(softmax_norm(p[None])[0]) == pytest.approx(float(exact), abs=1e-13)


def test_two_weights_and_ties():
    p = torch.tensor([[0.3, 0.7, 0.0], [0.5, 0.5, 0.0], [0.25, 0.5, 0.25]], dtype=torch.float64)
    np.testing.assert_allclose(softmax_norm(p)[:2], [0.42, 0.5], atol=1e-15)
    equal = torch.full((1, 4), 0.25, dtype=torch.float64)
    assert float(softmax_norm(equal)[0]) == pytest.approx(0.25, abs=1e-15)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_never_below_the_constant(seed, causal):
    rng = np.random.default_rng(seed)
    n, d = 3 + 3 * seed, 2 + seed % 3
    x, A, V = rng.standard_normal((n, d)), rng.standard_normal((d, d)), rng.standard_normal((d, d))
    value = local_lipschitz(x, A, V, causal=causal).value
    bound = softmax_bound(x, A, V, causal=causal)
    assert value <= bound
    assert bound < 40 * value


def test_one_token_is_exact():
    V = np.diag([3.0, 1.0])
    assert softmax_bound(np.array([[1.0, 2.0]]), np.eye(2), V) == pytest.approx(3.0)


def test_heads_of_a_model():
    model, rows = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    for _, p in SmoothnessPass(model).projections(read_batch(rows.pixels(), model, 0)):
        found = layer_smoothness(p, whole=False)
        for sample in range(2):
            assert found.heads[sample, 0] <= head_softmax_bound(p, sample, 0)


def test_bad_input():
    with pytest.raises(GeoattnError, match=r"one \(n, d\) array"):
        softmax_bound(np.zeros((2, 3, 2)), np.eye(2))
    with pytest.raises(GeoattnError, match="one head"):
        softmax_bound(np.zeros((3, 2)), np.zeros((2, 2, 2)))
