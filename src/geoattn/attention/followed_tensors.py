"""What is remembered of a tensor on its way from scores to weights to values.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

from torch import Tensor

from geoattn.attention.products import Product, is_parameter

__all__ = [
    "Derived", "Score", "Softmax", "WeightedSum", "are_weights", "find_derived", "is_of_batches", "is_one_of",
    "tensors_of",
]  # fmt: skip


@no_type_check
class Softmax:
    """One softmax that ran: its ``argument`` and ``result``, its ``axis`` counted from the end, and what led to it.

    ``scores`` are the factors of the product that the argument was made from, None when it was not made from one.
    ``depth`` is the number of modules that were running, ``name`` that of the innermost. ``use`` is what became of it,
    as far as it is known: see `geoattn.attention.account`.
    """

    def __init__(self, argument: Any, result: Any, axis: int, scores: Any, depth: int, name: str) -> None:
        self.argument = argument
        self.result = result
        self.axis = axis
        self.scores = scores
        self.depth = depth
        self.name = name
        self.use: str | None = None
        self.touched = False  # something else than a cast or a view was made from it
        self.broken = False  # a reshape joined its axis with others, as banded attention does


class Derived(NamedTuple):
    """A tensor that was made from the result of a softmax.

    ``weights`` is the same without dropout. ``axis`` is that of the softmax, counted from the end; None when it was
    summed away or broken up. ``dropped``: dropout was active. ``masked``: something else than a cast or a view came
    after the softmax. ``whole`` is the last one on the way that was as large as the result of the softmax, when this
    one is a part of it. ``random``: a mask of random numbers was applied, which is dropout by hand.
    """

    tensor: Any
    weights: Any
    axis: int | None
    softmax: Softmax
    dropped: bool
    masked: bool
    time: int
    whole: Any = None
    random: bool = False


class Score(NamedTuple):
    """A tensor that was made from a product of queries and keys, perhaps."""

    factors: Any
    tensor: Any
    depth: int


class WeightedSum(NamedTuple):
    """Weights times values: the end of the way of a softmax."""

    softmax: Softmax
    derived: Derived
    product: Product
    factors: Any
    of_weights: bool  # the values come from a softmax too


@no_type_check
def tensors_of(args: Any, kwargs: Any) -> list[Any]:
    """Tensors among the arguments, and in lists of them."""
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                if isinstance(inner, Tensor):
                    found.append(inner)
    return found


@no_type_check
def find_derived(derived: Any, args: Any, kwargs: Any) -> list[Derived]:
    """The tensors among the arguments that are followed, in the order of the arguments."""
    found = []
    for value in tensors_of(args, kwargs):
        for i in range(len(derived) - 1, -1, -1):
            if derived[i].tensor is value:
                found.append(derived[i])
                break
    return found


@no_type_check
def is_one_of(tensors: Any, value: Any) -> bool:
    """Whether ``value`` is one of the tensors itself, not only equal to it."""
    for tensor in tensors:
        if tensor is value:
            return True
    return False


@no_type_check
def are_weights(given: Any, current: Derived, name: str) -> bool:
    """Whether the other operand is a map of attention of the same module."""
    for one in given:
        softmax = one.softmax
        if one is not current and one.axis is not None and softmax.scores is not None and softmax.name == name:
            return True
    return False


@no_type_check
def is_of_batches(factors: Any) -> bool:
    """A product of two tensors that both depend on the input, over more than one number: scores, perhaps."""
    operands = factors.operands
    if len(operands) != 2 or any([is_parameter(operand) for operand in operands]):
        return False
    first, second = operands
    if first.ndim < 2 or second.ndim < 2:
        return False
    return factors.letters is not None or (first.ndim == second.ndim and first.shape[-1] > 1)
