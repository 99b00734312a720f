"""Axes: whatever an attention call was given becomes (batch, heads, rows, columns)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import torch
from jaxtyping import Int
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = [
    "MERGES", "Lead", "Merge", "Selector", "broadcast_lead", "lead_axes", "note_merge", "pick", "split_merge",
    "spread_mask", "to_four",
]  # fmt: skip

Selector = int | slice | Sequence[int] | Tensor | None


class Lead(NamedTuple):
    """How to read the axes in front of (n, d) or (n, m): ``batch`` samples of ``heads`` heads.

    ``head_first``: the heads are the outer axis, or the outer part of it. ``axis``: they are this one of many axes.
    """

    batch: int
    heads: int
    head_first: bool = False
    axis: int | None = None


def lead_axes(
    lead: tuple[int, ...],
    heads: int | None,
    batch: int | None,
    merge: tuple[int, bool] | None = None,
    steps: tuple[int, ...] | None = None,
) -> Lead:
    """Batch and heads of the axes in front of (n, d) or (n, m).

    Known numbers decide first. Where they do not, the layout in memory does: heads are parts of the width of a token,
    so their axis has the smallest of the ``steps`` (strides of queries or values), while samples and windows lie apart.

    Two axes are (batch, heads), unless numbers or steps say the reverse. One axis is batch * heads: as ``merge``
    (heads, whether they are outer) says, else by the number of heads that the module names or by the batch of its
    tokens; the batch of a single head when they say so, or nothing is known. With three or more, the last axes that
    make up the known number of heads are heads, else the one axis that has it, else the first one if its step is the
    smallest, else the last one, and all others are batch: windows are samples.

    Examples
    --------
    >>> [tuple(lead_axes(*given)) for given in (((8, 12), None, None), ((96,), 12, 8), ((96,), None, 8))]
    [(8, 12, False, None), (8, 12, False, None), (8, 12, False, None)]
    >>> tuple(lead_axes((8, 4, 3), 12, 8)), tuple(lead_axes((12, 8), 12, 8)), tuple(lead_axes((96,), 12, 8, (12, True)))
    ((8, 12, False, None), (8, 12, True, None), (8, 12, True, None))
    >>> tuple(lead_axes((8, 12, 3), 12, 8))  # batch, heads, windows
    (24, 12, False, 1)
    >>> tuple(lead_axes((4, 7, 2), None, 2, steps=(16, 128, 64)))  # heads, columns, batch
    (14, 4, False, 0)
    >>> tuple(lead_axes((8,), 12, 8))  # a single head, whatever the module says
    (8, 1, False, None)
    """
    nearest = _smallest_step(lead, steps)
    if len(lead) == 2:
        turned = lead[0] == heads != lead[1] and batch in (None, lead[1])
        told = heads is not None and lead[0] != lead[1] and heads in lead
        if turned or (not told and nearest == 0):
            return Lead(lead[1], lead[0], True)
        return Lead(lead[0], lead[1])
    total = math.prod(lead)
    if len(lead) < 2:
        if merge is not None and total % merge[0] == 0:
            return Lead(total // merge[0], *merge)
        if total == batch or total == 1:
            return Lead(total, 1)
        if heads is not None and total % heads == 0:
            return Lead(total // heads, heads)
        if heads is None and batch is not None and total % batch == 0:
            return Lead(batch, total // batch)
        return Lead(total, 1)
    last = len(lead) - 1
    if nearest not in (None, last) and (heads == lead[nearest] or (heads is None and nearest == 0)):
        return Lead(total // lead[nearest], lead[nearest], axis=nearest)
    count = 1
    for size in reversed(lead[1:]):
        count *= size
        if count == heads:
            return Lead(total // count, count)
    if heads in lead:
        return Lead(total // heads, heads, axis=lead.index(heads, 1 if heads in lead[1:] else 0))
    return Lead(total // lead[-1], lead[-1])


def _smallest_step(lead: tuple[int, ...], steps: tuple[int, ...] | None) -> int | None:
    """The axis with the smallest step in memory; None when two are the same, or an axis has none (it is shared)."""
    if steps is None or len(steps) != len(lead):
        return None
    known = {step: i for i, (size, step) in enumerate(zip(lead, steps, strict=True)) if size > 1 and step > 0}
    return known[min(known)] if len(known) == sum(size > 1 for size in lead) > 1 else None


def to_four(x: Tensor, lead: Lead) -> Tensor:
    """(..., r, c) as (batch, heads, r, c), with fewer heads where groups of queries share keys."""
    r, c = x.shape[-2:]
    if x.ndim == 4 and not lead.head_first:
        if x.shape[0] == lead.batch:
            return x
        if x.shape[0] == 1:
            return x.expand(lead.batch, -1, -1, -1)
    count = x.shape[:-2].numel()
    if count % lead.batch:
        raise GeoattnError(f"cannot read shape {tuple(x.shape)} as a batch of {lead.batch} with {lead.heads} heads.")
    if lead.axis is not None:
        x = x.movedim(lead.axis, -3)
    if lead.head_first:
        return x.reshape(count // lead.batch, lead.batch, r, c).transpose(0, 1)
    return x.reshape(lead.batch, count // lead.batch, r, c)


def spread_mask(mask: Tensor, axes: tuple[int, ...], lead: Lead) -> Tensor:
    """A mask that broadcasts to (*axes, n, m), as one that broadcasts to (batch, heads, n, m)."""
    while mask.ndim < 2:
        mask = mask.unsqueeze(0)
    own = mask.shape[:-2]
    if own.numel() == 1:
        return mask.reshape(1, 1, *mask.shape[-2:])
    if len(axes) == 2:
        mask = mask.reshape(*((1,) * (2 - len(own))), *mask.shape)
        return mask.transpose(0, 1) if lead.head_first else mask
    return to_four(mask.expand(*axes, *mask.shape[-2:]), lead)


def broadcast_lead(query: Tensor, key: Tensor, grouped: bool) -> tuple[Tensor, Tensor]:
    """Queries and keys with as many axes each, and queries with all samples and heads of both."""
    ndim = max(query.ndim, key.ndim)
    query, key = (x if x.ndim == ndim else x[(None,) * (ndim - x.ndim)] for x in (query, key))
    if query.shape[:-2] == key.shape[:-2] or (grouped and query.shape[:-3] == key.shape[:-3]):
        return query, key
    if grouped:  # the axis of heads is not shared
        axes = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        return query.expand(*axes, *query.shape[-3:]), key.expand(*axes, *key.shape[-3:])
    axes = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    key = key if len(axes) == 2 and key.shape[0] == axes[0] else key.expand(*axes, *key.shape[-2:])
    return query.expand(*axes, *query.shape[-2:]), key


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


MERGES = (
    torch.cat, torch.concat, Tensor.reshape, torch.reshape, Tensor.view, Tensor.flatten, torch.flatten,
)  # fmt: skip
_LIMIT = 8


class Merge(NamedTuple):
    """Two axes that were put into one: ``result`` (outer * inner, ...).

    Most code puts the batch first. Set Transformer and others join the heads one after another, so that the first
    entries of the axis are the samples of the first head. The shape of the joined axis does not tell; the step that
    made it does. ``apart``: the layout in memory says that the inner axis is the batch.
    """

    result: Any
    outer: int
    inner: int
    apart: bool
    depth: int


@no_type_check
def note_merge(merges: list[Merge], args: Any, kwargs: Any, out: Any, depth: int) -> None:
    """Remember the result of a reshape, view or flatten of two axes into the first, or of a cat along it."""
    if len(args) == 0:
        return
    given = args[0]
    if isinstance(given, Tensor):
        if given.ndim != 4 or given.shape[2:] != out.shape[1:]:
            return
        # A batch lies apart in memory: an outer axis with the smaller step is none.
        merge = Merge(out, given.shape[0], given.shape[1], given.stride(0) < given.stride(1), depth)
    else:
        axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else 0)
        if axis not in (0, -3) or len(given) < 2 or given[0].shape[0] * len(given) != out.shape[0]:
            return
        merge = Merge(out, len(given), given[0].shape[0], True, depth)
    merges.append(merge)
    if len(merges) > _LIMIT:
        del merges[0]


@no_type_check
def split_merge(merges: list[Merge], tensors: Any, heads: Any, batch: Any) -> Any:
    """(heads, whether they are the outer part of the first axis) of the first tensor whose making was seen.

    Known numbers of heads and samples decide when they differ, else the layout in memory. None: not seen.
    """
    for tensor in tensors:
        for merge in merges:
            if tensor is merge.result:
                outer, inner = merge.outer, merge.inner
                known = heads != batch and (outer, inner) in ((heads, batch), (batch, heads))
                first = (outer, inner) == (heads, batch) if known else merge.apart
                return (outer if first else inner), first
    return None
