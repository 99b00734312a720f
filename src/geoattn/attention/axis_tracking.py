"""Where one axis of a tensor is after a function.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["VIEWS", "axis_after"]

_SWAPS = (
    Tensor.transpose, torch.transpose, Tensor.swapaxes, torch.swapaxes, Tensor.swapdims, torch.swapdims,
)  # fmt: skip
_PERMUTES = (Tensor.permute, torch.permute)
_FLIPS = (vars(torch._C.TensorBase)["mT"].__get__, Tensor.adjoint, vars(torch._C.TensorBase)["mH"].__get__)
_TURNS = (Tensor.t, torch.t, vars(torch._C.TensorBase)["T"].__get__)
_MOVES = (Tensor.movedim, torch.movedim, Tensor.moveaxis, torch.moveaxis)
_RESHAPES = (
    Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.unflatten, torch.unflatten,
    Tensor.squeeze, torch.squeeze, Tensor.unsqueeze, torch.unsqueeze, Tensor.expand, Tensor.expand_as,
)  # fmt: skip
_PARTS = (
    Tensor.unbind, torch.unbind, Tensor.chunk, torch.chunk, Tensor.split, torch.split, Tensor.select, torch.select,
    Tensor.narrow, torch.narrow, Tensor.__getitem__,
)  # fmt: skip
VIEWS = (*_SWAPS, *_PERMUTES, *_FLIPS, *_TURNS, *_MOVES, *_RESHAPES, *_PARTS, Tensor.contiguous, Tensor.clone)


@no_type_check
def axis_after(func: Any, args: Any, kwargs: Any, before: Any, axis: int | None, out: Any) -> int | None:
    """Where ``axis`` of ``before`` is in ``out``, both counted from the end; None when it is gone or broken up."""
    if axis is None:
        return None
    if func in _SWAPS:
        first, second = [*args[1:], *kwargs.values()]
        i, j = first % out.ndim - out.ndim, second % out.ndim - out.ndim
        return j if axis == i else i if axis == j else axis
    if func in _PERMUTES:
        dims = kwargs["dims"] if "dims" in kwargs else args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        for k in range(out.ndim):
            if dims[k] % out.ndim - out.ndim == axis:
                return k - out.ndim
    if func in _FLIPS or (func in _TURNS and out.ndim == 2):
        return -3 - axis if axis >= -2 else axis
    if func in _TURNS:
        return -1 - out.ndim - axis
    if func in _MOVES:
        source, destination = [*args[1:], *kwargs.values()]
        if not isinstance(source, int):
            return None
        order = [k for k in range(out.ndim) if k != source % out.ndim]
        order.insert(destination % out.ndim, source % out.ndim)
        return order.index(axis % out.ndim) - out.ndim
    if func in _RESHAPES:
        return _after_reshape(before, axis, out)
    if func in _PARTS:
        return _after_cut(before, axis, out)
    if func is functional.linear:
        return None if axis == -1 or out.ndim != before.ndim else axis
    if before.shape[axis] == 1 and out.ndim >= before.ndim and out.shape[axis] > 1:
        return None  # one weight for all entries of another tensor
    if out.ndim >= before.ndim and out.shape[axis] == before.shape[axis]:
        return axis  # broadcasting keeps axes in place, counted from the end
    if out.ndim == before.ndim and out.numel() * 2 >= before.numel():
        return axis  # cut, or put together with something else
    return None


@no_type_check
def _after_reshape(before: Any, axis: int, out: Any) -> int | None:
    """An axis stays an axis when as many numbers lie behind it, and it is as long, or one axis less or more."""
    behind = 1
    for size in before.shape[before.ndim + axis + 1 :]:
        behind *= size
    passed = 1
    length = before.shape[axis]
    for k in range(-1, -out.ndim - 1, -1):
        if passed == behind and out.shape[k] == length:
            return k
        if passed > behind:
            return None
        passed *= out.shape[k]
    if out.numel() > before.numel() and -axis <= out.ndim and out.shape[axis] == length:
        return axis  # expanded
    return None


@no_type_check
def _after_cut(before: Any, axis: int, out: Any) -> int | None:
    """A part of a tensor: the axis has the stride that it had."""
    if out.ndim == before.ndim:
        return axis
    stride, length = before.stride(axis), before.shape[axis]
    candidates = [k for k in range(-1, -out.ndim - 1, -1) if out.shape[k] == length]
    if len(candidates) == 1:
        return candidates[0]
    for k in candidates:
        if out.stride(k) == stride:
            return k
    return None
