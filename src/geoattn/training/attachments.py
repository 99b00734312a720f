"""The contract of what attaches to a model: regularisers, interventions and the monitor.

An attachment holds settings. `Attachment.attach` puts it to work on a model and returns a `Handle`, which gives the
penalty of each forward pass, logs figures and takes everything away again. A class that is registered has a name in
recipes, and `tests/training/test_contract.py` runs the laws of the contract on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.attention.selection import Layers
from geoattn.attention.session import Capture
from geoattn.training.distributed import Processes

__all__ = [
    "Attachment", "CapturingHandle", "Handle", "Sink", "attachment_class", "attachment_names", "register_attachment",
]  # fmt: skip

#: Where figures of a step go: called with the step and a flat dictionary of numbers.
Sink = Callable[[int, dict[str, float]], object]

_BUILT_IN = (
    "regularisers.variance", "regularisers.curvature", "regularisers.entropy", "regularisers.lipschitz",
    "interventions.temperature", "interventions.dropout", "interventions.edge_mask", "monitor",
)  # fmt: skip
_registered: dict[str, type[Attachment]] = {}
_Class = TypeVar("_Class", bound="type[Attachment]")


class Attachment(ABC):
    """Something that attaches to a model and acts on each of its forward passes.

    ``changes_attention`` says whether it changes the output of the model. A training loop attaches those that do
    after all others.

    Examples
    --------
    >>> import geoattn as ga
    >>> isinstance(ga.Monitor(), ga.training.Attachment), ga.EdgeMask(0.1).changes_attention
    (True, True)
    """

    changes_attention = False

    @abstractmethod
    def attach(
        self,
        model: nn.Module,
        *,
        layers: Layers = None,
        log: Sink | None = None,
        processes: Processes | None = None,
    ) -> Handle:
        """Act on ``model`` from now on, until `Handle.remove`.

        ``layers`` chooses attention modules, as in `geoattn.capture`. ``log`` is called with (step, figures) for each
        forward pass that has figures. ``processes`` are those of torch DDP among which each batch is divided.
        """


class Handle(ABC):
    """An attachment at work on a model.

    ``step`` is the number of the last step, from 0: the forward passes in training mode and with gradients until the
    penalty is read. ``weight`` multiplies the penalty in the model's own loss; it is below 1 for one of several
    micro-batches. A handle is a context manager that removes it at the end.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> model = ga.models.LViT()
    >>> with ga.VarianceRegulariser("decrease").attach(model) as handle:
    ...     _ = model(torch.rand(2, 1, 28, 28))
    ...     names = sorted(handle.figures())[:2]
    >>> names
    ['penalty', 'variance']
    """

    def __init__(self, model: nn.Module, log: Sink | None) -> None:
        self.model = model
        self.step = -1
        self.weight = 1.0
        self.told = False  # whether a warning has said that it does nothing
        self._log = log
        self._attached = True

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Plain numbers of the last forward pass, by name."""

    def last_figures(self) -> dict[str, float]:
        """Figures of the last step that has any, for a logger that asks at any time; empty when there was none."""
        return self.figures()

    def saw_nothing(self) -> bool:
        """Whether the step so far had no attention that the attachment could act on."""
        return False

    def is_pending(self) -> bool:
        """Whether forward passes have run whose penalty nobody has asked for."""
        return False

    def penalty(self, task: Tensor | None = None) -> Float[Tensor, ""]:
        """What the last step adds to a loss of your own. Zero, unless the attachment is a regulariser.

        ``task`` is the loss that it will be added to; only a regulariser with ``strength=`` needs it.
        """
        self._require_attached()
        return torch.zeros((), device=next((p.device for p in self.model.parameters()), None))

    @abstractmethod
    def restart(self) -> None:
        """Forget the last forward pass."""

    def remove(self) -> None:
        """Leave the model as it was before. A second call does nothing."""
        if self._attached:
            self._attached = False
            self._detach()

    @abstractmethod
    def _detach(self) -> None:
        """Take everything away from the model."""

    def __enter__(self) -> Handle:
        """The handle itself: ``with attachment.attach(model) as handle``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    def _require_attached(self) -> None:
        if not self._attached:
            raise GeoattnError(f"this {_kind(self)} was removed from its model; attach it again.")


class CapturingHandle(Handle):
    """A handle that captures the attention of each forward pass."""

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        log: Sink | None,
        processes: Processes | None,
        *,
        inputs: bool = False,
    ) -> None:
        super().__init__(model, log)
        self.processes = processes
        self._asked = self._open = self._lost = self._backward = self._cut = False
        self._capture = Capture(model, layers, inputs, on_begin=self._begin)
        self._record = self._capture.__enter__()
        # This hook runs after those of the capture, when the function mode is inactive.
        self._hook = model.register_forward_hook(self._after)

    def _begin(self, module: nn.Module) -> None:
        """A forward pass begins. In training mode and with gradients it belongs to a step.

        All passes until the penalty is read are one step, whether the model ran or parts of it. A backward pass, or a
        pass of the model that an error cut short, ends the step too.
        """
        training = torch.is_grad_enabled() and self.model.training
        whole = module is self.model
        if not (training and self._open) or self._asked or self._backward or (whole and self._cut):
            lost = self._open and not training and not (self._asked or self._backward)
            self.restart()
            self.step += training
            self._open, self._lost = training, lost
        self._cut = whole

    @no_type_check
    def _after(self, _model, _args, output):
        self._cut = False
        return output

    def is_pending(self) -> bool:
        """Whether forward passes have run whose penalty nobody has asked for."""
        return not self._asked and bool(self._record)

    def restart(self) -> None:
        """Forget the last step."""
        self._record.clear()
        self._asked = self._open = self._lost = self._backward = self._cut = False

    def _detach(self) -> None:
        self._hook.remove()
        self._capture.__exit__(None, None, None)
        self._record.clear()


def register_attachment(name: str) -> Callable[[_Class], _Class]:
    """Give a class of attachments a name in recipes; a class decorator.

    Examples
    --------
    >>> from geoattn.training import attachment_names
    >>> attachment_names()
    ['curvature', 'dropout', 'edge-mask', 'entropy', 'lipschitz', 'monitor', 'temperature', 'variance']
    """

    def add(kind: _Class) -> _Class:
        if _registered.get(name, kind) is not kind:
            raise GeoattnError(f"the name {name!r} belongs to {_registered[name].__name__}; choose another.")
        _registered[name] = kind
        return kind

    return add


def attachment_names() -> list[str]:
    """Names of all registered attachments.

    Examples
    --------
    >>> from geoattn.training import attachment_names
    >>> "variance" in attachment_names()
    True
    """
    _load()
    return sorted(_registered)


def attachment_class(name: str) -> type[Any]:
    """The class that is registered under a name."""
    _load()
    if name not in _registered:
        names = attachment_names()
        near = did_you_mean(name, names)
        raise GeoattnError(f"unknown regulariser {name!r}; expected one of {', '.join(names)}.{near}")
    return _registered[name]


def _load() -> None:
    for module in _BUILT_IN:
        import_module(f"geoattn.training.{module}")


def _kind(handle: Handle) -> str:
    return type(handle).__name__.removesuffix("Handle").lower() or "attachment"
