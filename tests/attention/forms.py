"""Softmax attention in the many ways people write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

B, H, N, D = 3, 4, 6, 5
WIDTH = H * D


class Written(nn.Module):
    """Queries, keys and values for attention that is written somewhere else."""

    num_heads = H

    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.attend = nn.Linear(WIDTH, 3 * WIDTH), attend

    def heads(self, x: Tensor) -> list[Tensor]:
        q, k, v = (t.reshape(*x.shape[:2], H, D).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return [3 * q, k, v]

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        return self.attend(*self.heads(x), *rest)


class Subclass(Tensor):
    pass


class OwnSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(weights := scores.softmax(-1))
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        return weights * (grad - (weights * grad).sum(-1, keepdim=True))


def soft(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1)


def diffusion(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Values first, as in the autoencoders of VQGAN and Stable Diffusion."""
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    weights = functional.softmax(torch.bmm(q, k.permute(0, 2, 1)), dim=2)
    return torch.bmm(v.permute(0, 2, 1), weights.permute(0, 2, 1))


def set_transformer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads one after another in the axis of the batch."""
    q, k, v = (torch.cat(t.unbind(1), 0) for t in (q, k, v))
    return torch.softmax(q.bmm(k.transpose(1, 2)), 2).bmm(v)


def heads_outside(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(0, 1).reshape(-1, N, D) for t in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, scale=1.0)


def heads_outside_copied(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(0, 1).contiguous().view(-1, N, D) for t in (q, k, v))
    return soft(q, k) @ v


def heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)), scale=1.0)


def batch_outside(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.reshape(-1, N, D) for t in (q, k, v))
    return torch.bmm(soft(q, k), v)


def moved(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.transpose(-1, -2) @ torch.movedim(soft(q, k), -1, -2)


def talked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mixed = functional.linear(soft(q, k).permute(0, 2, 3, 1), torch.eye(H))
    return mixed.permute(0, 3, 1, 2) @ v


FORMS: dict[str, Callable[..., Tensor]] = {
    "values first": diffusion,
    "mT": lambda q, k, v: v.mT @ soft(q, k).mT,
    "movedim": moved,
    "heads last and back": talked,
    "ellipsis": lambda q, k, v: torch.einsum(
        "...ij,...jd->...id", torch.einsum("...id,...jd->...ij", q, k).softmax(-1), v
    ),
    "values einsum": lambda q, k, v: torch.einsum("bhjd,bhij->bihd", v, soft(q, k)),
    "shared values einsum": lambda q, k, v: torch.einsum("bhij,bjd->bhid", soft(q, k), v[:, 0]),
    "sublists": lambda q, k, v: torch.einsum(soft(q, k), [0, 1, 2, 3], v, [0, 1, 3, 4], [0, 1, 2, 4]),
    "keywords": lambda q, k, v: torch.matmul(input=soft(q, k), other=v),
    "bmm keywords": lambda q, k, v: torch.bmm(input=soft(q, k).flatten(0, 1), mat2=v.flatten(0, 1)),
    "special": lambda q, k, v: torch.special.softmax(q @ k.mT, -1) @ v,
    "cast": lambda q, k, v: functional.softmax(q @ k.mT, dim=-1, dtype=torch.float64).to(v.dtype) @ v,
    "copies": lambda q, k, v: soft(q, k).clone().contiguous() @ v,
    "autograd function": lambda q, k, v: OwnSoftmax.apply(q @ k.mT) @ v,
    "subclass": lambda q, k, v: soft(q.as_subclass(Subclass), k) @ v,
    "subclass, fused": lambda q, k, v: functional.scaled_dot_product_attention(
        q.as_subclass(Subclass), k, v, scale=1.0
    ),
    "exported": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention.default(q, k, v, scale=1.0),
    "packet": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, v, scale=1.0),
    "set transformer": set_transformer,
    "heads outside": heads_outside,
    "heads outside, copied": heads_outside_copied,
    "heads first": heads_first,
    "batch outside": batch_outside,
}
