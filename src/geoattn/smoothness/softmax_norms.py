"""A bound of the local constant by the attention map itself: the norm of the softmax of each row."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.inputs import read_tokens
from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.projections import Projections

__all__ = ["head_softmax_bound", "softmax_bound", "softmax_norm"]

_BISECTIONS = 60


def softmax_norm(weights: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
    r"""Spectral norm of the derivative of softmax, :math:`\mathrm{diag}(p) - p p^\top`, for each row p.

    It is the root of :math:`\sum_j p_j^2 / (p_j - \lambda) = 1` between the two largest weights :math:`p_{(2)} \le
    p_{(1)}`, found by bisection in O(n). So it is at most :math:`p_{(1)}`, and for two weights it is 2 p (1 - p).

    Examples
    --------
    >>> import torch
    >>> softmax_norm(torch.tensor([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]], dtype=torch.float64))
    tensor([0.5000, 0.1800, 0.0000], dtype=torch.float64)
    """
    p = weights.double()
    if p.shape[-1] == 1:
        return torch.zeros(p.shape[:-1], dtype=torch.float64)
    top = p.topk(2, dim=-1)
    largest, low = top.values[..., 0], top.values[..., 1].clone()
    high = largest.clone()
    rest = p.scatter(-1, top.indices[..., :1], 0.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # largest^2 = (largest - z) (1 + sum over the others p_j^2 / (z - p_j)), without a pole at the largest
        others = (rest.square() / (middle[..., None] - rest).clamp_min(1e-300)).sum(-1)
        above = largest.square() > (largest - middle) * (1 + others)
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.where(high > low, (low + high) / 2, low)


def softmax_bound(tokens: Any, A: Any, V: Any = None, *, causal: bool = False) -> float:
    r"""A bound of the local constant of one head at given tokens, from the attention map P.

    .. math:: \|D_X f\|_2 \le \|V\|_2 \|P\|_2 + \|X V^\top\|_2 \max_i \|\mathrm{diag}(P_i) - P_i P_i^\top\|_2
              \big(\|A\|_2 \|X\|_2 + \|X A^\top\|_2\big)

    The first term is what moves through the values, the second through the logits :math:`\langle A x_i, x_j\rangle`:
    their change in the Frobenius norm times the norm of the softmax of the worst row times the values. The idea, a
    bound by the norm of the softmax at the map at hand, is that of Yudin, Gaponov, Kudriashov and Rakhuba 2025 (arXiv
    2507.07814, abstract); this form is derived here, with the exact norm of each row (`softmax_norm`).

    O(n^2 d) time and O(n^2) memory: cheaper than `local_lipschitz`, and looser.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import local_lipschitz, softmax_bound
    >>> x = np.random.default_rng(0).standard_normal((8, 3))
    >>> local_lipschitz(x, np.eye(3)).value <= softmax_bound(x, np.eye(3))
    True
    """
    x, _, batched = read_tokens(tokens, None)
    if batched:
        raise GeoattnError(f"tokens must be one (n, d) array; got shape {tuple(x.shape)}.")
    f = AttentionMap.of(A, V, causal=causal)
    if f.heads != 1:
        raise GeoattnError(f"the bound is for one head; A has {f.heads}.")
    kernel = Jacobian(f, x).kernel  # checks shapes and logits
    f = f.to(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype)
    key, value = (eye if t is None else t[0] for t in (f.key, f.value))
    output = None if f.output is None else f.output[0]
    return _bound(kernel.q[0, 0], kernel.k[0, 0], kernel.v[0, 0], (f.query[0], key, value), output, causal)


def head_softmax_bound(p: Projections, sample: int, head: int) -> float:
    """`softmax_bound` of a captured head, with its biases, places and output projection."""
    real = slice(None) if p.mask is None else p.mask[sample]
    q, k, v = (t[sample, head][real] for t in (p.q, p.k, p.v))
    matrices = (p.query[head], p.key[head], p.value[head])
    turns = [1.0 if t is None else float(torch.linalg.matrix_norm(t[sample, head], 2).max()) for t in
             (p.turn_query, p.turn_key)]  # fmt: skip
    output = None if p.output is None else p.output[head]
    return _bound(q, k, v, matrices, output, p.causal, (turns[0], turns[1]))


def _bound(
    q: Tensor, k: Tensor, v: Tensor, matrices: tuple[Tensor, Tensor, Tensor], output: Tensor | None, causal: bool,
    turns: tuple[float, float] = (1.0, 1.0),
) -> float:  # fmt: skip
    logits = q @ k.mT
    if causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), float("-inf"))
    weights = logits.softmax(-1)
    query, key, value = matrices
    written, through = (v, value) if output is None else (v @ output.mT, output @ value)
    norm = torch.linalg.matrix_norm
    moved = turns[0] * norm(query, 2) * norm(k, 2) + turns[1] * norm(key, 2) * norm(q, 2)
    return float(norm(through, 2) * norm(weights, 2) + norm(written, 2) * softmax_norm(weights).max() * moved)
