"""From scores to weights to the product with the values: which softmax is attention.

A softmax over the last axis may be attention, a router or a classifier. It is attention when its result
(cast, reshaped, masked, cut or dropped out on the way) is multiplied from the left with another tensor of as
many axes: the values. A trail follows one result to there. Another kind of trail follows the product of
queries and keys to the softmax.

All of this is traced by torch.compile: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "PRODUCTS",
    "SOFTMAXES",
    "Product",
    "Trail",
    "before_dropout",
    "extend",
    "find_product",
    "follow_scores",
    "is_attention_like",
]

_LIMIT = 8  # steps of the trails that are remembered

SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.functional.einsum)
_BIASED = (torch.baddbmm, Tensor.baddbmm)
_CASTS = (
    Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double,
)  # fmt: skip
_VIEWS = (
    Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.unflatten,
    torch.unflatten, Tensor.transpose, torch.transpose, Tensor.permute, torch.permute, Tensor.squeeze,
    torch.squeeze, Tensor.unsqueeze, torch.unsqueeze, Tensor.movedim, torch.movedim, Tensor.expand,
)  # fmt: skip
_DROPOUTS = (functional.dropout, torch.dropout, torch.dropout_)


class Trail(NamedTuple):
    """One step of the way: ``current`` is the tensor to look for, ``weights`` the same without dropout.

    ``origin`` is the result of the softmax, ``depth`` the number of modules that were running then,
    ``scores`` the step of the trail of scores that led to it.
    """

    origin: Any
    weights: Any
    current: Any
    dropped: bool
    depth: int
    scores: Any


class Product(NamedTuple):
    """A product of two tensors: (..., n, k) with (..., k, m), result (..., n, m)."""

    left: Any
    right: Any
    result: Any


@no_type_check
def is_attention_like(args, kwargs, out) -> bool:
    """A softmax over the last of at least three axes."""
    axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else None)
    return out.ndim >= 3 and (axis == -1 or axis == out.ndim - 1)


@no_type_check
def find_product(func, args, kwargs, out, left=None, stand_in=None):
    """The product that ``func`` computed, axes in order, if its left factor is ``left`` (or any).

    ``stand_in`` takes the place of ``left`` in the result.
    """
    if func is torch.functional.einsum:
        operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
        if len(operands) != 2 or not isinstance(args[0], str):
            return None
        first, second = operands
        names = _letters(args[0])
        if names is None or (left is not None and first is not left and second is not left):
            return None
        if left is not None and second is left and first is not left:
            first, second, names = second, first, (names[1], names[0], names[2])
        return _einsum_product(first if stand_in is None else stand_in, second, out, names, left is None)
    if func in _BIASED:
        first = kwargs["batch1"] if "batch1" in kwargs else args[1]
        second = kwargs["batch2"] if "batch2" in kwargs else args[2]
    else:
        if len(args) < 2:
            return None
        first, second = args[0], args[1]
    if (left is not None and first is not left) or first.ndim != second.ndim:
        return None
    return Product(first if stand_in is None else stand_in, second, out)


@no_type_check
def extend(trails, func, args, kwargs, out) -> None:
    """Add the step that ``func`` makes from a tensor on a trail to ``out``, when there is one."""
    if not isinstance(out, Tensor) or out.ndim < 3 or not out.is_floating_point():
        return
    for trail in reversed(trails):
        if not _takes(args, trail.current):
            continue
        if 2 * out.numel() < trail.current.numel():
            return  # a sum or a mean, not the weights any more
        if func in _DROPOUTS:
            step = trail._replace(current=out, dropped=trail.dropped or _is_active(func, args, kwargs))
        elif func in _CASTS:
            step = trail._replace(current=out)
        elif func in _VIEWS:
            same = trail.weights is trail.current
            step = trail._replace(current=out, weights=out if same else func(trail.weights, *args[1:], **kwargs))
        elif trail.dropped:
            step = trail._replace(current=out)
        else:
            step = trail._replace(current=out, weights=out)
        trails.append(step)
        if len(trails) > _LIMIT:
            del trails[0]
        return


@no_type_check
def before_dropout(trails, func, args, kwargs) -> None:
    """Save the weights that a dropout in place is about to overwrite."""
    if func not in _DROPOUTS or not _is_active(func, args, kwargs):
        return
    if func is functional.dropout:
        inplace = kwargs["inplace"] if "inplace" in kwargs else len(args) > 3 and args[3]
    else:
        inplace = func is torch.dropout_
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
        if _takes(args, current) and out.numel() >= current.numel():
            step = (product, out)
            break
    if step is None and (func in PRODUCTS or func in _BIASED):
        product = find_product(func, args, kwargs, out)
        step = None if product is None else (product, out)
    if step is not None:
        scores.append(step)
        if len(scores) > _LIMIT:
            del scores[0]


@no_type_check
def _takes(args, tensor) -> bool:
    for value in args[:3]:
        if value is tensor:
            return True
    return False


@no_type_check
def _is_active(func, args, kwargs) -> bool:
    p = kwargs["p"] if "p" in kwargs else (args[1] if len(args) > 1 else 0.5)
    word = "training" if func is functional.dropout else "train"
    training = kwargs[word] if word in kwargs else (args[2] if len(args) > 2 else True)
    return bool(training) and p > 0


@no_type_check
def _letters(equation: str):
    """("bhij", "bhjd", "bhid") of "b h i j, b h j d -> b h i d"; None with an ellipsis or no arrow."""
    equation = equation.replace(" ", "")
    if "." in equation or "->" not in equation:
        return None
    inputs, output = equation.split("->")
    first, second = inputs.split(",")
    return first, second, output


@no_type_check
def _einsum_product(first, second, out, names, is_scores):
    """Axes as (shared, row, inner), (shared, inner, column), (shared, row, column); None if not such."""
    a, b, c = names
    inner = [x for x in a if x in b and x not in c]
    rows = [x for x in a if x in c and x not in b]
    columns = [x for x in b if x in c and x not in a]
    shared = [x for x in a if x in b and x in c]
    if len(inner) != 1 or len(rows) != 1 or len(columns) != 1 or len(shared) + 2 != len(a) or len(a) != len(b):
        return None
    if is_scores and c[-1] == rows[0]:  # the softmax goes over the last axis: those are the keys
        first, second, a, b, rows, columns = second, first, b, a, columns, rows
    if not is_scores and a[-1] != inner[0]:
        return None
    left = first.permute([a.index(x) for x in shared + rows + inner])
    right = second.permute([b.index(x) for x in shared + inner + columns])
    return Product(left, right, out.permute([c.index(x) for x in shared + rows + columns]))
