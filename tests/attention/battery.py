"""Attention as other people write it, each with the map that it uses: what a capture must get right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.attention import CaptureWarning, Record, capture

B, H, N, D = 3, 4, 6, 5
WIDTH = H * D


def record_of(model: nn.Module, *args: Any, inputs: bool = False) -> tuple[Record, list[str]]:
    """What one forward pass leaves, and the warnings of the capture."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad(), capture(model, inputs=inputs) as record:
            model(*args)
    return record, [str(w.message) for w in caught if issubclass(w.category, CaptureWarning)]


class Own(nn.Module):
    """Queries, keys and values (b, h, n, d) for a function ``attend(module, q, k, v)``."""

    def __init__(self, attend: Callable[..., Tensor], **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.attend = nn.Linear(WIDTH, 3 * WIDTH), attend
        self.mix = nn.Parameter(torch.eye(H) + 0.1 * torch.randn(H, H))
        self.out = nn.Parameter(torch.randn(H, D, WIDTH))
        for name, value in attributes.items():
            setattr(self, name, value)

    def heads(self, x: Tensor) -> list[Tensor]:
        q, k, v = (t.reshape(*x.shape[:2], H, D).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return [3 * q, k, v]

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self, *self.heads(x))


def soft(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1)


def head_loop(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = soft(q, k)
    return torch.stack([weights[:, i] @ v[:, i] for i in range(H)], 1)


def unbound_heads(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.stack([w @ u for w, u in zip(soft(q, k).unbind(1), v.unbind(1), strict=True)], 1)


def rows_in_parts(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat([w @ v for w in soft(q, k).split(2, -2)], -2)


def added(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.reshape(B * H, N, D) for t in (q, k, v))
    return torch.baddbmm(torch.zeros(B * H, N, D), soft(q, k), v)


def three_operands(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjd,hdw->biw", soft(q, k), v, m.out)


def keys_first(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (k @ q.transpose(-1, -2)).softmax(-2)
    return weights.transpose(-1, -2) @ v


def transformer_xl(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.permute(2, 0, 1, 3) for t in (q, k, v))
    weights = torch.einsum("ibnd,jbnd->ijbn", q, k).softmax(1)
    return torch.einsum("ijbn,jbnd->ibnd", weights, v)


def heads_last(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhid,bhjd->bijh", q, k).softmax(2)
    return torch.einsum("bijh,bhjd->bihd", weights, v)


def logarithm(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.log_softmax(q @ k.mT, -1).exp() @ v


def many_steps(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = soft(q, k)
    for _ in range(12):
        weights = weights * 1.0
    return weights @ v


class Deeper(nn.Module):
    def __init__(self, levels: int) -> None:
        super().__init__()
        self.inner = Deeper(levels - 1) if levels else nn.Softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def deep_softmax(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return m.soft(q @ k.mT) @ v


def heads_outside_batch(m: Own, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(heads, batch, n, d): as many samples as heads in the test."""
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    return soft(q, k) @ v


#: Forms whose map is softmax(q k^T), as (b, h, n, n).
PLAIN: dict[str, Callable[[], Own]] = {
    "head loop": lambda: Own(head_loop),
    "unbound heads": lambda: Own(unbound_heads),
    "rows in parts": lambda: Own(rows_in_parts),
    "baddbmm": lambda: Own(added, num_heads=H),
    "three operands": lambda: Own(three_operands),
    "keys first": lambda: Own(keys_first),
    "transformer-xl": lambda: Own(transformer_xl, num_heads=H),
    "heads last": lambda: Own(heads_last),
    "log_softmax": lambda: Own(logarithm),
    "many steps": lambda: Own(many_steps),
    "softmax three modules deeper": lambda: Own(deep_softmax, soft=Deeper(2)),
}


def talking(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = functional.dropout(soft(q, k), m.p, m.training)
    return torch.einsum("bhij,hg->bgij", weights, m.mix) @ v


def renormalised(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = functional.dropout(soft(q, k), m.p, m.training) * m.scale
    return (weights / weights.sum(-1, keepdim=True)) @ v


def renormalised_in_place(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = functional.dropout(soft(q, k), m.p, m.training)
    weights = weights * m.scale
    weights /= weights.sum(-1, keepdim=True)
    return weights @ v


def convolved(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return m.conv(functional.dropout(soft(q, k), m.p, m.training)) @ v


class DeepViT(Own):
    """Re-attention: mixed heads, and a norm over heads inside of an nn.Sequential with modules of its own."""

    class Turn(nn.Module):
        def __init__(self, *order: int) -> None:
            super().__init__()
            self.order = order

        def forward(self, x: Tensor) -> Tensor:
            return x.permute(*self.order)

    def __init__(self) -> None:
        super().__init__(self.mixed, p=0.0)
        self.norm = nn.Sequential(self.Turn(0, 2, 3, 1), nn.LayerNorm(H), self.Turn(0, 3, 1, 2))

    @staticmethod
    def mixed(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return m.norm(torch.einsum("bhij,hg->bgij", functional.dropout(soft(q, k), m.p, m.training), m.mix)) @ v


#: Forms whose map is changed after dropout; ``p`` is the rate of dropout.
MIXED: dict[str, Callable[[], Own]] = {
    "talking heads": lambda: Own(talking, p=0.0),
    "re-normalised": lambda: Own(renormalised, p=0.0, scale=torch.linspace(0.5, 2, N)),
    "re-normalised in place": lambda: Own(renormalised_in_place, p=0.0, scale=torch.linspace(0.5, 2, N)),
    "convolution": lambda: Own(convolved, p=0.0, conv=nn.Conv2d(H, H, 3, padding=1)),
    "DeepViT": DeepViT,
}
