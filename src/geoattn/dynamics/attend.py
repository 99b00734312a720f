"""Softmax attention of tokens on themselves, with its log mass, in memory that is linear in their number."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.circle_harmonics import circle_sum, circle_terms
from geoattn.dynamics.interaction import Interaction
from geoattn.dynamics.sphere_harmonics import sphere_sum, sphere_terms

__all__ = ["ENGINES", "Engine", "attend"]

Engine = Literal["auto", "fused", "blocks", "harmonic"]
ENGINES = ("auto", "fused", "blocks", "harmonic")

_BLOCK_ENTRIES = 1 << 21  # attention weights in work at once
_FEW_TOKENS = 64  # below, blocks: as fast, and exact for tokens that hardly move
_flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def attend(
    x: Float[Tensor, "b n d"], settings: Interaction, *, engine: str = "auto", self_term: bool = True
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
    r"""(:math:`\sum_j A_{ij} V x_j`, :math:`\log \sum_j w_j e^{\text{logit}_{ij}}`) of each token, A the softmax.

    ``self_term=False`` says that the caller projects on the tangent space: an engine may then leave out the term j = i
    of a V that is a multiple of the identity, so that tokens far from all others move by their true, tiny velocity and
    not by the rounding of the projection.
    """
    name = _choose(x, settings) if engine == "auto" else engine
    if name == "harmonic":
        done = _harmonic(x, settings, strict=engine == "harmonic")
        if done is not None:
            return done
        name = "fused" if _can_fuse(x) else "blocks"
    if name == "fused" and not _can_fuse(x):
        name = "blocks"
    query, key, value = settings.logits_and_values(x)
    if name == "fused":
        return _fused(query, key, value, settings)
    drop_self = not self_term and settings.values_are_tokens
    return _blocks(query, key, value, settings, drop_self)


def _choose(x: Tensor, settings: Interaction) -> str:
    n, d = x.shape[-2:]
    if n <= _FEW_TOKENS or x.requires_grad:
        return "blocks"
    if d <= 3 and not settings.causal and x.dtype == torch.float64:
        reach = settings.largest_logit()
        # measured: a mode costs as much as twelve pairs of the fused kernel, a spherical harmonic as much as three
        terms = 12 * circle_terms(reach) if d == 2 else 3 * sphere_terms(reach) ** 2
        if terms < n:
            return "harmonic"
    return "fused"


def _can_fuse(x: Tensor) -> bool:
    return _flash is not None and x.device.type == "cpu" and not x.requires_grad


def _harmonic(x: Tensor, settings: Interaction, *, strict: bool) -> tuple[Tensor, Tensor] | None:
    """The sum over all tokens by harmonics; None where it is not exact enough and may be done otherwise."""
    d = x.shape[-1]
    if d > 3 or settings.causal:
        raise GeoattnError("engine 'harmonic' is for d = 2 and d = 3 without a causal mask; use 'auto' or 'fused'.")
    # the series are those of a kernel on the sphere: tokens of a flow without normalisation may be anywhere
    if float((x.norm(dim=-1) - 1).abs().amax()) > (1e-9 if x.dtype == torch.float64 else 1e-5):
        if strict:
            raise GeoattnError("engine 'harmonic' is for tokens on the unit sphere; use 'auto' or 'fused'.")
        return None
    _, key, value = settings.logits_and_values(x)
    w = torch.ones_like(x[..., 0]) / x.shape[1] if settings.log_weights is None else settings.log_weights.exp()
    # logit = <x, beta D y>: the whole length goes into the keys, the queries are the tokens on the sphere
    beta = settings.beta if settings.beta.ndim == 0 else settings.beta[:, None, None]
    keys = (beta * key).double()
    radius = float(keys.norm(dim=-1).max())
    channels = (torch.cat([torch.ones_like(value[..., :1]), value], dim=-1) * w[..., None]).double()
    if d == 2:
        sums = circle_sum(x.double(), keys, channels, radius)  # times exp(-radius)
    else:
        rows = zip(x.double(), keys, channels, strict=True)
        sums = torch.stack([sphere_sum(*row, radius) for row in rows])
    out, mass = sums[..., 1:], sums[..., 0]
    # The sums are exact to about 1e-16 of exp(radius): not enough where the mass is tiny beside that.
    if float(mass.min()) < (1e-7 if settings.flow == "SA" else 1e-300):
        if strict:
            raise GeoattnError(
                f"engine 'harmonic' loses digits: a token has {float(mass.min()):.1e} of the largest possible mass. Use"
                " engine='auto' or 'fused'."
            )
        return None
    return (out / mass[..., None]).to(x), (mass.log() + radius).to(x)


def _log_count(n: int, settings: Interaction, like: Tensor) -> Tensor | float:
    """What to take off the log of a sum to have the log of a mean over the visible tokens."""
    if settings.log_weights is not None:
        return torch.logcumsumexp(settings.log_weights, dim=-1) if settings.causal else 0.0
    if settings.causal:
        return torch.arange(1, n + 1, dtype=like.dtype, device=like.device).log()
    return math.log(n)


def _fused(query: Tensor, key: Tensor, value: Tensor, settings: Interaction) -> tuple[Tensor, Tensor]:
    """Flash attention of torch on the CPU, which also gives the log partition."""
    n, d = query.shape[-2:]
    if settings.log_weights is not None:  # one more coordinate adds log w_j to each logit
        query = torch.cat([query, torch.ones_like(query[..., :1])], dim=-1)
        key = torch.cat([key, settings.log_weights[..., None]], dim=-1)
        value = torch.cat([value, torch.zeros_like(value[..., :1])], dim=-1)
    assert _flash is not None
    q, k, v = (z[:, None].contiguous() for z in (query, key, value))
    out, log_sum = _flash(q, k, v, 0.0, settings.causal, attn_mask=None, scale=1.0)
    return out[:, 0, :, :d], log_sum[:, 0] - _log_count(n, settings, query)


def _blocks(query: Tensor, key: Tensor, value: Tensor, settings: Interaction, drop_self: bool) -> tuple[Tensor, Tensor]:
    """Rows of attention, some runs and some tokens at a time."""
    b, n, _ = query.shape
    runs = max(1, min(b, _BLOCK_ENTRIES // (n * n)))
    rows = n if runs > 1 else max(1, min(n, _BLOCK_ENTRIES // n))
    parts = []
    for run in range(0, b, runs):
        some = slice(run, run + runs)
        columns = []
        for row in range(0, n, rows):
            logits = query[some, row : row + rows] @ key[some].mT
            if settings.log_weights is not None:
                logits = logits + settings.log_weights[some, None, :]
            if settings.causal:
                later = torch.ones_like(logits[0], dtype=torch.bool).triu(row + 1)
                logits = logits.masked_fill(later, -math.inf)
            attention = logits.softmax(-1)
            log_sum = logits.amax(-1) - attention.amax(-1).log()
            if drop_self:
                own = attention.clone() if attention.requires_grad else attention
                own.diagonal(row, -2, -1).zero_()
                attention = own
            columns.append((attention @ value[some], log_sum))
        parts.append([torch.cat(c, dim=1) for c in zip(*columns, strict=True)])
    out, log_sum = (torch.cat(p) for p in zip(*parts, strict=True))
    return out, log_sum - _log_count(n, settings, query)
