"""From queries and keys to attention weights, for the chosen samples, heads and rows only."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "BLOCKED",
    "Index",
    "Mask",
    "allowed_entries",
    "attention_weights",
    "compact_mask",
    "masked_softmax",
    "shared_mask",
]

# A logit this low is a mask, not a score: models add -1,000, -10,000 (old BERT), -1e9 or the lowest of the dtype.
BLOCKED = -500.0

Index = slice | Tensor


class Mask(NamedTuple):
    """Which key a query may see: entries, a diagonal, or both.

    ``entries`` broadcasts to (batch, heads, n, m): bool (True = may see), or a float that is added to the
    logits. ``diagonal`` k lets row i see column j only when j <= i + k.
    """

    entries: Any = None
    diagonal: int | None = None


def attention_weights(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b g m d"],
    mask: Mask,
    scale: float,
    sample: Index,
    head: Index,
    rows: Index,
) -> Float[Tensor, "b2 h2 n2 m"]:
    """softmax(scale q k^T + mask) of the chosen samples, heads and rows, at the cost of those only.

    Query head i uses key head i // (h / g). Rows in which everything is masked are 0. 16-bit queries give
    float32 weights, as inside the kernels.
    """
    group, n, m = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    q, k = q[sample][:, head][:, :, rows], k[sample]
    k = k[:, head] if group == 1 else k[:, torch.arange(k.shape[1] * group, device=k.device)[head] // group]
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    with torch.autocast(q.device.type, enabled=False):
        logits = torch.matmul(q, k.transpose(-1, -2)) * scale
        if mask.diagonal is not None:
            row, column = torch.arange(n, device=q.device)[rows], torch.arange(m, device=q.device)
            logits = logits.masked_fill(column > row[:, None] + mask.diagonal, -torch.inf)
        if mask.entries is not None:
            entries = _take(mask.entries, sample, head, rows)
            return masked_softmax(logits, entries)
        return logits.softmax(-1) if mask.diagonal is None else masked_softmax(logits, None)


def masked_softmax(logits: Tensor, entries: Tensor | None) -> Tensor:
    """Softmax over the last axis; ``entries`` are True where a query may look, or added. Empty rows are 0."""
    if entries is not None:
        if entries.dtype == torch.bool:
            logits = logits.masked_fill(~entries, -torch.inf)
        else:
            logits = logits + entries.to(logits.dtype)
    empty = (logits == -torch.inf).all(-1, keepdim=True)
    return logits.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


def allowed_entries(mask: Mask, n: int, m: int) -> Bool[Tensor, "b h n m"] | None:
    """Where the mask lets queries see keys; axes it does not depend on have length one. None: everywhere."""
    allowed = None
    if mask.entries is not None:
        allowed = mask.entries if mask.entries.dtype == torch.bool else mask.entries.detach() > BLOCKED
    if mask.diagonal is not None:
        device = None if allowed is None else allowed.device
        triangle = torch.ones(n, m, dtype=torch.bool, device=device).tril(mask.diagonal)[None, None]
        allowed = triangle if allowed is None else allowed & triangle
    return allowed


def compact_mask(mask: Mask) -> Mask:
    """The same mask in O(batch m) memory when it hides columns, or columns and the future; else as it is.

    A mask of all pairs of a sequence costs as much as the maps of a quarter of a head; padding and causality
    need n bits.
    """
    entries = mask.entries
    if entries is None or mask.diagonal is not None or entries.shape[-2] == 1:
        return mask
    n, m = entries.shape[-2:]
    if entries.dtype != torch.bool:
        if entries.requires_grad or not bool(((entries == 0) | (entries < BLOCKED)).all()):
            return mask
        if _has_uniform_rows(entries):
            return mask
        entries = entries == 0
    # The last query sees all that is not padding, unless it is padding itself.
    columns = entries[..., -1:, :]
    columns = torch.where(columns.any(-1, keepdim=True), columns, entries.any(-2, keepdim=True))
    if bool((entries == columns).all()):
        return Mask(columns.clone())
    triangle = torch.ones(n, m, dtype=torch.bool, device=entries.device).tril(m - n)
    if bool((entries == (columns & triangle)).all()):
        return Mask(columns.clone(), m - n)
    return Mask(entries)


def shared_mask(mask: Mask, small: dict[Any, Mask]) -> Mask:
    """The mask made small, once for all layers that use it."""
    entries = mask.entries
    if entries is None:
        return mask
    key = (entries.data_ptr(), entries.shape, entries.stride(), entries.dtype, mask.diagonal)
    if key not in small:
        small[key] = compact_mask(mask)
    return small[key]


def _has_uniform_rows(entries: Tensor) -> bool:
    """True when a query that others see is hidden from all keys, by finite numbers: its row is no empty one."""
    n, m = entries.shape[-2:]
    hidden = (entries < BLOCKED).all(-1) & entries.isfinite().any(-1)
    if n == m:
        hidden = hidden & ~(entries < BLOCKED).all(-2)  # padding does not matter: its rows are never shown
    return bool(hidden.any())


def _take(entries: Tensor, sample: Index, head: Index, rows: Index) -> Tensor:
    """The chosen part of a mask; axes of length one broadcast and are kept."""
    entries = entries[sample] if entries.shape[0] > 1 else entries
    entries = entries[:, head] if entries.shape[1] > 1 else entries
    return entries[:, :, rows] if entries.shape[2] > 1 else entries
