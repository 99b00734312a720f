"""Products of tensors as matmul, bmm, baddbmm, tensordot and einsum write them, with their axes put in order.

torch.compile traces this code: it compares identities, shapes and letters, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

__all__ = ["PRODUCTS", "Factors", "Product", "factors_of", "is_parameter", "queries_and_keys", "weighted_sum"]

_BIASED = (torch.baddbmm, Tensor.baddbmm, torch.addmm, Tensor.addmm)
_EINSUM = torch.functional.einsum
_TENSORDOT = torch.functional.tensordot
PRODUCTS = (
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.mm, Tensor.mm, *_BIASED, _EINSUM,
    _TENSORDOT,
)  # fmt: skip
_ELLIPSIS = "0123456789"  # letters for the axes behind an ellipsis
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Product(NamedTuple):
    """A product (..., n, k) x (..., k, m); ``result`` (..., n, m) is None where the model's own differs from it.

    ``steps`` are the strides of the axes in front, in the tensor that ``right`` was made from.
    """

    left: Any
    right: Any
    result: Any
    steps: Any = None


class Factors(NamedTuple):
    """The operands of a product, and the letters of their axes and of the result (None for matmul and its likes)."""

    operands: tuple[Any, ...]
    letters: tuple[str, ...] | None
    exact: bool  # False: something was added to the product


@no_type_check
def factors_of(func, args, kwargs):
    """The operands of a product; None when it is not one of at least two tensors."""
    if func is _EINSUM:
        operands = tuple(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else tuple(args[1:])
        if len(operands) < 2:
            return None
        letters = _einsum_letters(args[0], operands)
        return None if letters is None else Factors(operands, letters, True)
    if func in _BIASED:
        first = args[1] if len(args) > 1 else kwargs.get("batch1", kwargs.get("mat1"))
        second = args[2] if len(args) > 2 else kwargs.get("batch2", kwargs.get("mat2"))
        return None if first is None or second is None else Factors((first, second), None, False)
    first = args[0] if args else kwargs.get("input", kwargs.get("a"))
    second = args[1] if len(args) > 1 else None
    for name in ("other", "mat2", "tensor2", "b"):
        if second is None and name in kwargs:
            second = kwargs[name]
    if first is None or second is None:
        return None
    if func is _TENSORDOT:
        letters = _tensordot_letters(first, second, args[2] if len(args) > 2 else kwargs.get("dims", 2))
        return None if letters is None else Factors((first, second), letters, True)
    return Factors((first, second), None, True)


@no_type_check
def weighted_sum(factors, out, current, weights, axis):
    """The product, if it sums ``current`` over ``axis`` with another operand, the values; None if it does not.

    ``weights`` take the place of ``current`` in the result, as its left factor, with ``axis`` last.
    """
    operands, letters, exact = factors
    for i in range(len(operands)):
        if operands[i] is not current:
            continue
        if letters is not None:
            found = _einsum_sum(operands, letters, i, out, weights, axis)
        else:
            found = _matmul_sum(operands, i, out if exact else None, weights, axis)
        if found is not None:
            return found
    return None


@no_type_check
def queries_and_keys(factors, axis):
    """(queries, keys) of a product that makes scores, with the softmax over ``axis`` of it; None if not known."""
    operands, letters, _ = factors
    if len(operands) != 2:
        return None
    first, second = operands
    if letters is not None:
        return _einsum_queries(first, second, letters, axis)
    if axis == -1:
        return first, second.transpose(-1, -2)
    return (second.transpose(-1, -2), first) if axis == -2 else None


@no_type_check
def is_parameter(x) -> bool:
    """True for a parameter, and for a view of one such as an expanded codebook."""
    if isinstance(x, torch.nn.Parameter):
        return True
    return not torch.compiler.is_compiling() and isinstance(x._base, torch.nn.Parameter)


@no_type_check
def _matmul_sum(operands, i, out, weights, axis):
    first, second = operands
    if first.ndim != second.ndim:
        return None
    if i == 0 and axis == -1:
        return Product(weights, second, out, second.stride()[:-2])
    if i == 1 and axis == -2:  # values^T weights^T
        result = None if out is None else out.transpose(-1, -2)
        return Product(weights.transpose(-1, -2), first.transpose(-1, -2), result, first.stride()[:-2])
    return None


@no_type_check
def _einsum_letters(equation, operands):
    """("bhij", "bhjd", "bhid") of "b h i j, b h j d -> b h i d"; None without an arrow, or for a diagonal."""
    if not isinstance(equation, str) or "->" not in equation:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    terms = inputs.split(",")
    if "." in inputs:
        counts = [x.ndim - len(term) + 3 if "." in term else 0 for term, x in zip(terms, operands)]  # noqa: B905
        hidden = _ELLIPSIS[: max(counts)]
        terms = [term.replace("...", hidden[len(hidden) - n :]) for term, n in zip(terms, counts)]  # noqa: B905
        output = output.replace("...", hidden)
    for term in (*terms, output):
        if len(term) != len(set(term)):
            return None
    return (*terms, output)


@no_type_check
def _tensordot_letters(first, second, dims):
    """Letters of torch.tensordot, which sums over some axes and puts the others one after another."""
    if isinstance(dims, int):
        left, right = list(range(first.ndim - dims, first.ndim)), list(range(dims))
    elif isinstance(dims, (list, tuple)):
        left, right = dims
        left, right = ([d] if isinstance(d, int) else list(d) for d in (left, right))
    else:
        return None
    a = _LETTERS[: first.ndim]
    b = list(_LETTERS[first.ndim : first.ndim + second.ndim])
    for i, j in zip(left, right):  # noqa: B905
        b[j % second.ndim] = a[i % first.ndim]
    output = [x for x in a if x not in b] + [x for x in b if x not in a]
    return a, "".join(b), "".join(output)


@no_type_check
def _einsum_sum(operands, letters, i, out, weights, axis):
    """Rows are the last axis of the weights that the values lack; the other axes of the weights are batch and heads."""
    a, c, inner = letters[i], letters[-1], letters[i][axis]
    holders = [j for j in range(len(operands)) if j != i and inner in letters[j]]
    if inner in c or len(holders) != 1:
        return None
    b, values = letters[holders[0]], operands[holders[0]]
    rows = [x for x in a if x not in b]
    columns = [x for x in b if x not in a]
    if not rows or not columns:
        return None
    lead = [x for x in a if x not in (inner, rows[-1])]
    if lead and lead[0] not in b:
        return None  # without the batch among the axes of the values they are a codebook
    result = None
    if len(operands) == 2 and all(x in c for x in (*lead, rows[-1], *columns)):
        result = _flat_columns(_arrange(out, c, [*lead, rows[-1], *columns]), len(columns))
    arranged = _arrange(values, b, [*lead, inner, *columns])
    return Product(
        _arrange(weights, a, [*lead, rows[-1], inner]), _flat_columns(arranged, len(columns)), result,
        arranged.stride()[: len(lead)],
    )  # fmt: skip


@no_type_check
def _einsum_queries(first, second, letters, axis):
    """The softmax goes over one axis of the scores: that of the keys."""
    a, b, c = letters
    if not c or -axis > len(c):
        return None
    if c[axis] in a:
        first, second, a, b = second, first, b, a
    inner = [x for x in a if x in b and x not in c]
    rows = [x for x in c if x in a and x not in b]
    if c[axis] in a or c[axis] not in b or not inner or not rows:
        return None
    lead = [x for x in c if x not in (rows[-1], c[axis])]
    for x in a + b:
        if x not in c and x not in inner:
            return None
    queries = _flat_columns(_arrange(first, a, [*lead, rows[-1], *inner]), len(inner))
    return queries, _flat_columns(_arrange(second, b, [*lead, c[axis], *inner]), len(inner))


@no_type_check
def _arrange(x, letters, order):
    """Axes in this order; those that it does not have get length one."""
    x = x.permute([letters.index(name) for name in order if name in letters])
    for i in range(len(order)):
        if order[i] not in letters:
            x = x.unsqueeze(i)
    return x


@no_type_check
def _flat_columns(x, count):
    """The last ``count`` axes as one."""
    return x if count == 1 else x.flatten(-count)
