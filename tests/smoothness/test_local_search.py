"""The search in which few tokens move freely, against dense Jacobians and against Lanczos with all tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.local import local_lipschitz
from geoattn.smoothness.local_jacobian import LocalJacobian
from geoattn.smoothness.local_search import largest_by_tokens
from geoattn.smoothness.symmetric_lanczos import largest_eigenvector

ARGUMENTS = [
    {},
    {"causal": True},
    {"causal": True, "norm": "layer", "residual": True},
    {"causal": True, "norm": "rms", "norm_place": "after"},
    {"bias": np.array([0.3, -0.2, 0.5])},
]


def jacobian(seed: int, n: int = 40, heads: int = 0, **arguments) -> Jacobian:
    rng = np.random.default_rng(seed)
    shape = (heads, 3, 3) if heads else (3, 3)
    f = AttentionMap.of(rng.standard_normal(shape), rng.standard_normal(shape), rng.standard_normal(shape), **arguments)
    return Jacobian(f, torch.as_tensor(rng.standard_normal((1, n, 3)) * 1.5).float())


def dense(J: Jacobian) -> torch.Tensor:
    columns = J.apply(torch.eye(J.in_size)[None])[0]
    return columns.T.double()


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("heads", [0, 2])
def test_moves_of_some_tokens_are_columns_of_the_jacobian(arguments, heads):
    if heads and "bias" in arguments:
        arguments = {"bias": np.array([arguments["bias"], -arguments["bias"]])}
    J = jacobian(3, heads=heads, **arguments)
    whole = dense(J)
    auto = torch.func.jacrev(J.map)(J.tokens.double()).reshape(J.out_size, J.in_size)
    torch.testing.assert_close(whole, auto, rtol=1e-4, atol=1e-4)
    for places in (torch.tensor([0]), torch.tensor([39]), torch.tensor([2, 3, 17, 30])):
        part = LocalJacobian(J, places)
        at = (places[:, None] * 3 + torch.arange(3)).flatten()
        found = part.apply(torch.eye(len(at))[None])[0].T.double()
        torch.testing.assert_close(found, auto[:, at], rtol=1e-4, atol=1e-4)
        g = torch.randn(1, 2, J.out_size)
        torch.testing.assert_close(part.adjoint(g)[0].double(), g[0].double() @ auto[:, at], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("first", [1, 4, 40])
def test_largest_singular_value_of_the_dense_jacobian(arguments, first):
    for seed in range(6):
        J = jacobian(seed, **arguments)
        whole = dense(J)
        singular = torch.linalg.svdvals(whole)
        found = largest_by_tokens(J, seed=seed, starts=2, tolerance=1e-3, floor=0.0, steps=400, first=first)
        assert bool(found.converged.all())
        top = int(found.value.argmax())
        assert float(found.value[top]) == pytest.approx(float(singular[0]), rel=1e-4)
        for k in range(2):  # whatever a start found is a singular triplet
            u, v, s = found.left[k].double(), found.right[k].double(), float(found.value[k])
            assert float((whole @ v - s * u).norm()) < 1e-4 * s
            assert float((whole.T @ u - s * v).norm()) < 1.1e-3 * s
            assert float(found.residual[k]) == pytest.approx(float((whole.T @ u - s * v).norm()), abs=1e-4 * s)


def test_a_jacobian_of_zero():
    f = AttentionMap.of(np.eye(3), np.zeros((3, 3)), np.zeros((3, 3)))
    found = local_lipschitz(np.random.default_rng(0).standard_normal((2100, 3)), np.eye(3), np.zeros((3, 3)),
                            search="float32", tolerance=1e-3)  # fmt: skip
    assert found.value == 0.0
    J = Jacobian(f, torch.randn(1, 40, 3))
    assert bool(largest_by_tokens(J, seed=0, starts=2, tolerance=1e-3, floor=1e-12, steps=9).converged.all())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_long_sequences_agree_with_the_search_in_double_precision(causal, scale):
    rng = np.random.default_rng(5)
    x, a = rng.standard_normal((2100, 8)), rng.standard_normal((8, 8)) * scale / 4
    rough = local_lipschitz(x, a, causal=causal, search="float32", tolerance=1e-3)
    exact = local_lipschitz(x, a, causal=causal, tolerance=1e-5)
    assert rough.relative_residual < 2e-3
    assert rough.value == pytest.approx(exact.value, rel=1e-4)


def test_some_tokens_need_one_sequence_in_single_precision():
    f = AttentionMap.of(np.eye(2))
    for tokens in (torch.zeros(1, 4, 2, dtype=torch.float64), torch.zeros(2, 4, 2)):
        with pytest.raises(GeoattnError, match="one sequence"):
            LocalJacobian(Jacobian(f, tokens), torch.tensor([0]))


def test_largest_eigenvector_of_a_dense_matrix():
    rng = torch.Generator().manual_seed(0)
    m = torch.randn(30, 30, generator=rng, dtype=torch.float64)
    m = m @ m.T
    y = largest_eigenvector(
        lambda v: m @ v, torch.randn(30, generator=rng, dtype=torch.float64), tolerance=1e-9, steps=30
    )
    assert float(y @ m @ y) == pytest.approx(float(torch.linalg.eigvalsh(m)[-1]), rel=1e-12)
