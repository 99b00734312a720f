"""Interventions: change the attention of a model where it is computed, without touching its code."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from types import FunctionType
from typing import Any, no_type_check

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from geoattn.capture.compiling import plain_python, runs_compiled_graph
from geoattn.capture.refusals import refuse_model
from geoattn.errors import GeoattnError
from geoattn.training.regulariser import Sink

__all__ = ["Intervention", "InterventionHandle"]

_FUSED = functional.scaled_dot_product_attention
_MULTI_HEAD = functional.multi_head_attention_forward
_SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
_PRODUCTS = (
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.functional.einsum, torch.baddbmm,
    Tensor.baddbmm,
)  # fmt: skip
_REMEMBERED = 8  # tensors that may be scores


class Intervention(ABC):
    """A change of the attention of a model, with the interface of a regulariser; its penalty is 0."""

    training_only = True

    @abstractmethod
    def logits(self, scores: Tensor) -> Tensor:
        """The logits (..., n, m) that the softmax is to be taken of; -inf or below -9000: masked."""

    def weights(self, weights: Tensor) -> Tensor:
        """What becomes of the weights (..., n, m) after the softmax."""
        return weights

    def fused(self, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor | None:
        """A quicker way through scaled_dot_product_attention, with changed options; None: step by step."""
        return None

    def attach(self, model: Any, *, layers: Any = None, log: Sink | None = None) -> InterventionHandle:
        """Change the attention of ``model`` from now on, until ``.remove()`` of the handle.

        Every scaled_dot_product_attention, and every softmax over the last axis of a product of queries and keys, in
        any module. A capture of the model sees the changed logits, and the weights before anything is dropped.
        """
        if layers is not None:
            raise GeoattnError(f"{type(self).__name__} changes all attention of a model; layers= is not supported.")
        return InterventionHandle(self, model, log)


class InterventionHandle:
    """An intervention at work on a model."""

    def __init__(self, intervention: Intervention, model: Any, log: Sink | None) -> None:
        refuse_model(model)
        self.intervention = intervention
        self.model = model
        self.step = -1
        self._log = log
        self._mode = _Mode(intervention)
        self._depth = 0
        self._hooks = []
        for module in model.modules():
            plain = type(module).__module__.startswith("torch.nn.modules.") and next(module.children(), None) is None
            if plain and module is not model and not isinstance(module, nn.MultiheadAttention):
                continue  # holds no attention
            self._hooks.append(module.register_forward_pre_hook(self._enter))
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))
        # A capture that is entered later pushes its mode above ours, and would see attention that we then change.
        # Inside the forward of the model all hooks have run: there we go on top.
        self._before = vars(model).get("forward")
        self._forward = _wrap(model, self)
        model.forward = self._forward

    @no_type_check
    @plain_python
    def _enter(self, module, _args):
        if self.intervention.training_only and not self.model.training:
            return
        if self._depth == 0:
            _push_mode(self._mode)
        self._depth += 1

    @no_type_check
    @plain_python
    def _leave(self, module, _args, _output):
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth == 0:
            _pop_mode()
            self._mode.scores.clear()

    def begin(self) -> None:
        """The forward of the model itself begins."""
        self.step += 1
        self._mode.calls = 0
        if self._depth and _get_current_function_mode() is not self._mode:
            _raise(self._mode)

    def end(self) -> None:
        """It has ended well: if there was nothing to change, say so."""
        if self._depth and self._mode.calls == 0:
            raise GeoattnError(
                f"{type(self.intervention).__name__} found no attention in {type(self.model).__name__}: no"
                " scaled_dot_product_attention, and no softmax of a product of queries and keys."
            )
        if self._log is not None:
            self._log(self.step, self.figures())

    def penalty(self) -> Tensor:
        """Zero: an intervention adds nothing to the loss. Here so that one loop serves all regularisers."""
        if not self._hooks:
            raise GeoattnError("this intervention was removed from its model; attach it again.")
        return torch.zeros((), device=next((p.device for p in self.model.parameters()), None))

    def restart(self) -> None:
        """Forget the last forward pass."""
        self._mode.calls = 0

    def figures(self) -> dict[str, float]:
        """The penalty, 0, and the number of attention calls that were changed in the last forward pass."""
        return {"penalty": 0.0, "calls": float(self._mode.calls)}

    def remove(self) -> None:
        """Leave the model as it was before. A second call does nothing."""
        for hook in self._hooks:
            hook.remove()
        if self._hooks and vars(self.model).get("forward") is self._forward:
            if self._before is None:
                del self.model.forward
            else:
                self.model.forward = self._before
        self._hooks = []
        if self._mode in _get_current_function_mode_stack():
            _raise(self._mode)
            _pop_mode()

    def __enter__(self) -> InterventionHandle:
        """The handle itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()


