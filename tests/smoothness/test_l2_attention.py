from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import lambertw

import geoattn as ga
from geoattn.smoothness.bounds import lipschitz_bounds
from geoattn.smoothness.l2_attention import l2_attention_bound


def l2_attention(x: torch.Tensor, Q: torch.Tensor, V: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    k = Q.shape[1]
    heads = []
    for h in range(len(Q)):
        q = x @ Q[h].T
        far = (q[:, None] - q[None]).square().sum(-1)
        heads.append(torch.softmax(-far / math.sqrt(k), -1) @ x @ (Q[h].T @ Q[h]) @ V[h].T / math.sqrt(k))
    return torch.cat(heads, -1) @ W.T


def test_l2_attention_stays_below_its_bound():
    g = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(40):
        h, k, d, n = 2, 3, 4, int(torch.randint(1, 8, (), generator=g))
        Q, V, W = (torch.randn(*s, generator=g, dtype=torch.float64) for s in ((h, k, d), (h, 3, d), (2, 3 * h)))
        x = torch.randn(n, d, generator=g, dtype=torch.float64) * 10 ** float(torch.rand((), generator=g) * 3 - 1.5)
        bound = l2_attention_bound(Q, V, W, n)
        J = torch.func.jacrev(lambda t, q=Q, v=V, w=W: l2_attention(t, q, v, w))(x).reshape(2 * n, d * n)
        worst = max(worst, float(torch.linalg.matrix_norm(J, 2)) / bound.value)
    assert 0.05 < worst <= 1


def test_l2_bound_formula_and_scaling():
    one = l2_attention_bound(np.eye(3), np.eye(3), np.eye(3), 20)
    assert one.value == pytest.approx(math.sqrt(20 / 3) * (4 * lambertw(19 / math.e).real + 1))
    assert l2_attention_bound(2 * np.eye(3), np.eye(3), np.eye(3), 20).value == pytest.approx(4 * one.value)
    phi = lambertw(19 / math.e).real
    assert phi * math.exp(phi + 1) == pytest.approx(19)
    refused = lipschitz_bounds(np.eye(3), None, 20, 1.0)["L2 attention upper"]
    assert not refused.applies
    assert "dot-product" in refused.reason


def test_shapes_that_do_not_fit():
    with pytest.raises(ga.GeoattnError, match="must fit"):
        l2_attention_bound(np.eye(2), np.eye(3), np.eye(2), 4)
