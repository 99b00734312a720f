"""Products of two tensors as matmul, bmm, baddbmm and einsum write them, with their axes put in order.

Traced by torch.compile: identities, shapes and letters, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

__all__ = ["BIASED", "PRODUCTS", "Product", "factors", "score_product", "weighted_sum"]

PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.functional.einsum)
BIASED = (torch.baddbmm, Tensor.baddbmm)
_HIDDEN = "0123456789"  # letters for the axes behind an ellipsis


class Product(NamedTuple):
    """A product of two tensors: (..., n, k) with (..., k, m), result (..., n, m)."""

    left: Any
    right: Any
    result: Any


@no_type_check
def weighted_sum(func, args, kwargs, out, current, weights, axis):
    """The product that ``func`` computed, if it sums ``current`` over ``axis``; None if not.

    ``weights`` stand in for ``current`` in the result, as its left factor, with ``axis`` last.
    """
    first, second = factors(func, args, kwargs)
    if first is None or (first is not current and second is not current):
        return None
    if func is torch.functional.einsum:
        names = _letters(args[0], first, second)
        if names is None:
            return None
        if first is current:
            return _einsum_sum(weights, second, out, names, axis)
        return _einsum_sum(weights, first, out, (names[1], names[0], names[2]), axis)
    if first.ndim != second.ndim:
        return None
    if first is current and axis == -1:
        return Product(weights, second, out)
    if second is current and axis == -2:  # values^T weights^T
        return Product(weights.transpose(-1, -2), first.transpose(-1, -2), out.transpose(-1, -2))
    return None


@no_type_check
def score_product(func, args, kwargs, out):
    """The product that ``func`` computed, as queries, keys and scores; None if it is not one of two batches."""
    first, second = factors(func, args, kwargs)
    if first is None:
        return None
    if func is torch.functional.einsum:
        names = _letters(args[0], first, second)
        return None if names is None else _einsum_scores(first, second, out, names)
    return Product(first, second, out) if first.ndim == second.ndim else None


@no_type_check
def factors(func, args, kwargs):
    """The two factors of a product, or (None, None)."""
    if func is torch.functional.einsum:
        operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
        return (operands[0], operands[1]) if len(operands) == 2 else (None, None)
    if func in BIASED:
        first = kwargs["batch1"] if "batch1" in kwargs else args[1]
        second = kwargs["batch2"] if "batch2" in kwargs else args[2]
        return first, second
    first = args[0] if args else kwargs.get("input")
    if len(args) > 1:
        return first, args[1]
    for name in ("other", "mat2", "tensor2"):
        if name in kwargs:
            return first, kwargs[name]
    return None, None


@no_type_check
def _letters(equation, first, second):
    """("bhij", "bhjd", "bhid") of "b h i j, b h j d -> b h i d"; None without an arrow, or for a diagonal."""
    if not isinstance(equation, str) or "->" not in equation:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    a, b = inputs.split(",")
    if "." in inputs:
        count_a = first.ndim - len(a) + 3 if "." in a else 0
        count_b = second.ndim - len(b) + 3 if "." in b else 0
        hidden = _HIDDEN[: max(count_a, count_b)]
        a = a.replace("...", hidden[len(hidden) - count_a :])
        b = b.replace("...", hidden[len(hidden) - count_b :])
        output = output.replace("...", hidden)
    repeated = [term for term in (a, b, output) if len(term) != len(set(term))]
    return None if repeated else (a, b, output)


@no_type_check
def _einsum_sum(weights, values, out, names, axis):
    """Rows are the last axis of the weights that the values lack: the others are heads that share values."""
    a, b, c = names
    inner = a[axis]
    rows = [x for x in a if x not in b]
    columns = [x for x in b if x not in a]
    if inner not in b or inner in c or len(columns) != 1 or not rows or len(c) != len(a) or a[0] not in b:
        return None  # without the batch among the axes of the values they are a codebook
    for x in c:
        if x not in a and x not in columns:
            return None
    lead = [x for x in a if x not in (inner, rows[-1])]
    return Product(
        _arrange(weights, a, [*lead, rows[-1], inner]),
        _arrange(values, b, [*lead, inner, columns[0]]),
        _arrange(out, c, [*lead, rows[-1], columns[0]]),
    )


@no_type_check
def _einsum_scores(first, second, out, names):
    """The softmax goes over the last axis of the scores: those are the keys."""
    a, b, c = names
    if c and c[-1] in a:
        first, second, a, b = second, first, b, a
    inner = [x for x in a if x in b and x not in c]
    rows = [x for x in c if x in a and x not in b]
    if not c or c[-1] in a or c[-1] not in b or len(inner) != 1 or not rows:
        return None
    lead = [x for x in c if x not in (rows[-1], c[-1])]
    for x in a + b:
        if x not in c and x not in inner:
            return None
    return Product(
        _arrange(first, a, [*lead, rows[-1], inner[0]]),
        _arrange(second, b, [*lead, inner[0], c[-1]]),
        _arrange(out, c, [*lead, rows[-1], c[-1]]),
    )


@no_type_check
def _arrange(x, letters, order):
    """Axes in this order; those that it does not have get length one."""
    x = x.permute([letters.index(name) for name in order if name in letters])
    for i in range(len(order)):
        if order[i] not in letters:
            x = x.unsqueeze(i)
    return x