@no_type_check
def _wrap(model, handle):
    original = model.forward

    @functools.wraps(original)
    def forward(*args, **kwargs):
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        handle.begin()
        out = original(*args, **kwargs)
        handle.end()
        return out

    return forward


@no_type_check
class _Mode(TorchFunctionMode):
    """Rewrites attention calls; everything else passes."""

    def __init__(self, intervention: Intervention) -> None:
        super().__init__()
        self.intervention = intervention
        self.scores: list[Tensor] = []
        self.calls = 0
        # torch's own code of multi-head attention, told that no mode is there: else it would hand itself to the
        # mode for ever.
        told = {**vars(functional), "has_torch_function": _never}
        self.multi_head = FunctionType(_MULTI_HEAD.__code__, told, _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__)

    @plain_python
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {} if kwargs is None else kwargs
        if not torch.compiler.is_compiling() and runs_compiled_graph(1):
            return func(*args, **kwargs)  # changed when it was traced
        if func is _FUSED:
            self.calls += 1
            return _fused(self.intervention, *args, **kwargs)
        if func is _MULTI_HEAD:
            with self:
                return self.multi_head(*args, **kwargs)
        if func in _SOFTMAXES and _is_last_axis(args, kwargs) and _among(self.scores, args[0]):
            self.calls += 1
            self.scores.clear()
            return self.intervention.weights(func(self.intervention.logits(args[0]), *args[1:], **kwargs))
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and out.ndim >= 3 and out.is_floating_point():
            if func in _PRODUCTS:
                if _equal_axes(args):
                    self.scores.append(out)
            elif self.scores and len(args) > 0 and _follows(self.scores, args, out):
                self.scores.append(out)
            if len(self.scores) > _REMEMBERED:
                del self.scores[0]
        return out


@no_type_check
def _fused(
    intervention, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    options = {
        "attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale,
        "enable_gqa": enable_gqa,
    }  # fmt: skip
    out = intervention.fused(query, key, value, options)
    if out is not None:
        return out
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
    scores = torch.matmul(query, key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        n, m = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(1), -torch.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = intervention.weights(torch.softmax(intervention.logits(scores), -1))
    return torch.matmul(functional.dropout(weights, dropout_p), value)


@no_type_check
def _is_last_axis(args, kwargs) -> bool:
    axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else None)
    return len(args) > 0 and args[0].ndim >= 3 and (axis == -1 or axis == args[0].ndim - 1)


@no_type_check
def _among(tensors, tensor) -> bool:
    for other in tensors:
        if other is tensor:
            return True
    return False


@no_type_check
def _follows(scores, args, out) -> bool:
    """True when the result was made from possible scores and is as large: scaled, masked, reshaped, cast."""
    for value in args[:2]:
        for other in scores:
            if other is value and out.numel() >= other.numel():
                return True
    return False


@no_type_check
def _equal_axes(args) -> bool:
    """A product of two tensors of as many axes: queries and keys, not tokens and weights."""
    tensors = []
    for value in args:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                if isinstance(inner, Tensor):
                    tensors.append(inner)
    return len(tensors) >= 2 and tensors[-1].ndim == tensors[-2].ndim >= 3


def _raise(mode: TorchFunctionMode) -> None:
    """Put a mode that is on the stack on top of it."""
    above = []
    while True:
        top = _pop_mode()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push_mode(other)
    _push_mode(mode)


@no_type_check
def _never(*_):
    return False
