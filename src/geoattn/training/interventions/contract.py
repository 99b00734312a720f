"""The contract of an intervention: it changes the attention of a model where it is computed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, no_type_check

import torch
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.model_watch import watch_model
from geoattn.attention.refusals import refuse_model
from geoattn.attention.selection import Layers
from geoattn.attention.session import chosen_names
from geoattn.attention.torch_compile import unwrapped
from geoattn.training.attachments import Attachment, Handle, Sink
from geoattn.training.distributed import Processes

__all__ = ["Intervention", "InterventionHandle"]


class Intervention(Attachment):
    """A change of the attention of a model. Its penalty is 0.

    It acts on every scaled_dot_product_attention, and on every softmax of a product of queries and keys. With
    ``training_only`` it acts while the model is in training mode.

    Examples
    --------
    >>> import torch, geoattn as ga
    >>> class Sharper(ga.training.Intervention):
    ...     def logits(self, scores):
    ...         return 2 * scores
    >>> model = ga.models.LViT().train()
    >>> with Sharper().attach(model) as handle:
    ...     _ = model(torch.rand(2, 1, 28, 28))
    ...     calls = handle.figures()["calls"]
    >>> calls
    8.0
    """

    changes_attention = True
    training_only = True

    @abstractmethod
    def logits(self, scores: Tensor) -> Tensor:
        """The logits (..., n, m) that the softmax is to be taken of; -inf or below -500: masked."""

    def weights(self, weights: Tensor) -> Tensor:
        """What becomes of the weights (..., n, m) after the softmax."""
        return weights

    def options(self, query: Tensor, key: Tensor, options: dict[str, Any]) -> dict[str, Any] | None:
        """Options of scaled_dot_product_attention with the same effect; None: there are none.

        Without them the attention is computed step by step, through `logits` and `weights`.
        """
        return None

    def attach(
        self,
        model: Any,
        *,
        layers: Layers = None,
        log: Sink | None = None,
        processes: Processes | None = None,
    ) -> InterventionHandle:
        """Change the attention of ``model`` from now on, until ``.remove()`` of the handle.

        A capture of the model sees the changed logits, and the weights before anything is dropped. ``processes`` has
        no meaning here: each process changes its own part of the batch.
        """
        return InterventionHandle(self, model, layers, log)


class InterventionHandle(Handle):
    """An intervention at work on a model."""

    def __init__(self, intervention: Intervention, model: Any, layers: Layers, log: Sink | None) -> None:
        refuse_model(model)
        super().__init__(unwrapped(model), log)
        self.intervention = intervention
        self.logits, self.weights, self.options = intervention.logits, intervention.weights, intervention.options
        self._calls = 0
        self._compiled = False
        self._wanted = chosen_names(model, layers)
        self._watch = watch_model(model)
        self._watch.change(model, self)

    @no_type_check  # traced by torch.compile
    def is_active(self, name: str) -> bool:
        """Whether the attention of the module of this name is to be changed now."""
        if self.intervention.training_only and not self.model.training:
            return False
        return self._wanted is None or name in self._wanted

    @no_type_check  # traced by torch.compile
    def count(self) -> None:
        """A call is changed. A compiled graph does not count: it would be compiled anew for each number."""
        if torch.compiler.is_compiling():
            self._compiled = True
        else:
            self._calls += 1

    def begin(self, module: nn.Module) -> None:
        """A forward pass begins."""
        self.step += 1
        self._calls, self._compiled = 0, False

    def end(self, module: nn.Module, output: Any) -> None:
        """A forward pass has ended; without an error when there is an output. If nothing was changed, say so."""
        if output is None or unwrapped(module) is not self.model:
            return
        idle = self.intervention.training_only and not self.model.training
        if self._calls == 0 and not idle and not self._compiled:
            raise GeoattnError(
                f"{type(self.intervention).__name__} found no attention in {type(self.model).__name__}: no"
                " scaled_dot_product_attention, and no softmax of a product of queries and keys."
            )
        if self._log is not None:
            self._log(self.step, self.figures())

    def restart(self) -> None:
        """Forget the last forward pass."""
        self._calls = 0

    def saw_nothing(self) -> bool:
        """Whether no attention was changed since the step began."""
        return self._calls == 0 and not self._compiled

    def figures(self) -> dict[str, float]:
        """The penalty, 0, and the number of attention calls that were changed in the last forward pass."""
        return {"penalty": 0.0, "calls": float(self._calls)}

    def _detach(self) -> None:
        self._watch.remove(self)
