"""Batch and heads in one axis: which of them comes first.

Most code puts the batch first. Set Transformer and others join the heads one after another, so that the first
entries of the axis are the samples of the first head. The shape of the joined axis does not tell; the step that
made it does.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

__all__ = ["MERGES", "Merge", "note_merge", "split_merge"]

MERGES = (
    torch.cat, torch.concat, Tensor.reshape, torch.reshape, Tensor.view, Tensor.flatten, torch.flatten,
)  # fmt: skip
_LIMIT = 8


class Merge(NamedTuple):
    """``result`` (outer * inner, ...); ``apart``: memory says that the inner axis is the batch."""

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
