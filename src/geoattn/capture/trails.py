"""From scores to weights to the product with the values: which softmax is attention.

A softmax over the last axis may be attention, a router or a classifier. It is attention when its result
(cast, reshaped, masked, cut or dropped out on the way) is multiplied with another tensor of as many axes, the
values, and summed over the axis of the softmax. A trail follows one result to there. Another kind of trail
follows the product of queries and keys to the softmax.

All of this is traced by torch.compile: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn.capture.products import BIASED, PRODUCTS, score_product

__all__ = ["SOFTMAXES", "Trail", "before_dropout", "extend", "follow_scores", "is_attention_like"]

_LIMIT = 8  # steps of the trails that are remembered

SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
_CASTS = (
    Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double,
)  # fmt: skip
_SWAPS = (
    Tensor.transpose, torch.transpose, Tensor.swapaxes, torch.swapaxes, Tensor.swapdims, torch.swapdims,
)  # fmt: skip
_PERMUTES = (Tensor.permute, torch.permute)
_FLIPS = (vars(torch._C.TensorBase)["mT"].__get__, Tensor.adjoint)
_MOVES = (Tensor.movedim, torch.movedim, Tensor.moveaxis, torch.moveaxis)
_VIEWS = (
    *_SWAPS, *_PERMUTES, *_FLIPS, *_MOVES, Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten,
    Tensor.unflatten, torch.unflatten, Tensor.squeeze, torch.squeeze, Tensor.unsqueeze, torch.unsqueeze,
    Tensor.expand, Tensor.contiguous,
)  # fmt: skip
_DROPOUTS = (
    functional.dropout, torch.dropout, torch.dropout_, functional.dropout1d, functional.dropout2d,
    functional.dropout3d,
)  # fmt: skip
_MASKINGS = (
    torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.masked_fill, Tensor.masked_fill,
)  # fmt: skip


class Trail(NamedTuple):
    """One step of the way: ``current`` is the tensor to look for, ``weights`` the same without dropout.

    ``origin`` is the result of the softmax and ``argument`` what it was taken of, ``axis`` its axis in
    ``current``, counted from the end. ``masked``: something else than a cast or a view came after it.
    ``depth`` is the number of modules that were running, ``scores`` the product of queries and keys.
    """

    origin: Any
    argument: Any
    weights: Any
    current: Any
    axis: int
    masked: bool
    dropped: bool
    depth: int
    scores: Any


@no_type_check
def is_attention_like(args, kwargs, out) -> bool:
    """A softmax over the last of at least three axes."""
    axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else None)
    return out.ndim >= 3 and (axis == -1 or axis == out.ndim - 1)


@no_type_check
def extend(trails, func, args, kwargs, out) -> None:
    """Add the step that ``func`` makes from a tensor on a trail to ``out``, when there is one."""
    if not isinstance(out, Tensor) or out.ndim < 3 or not out.is_floating_point():
        return
    for trail in reversed(trails):
        if not _takes(args, kwargs, trail.current):
            continue
        axis = _axis_after(func, args, kwargs, trail, out)
        if axis is None or 2 * out.numel() < trail.current.numel():
            return  # the axis is gone, or most of the entries: a sum or a mean
        if func in _DROPOUTS:
            dropped = trail.dropped or _is_active(func, args, kwargs)
            step = trail._replace(current=out, dropped=dropped)
        elif func in _CASTS:
            step = trail._replace(current=out)
        elif func in _VIEWS:
            same = trail.weights is trail.current
            step = trail._replace(
                current=out, axis=axis, weights=out if same else func(trail.weights, *args[1:], **kwargs)
            )
        elif not trail.dropped:
            step = trail._replace(current=out, axis=axis, weights=out, masked=True)
        elif func in _MASKINGS:
            weights = func(*[trail.weights if value is trail.current else value for value in args], **kwargs)
            step = trail._replace(current=out, axis=axis, weights=weights, masked=True)
        else:
            step = trail._replace(current=out, axis=axis, masked=True)
        trails.append(step)
        if len(trails) > _LIMIT:
            del trails[0]
        return


@no_type_check
def before_dropout(trails, func, args, kwargs) -> None:
    """Save the weights that a dropout in place is about to overwrite."""
    if func not in _DROPOUTS or not _is_active(func, args, kwargs):
        return
    if func is torch.dropout_:
        inplace = True
    elif func is torch.dropout:
        inplace = False
    else:
        inplace = kwargs["inplace"] if "inplace" in kwargs else len(args) > 3 and args[3]
    if inplace:
        for i in range(len(trails)):
            if trails[i].weights is args[0]:
                trails[i] = trails[i]._replace(weights=args[0].clone())


@no_type_check
def follow_scores(scores, func, args, kwargs, out) -> None:
    """Follow products of queries and keys: ``scores`` is a list of (product, current tensor)."""
    if not isinstance(out, Tensor) or out.ndim < 3:
        return
    step = None
    for product, current in reversed(scores):
        if _takes(args, kwargs, current) and out.numel() >= current.numel():
            step = (product, out)
            break
    if step is None and (func in PRODUCTS or func in BIASED):
        product = score_product(func, args, kwargs, out)
        step = None if product is None else (product, out)
    if step is not None:
        scores.append(step)
        if len(scores) > _LIMIT:
            del scores[0]


@no_type_check
def _axis_after(func, args, kwargs, trail, out):
    """Where the axis of the softmax is in ``out``, counted from the end; None when it is gone.

    A reshape that breaks it up, as banded attention does, is taken to put it last again.
    """
    axis, before = trail.axis, trail.current
    if func in _SWAPS:
        given = [*args[1:], *kwargs.values()]
        i, j = given[0] % out.ndim - out.ndim, given[1] % out.ndim - out.ndim
        return j if axis == i else i if axis == j else axis
    if func in _PERMUTES:
        dims = kwargs["dims"] if "dims" in kwargs else args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        for k in range(out.ndim):
            if dims[k] % out.ndim - out.ndim == axis:
                return k - out.ndim
    if func in _FLIPS:
        return -3 - axis if axis >= -2 else axis
    if func in _MOVES:
        source, destination = [*args[1:], *kwargs.values()]
        if not isinstance(source, int):
            return None
        order = [k for k in range(out.ndim) if k != source % out.ndim]
        order.insert(destination % out.ndim, source % out.ndim)
        return order.index(axis % out.ndim) - out.ndim
    if func is functional.linear and axis == -1:
        return None
    if out.ndim == before.ndim and func not in _VIEWS:
        return axis
    return axis if -axis <= out.ndim and out.shape[axis:] == before.shape[axis:] else -1


@no_type_check
def _takes(args, kwargs, tensor) -> bool:
    for value in args[:3]:
        if value is tensor:
            return True
    return len(args) == 0 and kwargs.get("input") is tensor


@no_type_check
def _is_active(func, args, kwargs) -> bool:
    p = kwargs["p"] if "p" in kwargs else (args[1] if len(args) > 1 else 0.5)
    word = "train" if func is torch.dropout or func is torch.dropout_ else "training"
    training = kwargs[word] if word in kwargs else (args[2] if len(args) > 2 else True)
    return bool(training) and p > 0
