"""The contract of a regulariser: attach it to a model, and each forward pass has a penalty."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._C._autograd import _get_current_graph_task_keep_graph

from geoattn.capture.compiling import plain_python
from geoattn.capture.record import Record
from geoattn.capture.selection import Layers
from geoattn.capture.session import Capture
from geoattn.errors import GeoattnError
from geoattn.training.processes import Processes, sharing

__all__ = ["Handle", "Penalty", "Regulariser", "Sink", "read_number"]

#: Where figures of a step go: called with the step and a flat dictionary of numbers.
Sink = Callable[[int, dict[str, float]], object]


@dataclass(frozen=True, eq=False)
class Penalty:
    """A penalty and the figures behind it: tensors or numbers by name, per layer as ``name/layer``."""

    value: Float[Tensor, ""]
    figures: Mapping[str, Any] = field(default_factory=dict)


class Regulariser(ABC):
    """What is added to the loss, as a function of the attention of a forward pass.

    A subclass says how a record becomes a penalty; `attach` does the rest, for any model that `capture` can read:
    Hugging Face with sdpa or eager attention, nn.MultiheadAttention, L-ViT, hand-written attention, compiled or not.
    """

    #: What is to be made of a call in haste (see `Glimpse`) as soon as it has run, of queries, keys and scale.
    early: Callable[[Any, Any, float], Any] | None = None

    @abstractmethod
    def penalise(self, record: Record, step: int) -> Penalty:
        """The penalty of the forward pass in ``record``, with gradients; ``step`` counts forward passes from 0."""

    def attach(
        self,
        model: nn.Module,
        *,
        layers: Layers = None,
        log: Sink | None = None,
        processes: Processes | None = None,
    ) -> Handle:
        """Watch ``model`` from now on; the handle gives the penalty and takes everything away again.

        A model that returns an object with a ``.loss`` (Hugging Face, when it is given labels) has the penalty added
        to it whenever gradients are on. In a loop with a loss of its own write
        ``loss = criterion(model(x), y) + handle.penalty()``. Never both: `Handle.penalty` refuses after the first.

        ``layers`` chooses attention modules, as in `capture`. ``log`` is called with (step, figures) for each penalty.

        Under DDP each process sees a part of the batch. Attach to the model inside, with ``processes=Processes()``:
        averages then go over the samples of all processes, as in one process with the whole batch. All of them must
        ask for the penalty.
        """
        return Handle(self, model, layers, log, processes)


class Handle:
    """A regulariser at work on a model."""

    def __init__(
        self,
        regulariser: Regulariser,
        model: nn.Module,
        layers: Layers,
        log: Sink | None,
        processes: Processes | None = None,
    ) -> None:
        self.processes = processes
        self.regulariser = regulariser
        self.model = model
        self.step = -1
        self._log = log
        self._penalty: Penalty | None = None
        self._added = self._spent = False
        # Our hook before those of the capture clears the last step; the one after them finds the mode switched off.
        before = model.register_forward_pre_hook(self._before)
        self._capture = Capture(model, layers, early=regulariser.early)
        self._record = self._capture.__enter__()
        after = model.register_forward_hook(self._after)
        self._hooks = [before, after]

    @no_type_check
    @plain_python
    def _before(self, _model, _args):
        self.restart()
        self.step += 1

    @no_type_check
    @plain_python
    def _after(self, _model, _args, output):
        if torch.is_grad_enabled() and _has_loss(output):
            output = _with_loss(output, output.loss + self._compute().value.to(output.loss.dtype))
            self._added = True
        return output

    def penalty(self) -> Float[Tensor, ""]:
        """The penalty of the last forward pass, to be added to a loss of your own. The same tensor if asked twice.

        Once a backward pass went through it that does not retain the graph, its value is left, to be looked at.
        """
        if not self._hooks:
            raise GeoattnError("this regulariser was removed from its model; attach it again.")
        if self.step < 0:
            raise GeoattnError("no forward pass since the regulariser was attached; run the model first.")
        if self._added:
            raise GeoattnError(
                "the model returns a loss, and the penalty is in it already; use that loss as it is, or call the"
                " model without labels and add handle.penalty() to a loss of your own."
            )
        value = self._compute().value
        return _Spent.apply(value.detach().requires_grad_()) if self._spent else value

    def restart(self) -> None:
        """Forget the last forward pass: for loops that run parts of the model and never the model itself."""
        self._record.clear()
        self._penalty, self._added, self._spent = None, False, False

    def figures(self) -> dict[str, float]:
        """Penalty and statistics of the last forward pass, per layer, as plain numbers."""
        penalty = self._compute()
        values = {"penalty": penalty.value, **penalty.figures}
        return {name: float(v.detach() if isinstance(v, Tensor) else v) for name, v in values.items()}

    def remove(self) -> None:
        """Leave the model as it was before. A second call does nothing."""
        for hook in self._hooks:
            hook.remove()
        if self._hooks:
            self._capture.__exit__(None, None, None)
            self._record.clear()
        self._hooks, self._penalty = [], None

    def __enter__(self) -> Handle:
        """The handle itself: ``with regulariser.attach(model) as handle``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    def _compute(self) -> Penalty:
        if self._penalty is None:
            with sharing(self.processes):
                self._penalty = self.regulariser.penalise(self._record, max(self.step, 0))
            self._record.clear()  # queries and keys then go during the backward pass, as they would without us
            if self._penalty.value.requires_grad and not torch.compiler.is_compiling():
                self._penalty.value.register_hook(partial(_let_go, weakref.ref(self), weakref.ref(self._penalty)))
            if self._log is not None:
                self._log(self.step, self.figures())
        return self._penalty


