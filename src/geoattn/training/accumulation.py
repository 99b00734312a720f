"""The weight of a penalty in one micro-batch when the Trainer accumulates gradients over several.

A causal model divides the sum of its losses by the number of items of all micro-batches of a step
(``num_items_in_batch``), and the Trainer then divides no more. A penalty is a mean already, so each micro-batch adds
its penalty divided by the number of micro-batches. A model that is given the number of items and does not use it
returns a plain mean: there the Trainer treats task and penalty alike, and the weight is 1.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError

__all__ = ["AccumulationWeight", "micro_batches", "refuse_compiled"]


def micro_batches(batches: int | None, accumulation: int, step: int) -> int:
    """The number of micro-batches of optimiser step ``step``, counted from 0 over all epochs.

    The last step of an epoch takes what is left of the ``batches`` of an epoch (None: not known).

    >>> [micro_batches(10, 4, step) for step in range(4)]
    [4, 4, 2, 4]
    """
    if batches is None or batches <= 0:
        return accumulation
    per_epoch = -(-batches // accumulation)
    return min(accumulation, batches - (step % per_epoch) * accumulation)


class AccumulationWeight:
    """Sets ``handle.weight`` at each forward pass of ``model``: 1, or one over the number of micro-batches.

    It hands the model a number of items that notes whether it takes part in a computation. Make it before the handles
    are attached: its hooks then run first.
    """

    def __init__(self, model: nn.Module) -> None:
        self.handles: list[Any] = []
        self.micro_batches = 1
        self._count: _ItemCount | None = None
        self._hooks = [
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after),
        ]

    @no_type_check
    def _before(self, _model, args, kwargs):
        items = kwargs.get("num_items_in_batch")
        self._count = None
        if items is not None and self.micro_batches > 1 and not torch.compiler.is_compiling():
            self._count = torch.as_tensor(items).as_subclass(_ItemCount)
            kwargs = {**kwargs, "num_items_in_batch": self._count}
        return args, kwargs

    @no_type_check
    def _after(self, _model, _args, _output):
        used = self._count is not None and self._count.used
        for handle in self.handles:
            handle.weight = 1 / self.micro_batches if used else 1.0
        self._count = None

    def remove(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def refuse_compiled(model: Any, compiles: bool, accumulation: int) -> None:
    """Raise: inside a compiled graph the use of the number of items cannot be noticed."""
    if accumulation > 1 and (compiles or isinstance(model, torch._dynamo.OptimizedModule)):
        raise GeoattnError(
            "the weight of a penalty under gradient accumulation is not known for a compiled model; set"
            " gradient_accumulation_steps=1, or torch_compile=False."
        )


#: Functions that inspect a tensor without using its value, as a capture does with all arguments of a module.
_LOOKS = ("__get__", "is_floating_point", "is_complex", "is_inference", "dim", "size", "numel", "stride", "data_ptr")


class _ItemCount(Tensor):
    """A number of items that notes whether it was used; results are plain tensors."""

    used = False

    @classmethod
    @no_type_check
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        for value in args:
            if isinstance(value, _ItemCount) and getattr(func, "__name__", "") not in _LOOKS:
                value.used = True
        plain = [value.as_subclass(Tensor) if isinstance(value, _ItemCount) else value for value in args]
        return func(*plain, **(kwargs or {}))
