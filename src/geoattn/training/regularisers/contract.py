"""The contract of a regulariser: a function of the attention of a forward pass that is added to the loss."""

from __future__ import annotations

import warnings
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._C._autograd import _get_current_graph_task_keep_graph
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.attention.record import Record
from geoattn.attention.selection import Layers
from geoattn.attention.torch_compile import plain_python
from geoattn.training.attachments import Attachment, CapturingHandle, Sink
from geoattn.training.distributed import Processes, sharing
from geoattn.training.strength import Calibration, Strength

__all__ = ["Penalty", "Regulariser", "RegulariserHandle", "layer_name"]

#: The task's loss behind a model's loss that has penalties in it: each strength is a ratio to the task alone.
_tasks: Any = WeakIdKeyDictionary()
PATIENCE = 20  # backward passes without a penalty, as attacks on inputs have, before a warning


@dataclass(frozen=True, eq=False)
class Penalty:
    """A penalty and the figures behind it: tensors or numbers by name, per layer as ``name/layer``.

    Examples
    --------
    >>> import torch
    >>> from geoattn.training import Penalty
    >>> Penalty(torch.tensor(0.5), {"variance": 0.1}).figures
    {'variance': 0.1}
    """

    value: Float[Tensor, ""]
    figures: Mapping[str, Any] = field(default_factory=dict)


class Regulariser(Attachment):
    """What is added to the loss, as a function of the attention of a forward pass.

    A subclass says how a record becomes a penalty. `attach` works for any model that `geoattn.capture` can read.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import Penalty, Regulariser
    >>> class Sharpness(Regulariser):
    ...     def penalise(self, record, step):
    ...         return Penalty(torch.stack([call.attention().square().mean() for call in record]).mean())
    >>> model = geoattn.models.LViT()
    >>> with Sharpness().attach(model) as handle:
    ...     _ = model(torch.rand(2, 1, 28, 28))
    ...     handle.penalty().backward()
    """

    #: Set by ``strength=``: the handle finds the gamma that gives it.
    strength: Strength | None = None
    #: Whether `penalise` needs the tokens and values of a call (``capture(model, inputs=True)``).
    reads_inputs = False

    @abstractmethod
    def penalise(self, record: Record, step: int) -> Penalty:
        """The penalty of the forward pass in ``record``, with gradients; ``step`` counts such passes from 0."""

    def state(self) -> dict[str, Any]:
        """What was found on the first steps and is then kept, as plain values for a checkpoint."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with what `state` gave."""
        del state

    def attach(
        self,
        model: nn.Module,
        *,
        layers: Layers = None,
        log: Sink | None = None,
        processes: Processes | None = None,
    ) -> RegulariserHandle:
        """Compute the penalty of each forward pass of ``model`` from now on.

        A model that returns an object with a ``.loss`` (Hugging Face, when it is given labels) has the penalty added
        to it in training mode, when gradients are on. In a loop with a loss of its own write
        ``loss = criterion(model(x), y) + handle.penalty()``. Never do both: `RegulariserHandle.penalty` refuses after
        the first. In evaluation mode (``model.eval()``) the penalty is 0.

        Under DDP each process sees a part of the batch. Attach to the model inside, with ``processes=Processes()``:
        averages then go over the samples of all processes, as in one process with the whole batch. All processes must
        ask for the penalty.
        """
        return RegulariserHandle(self, model, layers, log, processes)