def _let_go(handle: weakref.ref[Handle], penalty: weakref.ref[Penalty], _gradient: Tensor) -> None:
    """The backward pass is here: keep the numbers alone. The graph then goes with the loss, as it would without us."""
    at_work, spent = handle(), penalty()
    if at_work is None or spent is None or at_work._penalty is not spent or _get_current_graph_task_keep_graph():
        return
    figures = {name: v.detach() if isinstance(v, Tensor) else v for name, v in spent.figures.items()}
    at_work._penalty, at_work._spent = Penalty(spent.value.detach(), figures), True


class _Spent(torch.autograd.Function):
    """The value of a penalty whose graph is gone. To leave its gradient out without a word would be wrong."""

    @staticmethod
    def forward(ctx: Any, value: Any):
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        raise GeoattnError(
            "a backward pass has gone through the penalty of this forward pass already; run the model again, or use"
            " retain_graph=True in the first backward pass."
        )


@no_type_check
def _has_loss(output) -> bool:
    return isinstance(getattr(output, "loss", None), Tensor)


def _with_loss(output: Any, loss: Tensor) -> Any:
    """The output with another loss; the object itself where it can be changed."""
    try:
        output.loss = loss
        return output
    except AttributeError:  # a named tuple, or a frozen dataclass
        if hasattr(output, "_replace"):
            return output._replace(loss=loss)
        from dataclasses import is_dataclass, replace

        if is_dataclass(output) and not isinstance(output, type):
            return replace(output, loss=loss)
        raise GeoattnError(
            f"cannot add the penalty to .loss of {type(output).__name__}; compute the loss outside of the model and"
            " add handle.penalty()."
        ) from None


def read_number(what: str, value: Any, *, least: float | int = -math.inf, strict: bool = False) -> float:
    """A finite number, of at least (``strict``: above) ``least``; else an error that says what came.

    >>> read_number("gamma", 0.1, least=0, strict=True)
    0.1
    """
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < least or (strict and value == least):
        bound = "" if least == -math.inf else f" {'above' if strict else 'of at least'} {least:g}"
        raise GeoattnError(f"{what} must be a finite number{bound}; got {value!r}.")
    return float(value)
