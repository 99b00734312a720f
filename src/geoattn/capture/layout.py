"""Axes: whatever an attention call was given becomes (batch, heads, rows, columns)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from geoattn.errors import GeoattnError

__all__ = ["Selector", "lead_axes", "pick", "spread_mask", "to_four"]

Selector = int | slice | Sequence[int] | Tensor | None


def lead_axes(lead: tuple[int, ...], heads: int | None, batch: int | None) -> tuple[int, int]:
    """(batch, heads) for the axes in front of (n, d) or (n, m).

    Two axes are (batch, heads). One axis is batch * heads when the module names its heads and the token
    inputs do not contradict it, else the batch of a single head. With three or more, the last axes that make
    up the known number of heads are heads (the last one when it is not known), and all before them are batch:
    windows are samples.

    Examples
    --------
    >>> lead_axes((8, 12), None, None), lead_axes((96,), 12, 8), lead_axes((8, 4, 3), 12, 8)
    ((8, 12), (8, 12), (8, 12))
    >>> lead_axes((8,), 12, 8)  # a single head, whatever the module says
    (8, 1)
    """
    if len(lead) == 2:
        return lead[0], lead[1]
    if len(lead) == 0:
        return 1, 1
    total = 1
    for size in lead:
        total *= size
    if len(lead) == 1:
        if heads is None or total % heads or total == batch:
            return total, 1
        return total // heads, heads
    count = 1
    for size in reversed(lead[1:]):
        count *= size
        if count == heads:
            return total // count, count
    return total // lead[-1], lead[-1]


def to_four(x: Tensor, batch: int, heads: int) -> Tensor:
    """(..., r, c) as (batch, heads, r, c), with fewer heads where groups of queries share keys."""
    r, c = x.shape[-2:]
    if x.ndim == 4 and x.shape[0] == batch:
        return x
    if x.ndim == 4 and x.shape[0] == 1:
        return x.expand(batch, -1, -1, -1)
    lead = x.shape[:-2].numel()
    if lead % batch:
        raise GeoattnError(f"cannot read shape {tuple(x.shape)} as a batch of {batch} with {heads} heads.")
    return x.reshape(batch, lead // batch, r, c)


def spread_mask(mask: Tensor, lead: tuple[int, ...], batch: int, heads: int) -> Tensor:
    """A mask that broadcasts to (*lead, n, m), as one that broadcasts to (batch, heads, n, m)."""
    while mask.ndim < 2:
        mask = mask.unsqueeze(0)
    own = mask.shape[:-2]
    if own.numel() == 1:
        return mask.reshape(1, 1, *mask.shape[-2:])
    if len(lead) == 2:
        return mask.reshape(*((1,) * (2 - len(own))), *mask.shape)
    return mask.expand(*lead, *mask.shape[-2:]).reshape(batch, heads, *mask.shape[-2:])


def pick(selector: Selector, length: int, what: str) -> slice | Int[Tensor, " k"]:
    """A selector as a slice or as indices that keep the axis: one number selects an axis of length one."""
    if selector is None:
        return slice(None)
    if isinstance(selector, slice):
        if len(range(length)[selector]) == 0:
            raise GeoattnError(f"{what}={selector} selects nothing of {length}.")
        return selector
    if isinstance(selector, Tensor) and selector.dtype == torch.bool:
        selector = selector.nonzero().flatten()
    index = torch.as_tensor(selector)
    if index.dtype == torch.bool or index.is_floating_point() or index.ndim > 1 or index.numel() == 0:
        raise GeoattnError(f"{what} must be a number, a slice or a list of numbers; got {selector!r}.")
    index = index.reshape(-1).long()
    wrong = (index < -length) | (index >= length)
    if bool(wrong.any()):
        raise GeoattnError(f"{what}={int(index[wrong][0])} is out of range: there are {length}, counted from 0.")
    return index % length if index.numel() > 1 else slice(int(index) % length, int(index) % length + 1)
