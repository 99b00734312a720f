"""Functions of torch by what they do to scores and weights: softmaxes, dropouts, casts, selections and others.

torch.compile traces this code: it compares identities and shapes, never values.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "CASTS", "CUTS", "DROPOUTS", "EXPONENTIALS", "IN_PLACE", "LINEAR", "LOG_SOFTMAXES", "RANDOM", "SELECTIONS",
    "SHAPED", "SOFTMAXES", "STORES", "is_active_dropout", "is_dropout_in_place", "softmax_axis",
]  # fmt: skip

LOG_SOFTMAXES = (functional.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax)
SOFTMAXES = (
    functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, functional.gumbel_softmax,
)  # fmt: skip
EXPONENTIALS = (torch.exp, Tensor.exp)
CASTS = (
    Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double,
)  # fmt: skip
DROPOUTS = (
    functional.dropout, torch.dropout, torch.dropout_, functional.dropout1d, functional.dropout2d,
    functional.dropout3d, functional.alpha_dropout, functional.feature_alpha_dropout,
)  # fmt: skip
#: A mask of random numbers is dropout that is written by hand.
RANDOM = (
    torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_, torch.rand, torch.rand_like, Tensor.uniform_,
)  # fmt: skip
#: They take the shape of their argument and none of its numbers.
SHAPED = (
    torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like, torch.randn_like,
    Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full,
)  # fmt: skip
#: They write into their first argument and return nothing.
STORES = (Tensor.__setitem__,)
IN_PLACE = tuple(
    getattr(Tensor, name) for name in dir(Tensor)
    if (name.endswith("_") and not name.startswith("_")) or (name.startswith("__i") and name[3:-2] in (
        "add", "sub", "mul", "div", "truediv", "floordiv", "pow"))
)  # fmt: skip
SELECTIONS = (
    torch.topk, Tensor.topk, torch.argmax, Tensor.argmax, torch.multinomial, Tensor.multinomial, torch.sort,
    Tensor.sort, torch.argsort, Tensor.argsort, torch.max, Tensor.max,
)  # fmt: skip
LINEAR = (functional.linear, functional.conv1d, functional.conv2d, torch.conv1d, torch.conv2d)
#: Overlapping parts of a tensor: banded attention cuts its rows with them.
CUTS = (torch.as_strided, Tensor.as_strided, Tensor.unfold, functional.unfold)


@no_type_check
def softmax_axis(func: Any, args: Any, kwargs: Any, out: Any) -> int | None:
    """The axis of a softmax, counted from the end; None for one over a single number."""
    if func is functional.gumbel_softmax:
        axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
    else:
        axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else None)
    if out.ndim == 0 or not out.is_floating_point():
        return None
    if axis is None:
        axis = 0 if out.ndim in (1, 3) else 1  # what torch takes when it is not told
    return axis if axis < 0 else axis - out.ndim


@no_type_check
def is_active_dropout(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a dropout changes anything."""
    p = kwargs["p"] if "p" in kwargs else (args[1] if len(args) > 1 else 0.5)
    word = "train" if func is torch.dropout or func is torch.dropout_ else "training"
    training = kwargs[word] if word in kwargs else (args[2] if len(args) > 2 else True)
    return bool(training) and p > 0


@no_type_check
def is_dropout_in_place(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a dropout overwrites its argument."""
    if func is torch.dropout_:
        return True
    if func is torch.dropout:
        return False
    return bool(kwargs["inplace"]) if "inplace" in kwargs else len(args) > 3 and bool(args[3])