class RegulariserHandle(CapturingHandle):
    """A regulariser at work on a model."""

    def __init__(
        self,
        regulariser: Regulariser,
        model: nn.Module,
        layers: Layers,
        log: Sink | None,
        processes: Processes | None = None,
    ) -> None:
        self.regulariser = regulariser
        self.calibration = None if regulariser.strength is None else Calibration(regulariser.strength)
        self._penalty: Penalty | None = None
        self._added = self._spent = self._warned = False
        self._without = 0  # steps that trained without the penalty, before the first one with it
        self._used = False  # whether a penalty was given out
        super().__init__(model, layers, log, processes, inputs=regulariser.reads_inputs)

    def _begin(self, module: nn.Module) -> None:
        if self._backward:
            self._without += 1
            self._warn_of_no_penalty(PATIENCE)
        super()._begin(module)

    @no_type_check
    @plain_python
    def _after(self, _model, _args, output):
        output = super()._after(_model, _args, output)
        if not torch.is_grad_enabled():
            return output
        if not _has_loss(output):
            self._notice_backward(output)
        elif self.model.training:
            task = _tasks.get(output.loss, output.loss)
            value = self.weight * self._compute(task).value
            total = output.loss + value.to(output.loss.dtype)
            _tasks[total] = task
            output = _with_loss(output, total)
            self._added = self._used = True
        else:
            self._warn_of_evaluation()
        return output

    @no_type_check
    def _notice_backward(self, output) -> None:
        """End the step when a backward pass frees the graph of this forward pass."""
        if torch.compiler.is_compiling() or not self._open:
            return
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if tensors:
            register_multi_grad_hook(tensors, partial(_end_step, weakref.ref(self)), mode="any")

    def penalty(self, task: Tensor | None = None) -> Float[Tensor, ""]:
        """The penalty of this step, to be added to a loss of your own: of all forward passes since the last one.

        A second call returns the same tensor. ``task`` is the loss that it will be added to. A regulariser with
        ``strength=`` needs it, the others ignore it. In evaluation mode (``model.eval()``) the penalty is 0.

        After a backward pass through it that does not retain the graph, only its value is left.
        """
        self._require_attached()
        self._require_step()
        if not self.model.training:
            self._warn_of_evaluation()
        elif self._lost and torch.is_grad_enabled():
            raise GeoattnError(
                "a forward pass without gradients, or in evaluation mode, has replaced that of the training step; call"
                " handle.penalty() before it."
            )
        if self._added:
            raise GeoattnError(
                "the model returns a loss, and the penalty is in it already; use that loss as it is, or call the"
                " model without labels and add handle.penalty() to a loss of your own."
            )
        value, self._used = self._compute(task).value, True
        if not torch.is_grad_enabled():
            return value.detach()
        return _Spent.apply(value.detach().requires_grad_()) if self._spent else value

    def last_figures(self) -> dict[str, float]:
        """Figures of the step, when its penalty was asked for; else empty."""
        return {} if self.saw_nothing() else self.figures()

    def saw_nothing(self) -> bool:
        """Whether the step so far has no penalty."""
        return self._penalty is None

    def figures(self) -> dict[str, float]:
        """Penalty and statistics of the last step, per layer, as plain numbers; in evaluation mode the penalty is 0."""
        penalty = self._compute()
        values = {"penalty": penalty.value, **penalty.figures}
        return {name: float(v.detach() if isinstance(v, Tensor) else v) for name, v in values.items()}

    def restart(self) -> None:
        """Forget the last step."""
        super().restart()
        self._penalty, self._added, self._spent = None, False, False

    def state(self) -> dict[str, Any]:
        """What the first steps set: gamma of a strength, and what the regulariser itself keeps. Plain values."""
        found = self.regulariser.state()
        return found if self.calibration is None else {**found, "strength": self.calibration.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with what `state` gave."""
        if self.calibration is not None and "strength" in state:
            self.calibration.load_state(state["strength"])
        self.regulariser.load_state(state)

    def _detach(self) -> None:
        self._without += self._backward
        self._warn_of_no_penalty(1)
        super()._detach()
        self._penalty = None

    def _warn_of_no_penalty(self, steps: int) -> None:
        """Say once that the model has trained for so many steps and nobody has asked for the penalty."""
        if self._without >= steps and not (self._used or self.told):
            self.told = True
            warnings.warn(
                f"{type(self.regulariser).__name__} did nothing: {type(self.model).__name__} trains without its"
                " penalty. Write loss = loss + handle.penalty() before the backward pass.",
                GeoattnWarning, stacklevel=4,
            )  # fmt: skip

    def _require_step(self) -> None:
        if self._penalty is not None and self._record:  # a pass of compiled code, which has no beginning
            self._penalty, self._added, self._spent, self.step = None, False, False, self.step + 1
        if self.step < 0 and not self._record:
            raise GeoattnError("no forward pass since the regulariser was attached; run the model first.")

    def _warn_of_evaluation(self) -> None:
        """Say once that a model that has not trained yet is in evaluation mode: it may have been forgotten there."""
        if self.step < 0 and not self._warned and torch.is_grad_enabled():
            self._warned = True
            warnings.warn(
                f"{type(self.model).__name__} is in evaluation mode, where the penalty of"
                f" {type(self.regulariser).__name__} is 0; call model.train() to train with it.",
                GeoattnWarning, stacklevel=4,
            )  # fmt: skip

    def _compute(self, task: Tensor | None = None) -> Penalty:
        self._asked = True
        if self._penalty is None:
            step, training = max(self.step, 0), self.model.training
            due = training and self.calibration is not None and self.calibration.is_due(step)
            names = self._record.names if due else None
            # A look under no_grad must not take the graph from the step: its penalty is computed once.
            with_graph = training and (torch.is_grad_enabled() or _carries_graph(self._record))
            with sharing(self.processes), torch.set_grad_enabled(with_graph):
                penalty = self.regulariser.penalise(self._record, step)
                if self.calibration is not None:
                    penalty = self.calibration.weigh(
                        penalty, task, self.model, names, self.processes, step, self.weight
                    )
            if not training:
                penalty = replace(penalty, value=torch.zeros_like(penalty.value))
            self._penalty = penalty
            self._record.clear()  # queries and keys are then freed during the backward pass
            if self._penalty.value.requires_grad and not torch.compiler.is_compiling():
                self._penalty.value.register_hook(partial(_let_go, weakref.ref(self), weakref.ref(self._penalty)))
            if self._log is not None:
                self._log(self.step, self.figures())
        return self._penalty


def _carries_graph(record: Record) -> bool:
    """Whether a forward pass with gradients has left its queries or maps."""
    kept = (t for call in record if call.stored is not None for t in (call.stored.query, call.stored.weights))
    return any(t is not None and t.requires_grad for t in kept)


def layer_name(name: str, visit: int, taken: Any) -> str:
    """Name of a call for a log: that of its module, with the number of the visit where layers are shared."""
    return name if name not in taken else f"{name}#{visit}"


def _end_step(handle: weakref.ref[RegulariserHandle], _gradient: Any) -> None:
    at_work = handle()
    if at_work is not None and not _get_current_graph_task_keep_graph():
        at_work._backward = True


def _let_go(
    handle: weakref.ref[RegulariserHandle], penalty: weakref.ref[Penalty], _gradient: Tensor
) -> None:  # fmt: skip
    """The backward pass is here: keep the numbers alone, so that the graph goes with the loss."""
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
        if is_dataclass(output) and not isinstance(output, type):
            return replace(output, loss=loss)
        raise GeoattnError(
            f"cannot add the penalty to .loss of {type(output).__name__}; compute the loss outside of the model and"
            " add handle.penalty()."
        ) from None
