"""Attention as people write it: faithful small blocks of timm, vit-pytorch and others, and maps by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS = 16, 4


def by_hand(q: Tensor, k: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """softmax(scale q k^T + mask) in float64; mask is True where a query may look."""
    scores = q.double() @ k.double().transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) if mask is not None else scores.softmax(-1)


class TimmAttention(nn.Module):
    """timm.layers.Attention with its two branches."""

    def __init__(self, fused: bool, qk_norm: bool = True, drop: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused_attn = HEADS, WIDTH // HEADS, fused
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.q_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(drop), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.0)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        return self.q_norm(q), self.k_norm(k), v

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.heads(x)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=p)
        else:
            attn = (q * self.scale) @ k.transpose(-2, -1)
            if attn_mask is not None:
                attn = attn.masked_fill(~attn_mask, -torch.inf)
            x = self.attn_drop(attn.softmax(dim=-1)) @ v
        return self.proj_drop(self.proj(x.transpose(1, 2).reshape(b, n, c)))


class Block(nn.Module):
    """Pre-norm transformer block around an attention module."""

    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(WIDTH), attn, nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stack(nn.Module):
    """Blocks, a norm, and a classifier."""

    def __init__(self, *attention: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(attn) for attn in attention)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1)).softmax(-1)


class VitPytorchAttention(nn.Module):
    """vit_pytorch.vit.Attention: a softmax module of its own."""

    def __init__(self, dropout: float = 0.0, inplace: bool = False) -> None:
        super().__init__()
        self.heads, self.scale = HEADS, (WIDTH // HEADS) ** -0.5
        self.norm, self.attend, self.dropout = (
            nn.LayerNorm(WIDTH),
            nn.Softmax(dim=-1),
            nn.Dropout(dropout, inplace),
        )
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.to_out = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout))

    def split(self, x: Tensor) -> list[Tensor]:
        b, n, _ = x.shape
        return [t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.dropout(self.attend(dots))
        out = torch.matmul(attn, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class EinsumAttention(VitPytorchAttention):
    """Scores and products as einsum, in another order of axes."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in self.split(x))  # (b, n, h, d)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.scale
        attn = self.dropout(torch.softmax(scores, -1))
        out = torch.einsum("b h i j, b j h d -> b i h d", attn, v)
        return self.to_out(out.flatten(2))


class MergedAttention(VitPytorchAttention):
    """Batch and heads in one axis, as in fairseq: bmm and baddbmm; heads tell how to split."""

    fused = False

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (t.reshape(b * self.heads, n, -1) for t in self.split(x))
        if self.fused:
            out = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = torch.baddbmm(torch.zeros(b * self.heads, n, n), q * self.scale, k.transpose(1, 2))
            out = torch.bmm(self.dropout(functional.softmax(scores, dim=-1)), v)
        return self.to_out(out.reshape(b, self.heads, n, -1).transpose(1, 2).flatten(2))


class TalkingHeads(VitPytorchAttention):
    """A linear map across heads after the softmax (CaiT): rows are not probabilities any more."""

    def __init__(self) -> None:
        super().__init__()
        self.talk = nn.Linear(HEADS, HEADS)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        attn = self.attend(q @ k.transpose(-1, -2) * self.scale)
        attn = self.talk(attn.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.to_out((attn @ v).transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Attention of x on a context, as in diffusion models."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q, self.to_kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        b, n, _ = x.shape
        source = x if context is None else context
        q = self.to_q(x).reshape(b, n, HEADS, -1).transpose(1, 2)
        k, v = (t.reshape(b, source.shape[1], HEADS, -1).transpose(1, 2) for t in self.to_kv(source).chunk(2, -1))
        out = functional.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).reshape(b, n, -1)


class Router(nn.Module):
    """A mixture of experts: its softmax is no attention, nor is that of an expected embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.route, self.experts = (
            nn.Linear(WIDTH, 3),
            nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)),
        )
        self.codes = nn.Parameter(torch.randn(3, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        share = self.route(x).softmax(-1)
        mixed = sum(share[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return mixed + share @ self.codes
