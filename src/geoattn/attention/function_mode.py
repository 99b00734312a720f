"""The function mode that sees every function of torch that a running model calls."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from geoattn.attention.axes import MERGES
from geoattn.attention.changes import changed_attention, changed_softmax
from geoattn.attention.function_kinds import LOG_SOFTMAXES, SOFTMAXES, softmax_axis
from geoattn.attention.hidden_softmaxes import HiddenSoftmaxes
from geoattn.attention.products import PRODUCTS
from geoattn.attention.refusals import KERNELS
from geoattn.attention.torch_compile import plain_python, runs_compiled_graph

__all__ = ["AttentionMode"]

_MULTI_HEAD = functional.multi_head_attention_forward
_UNFLATTEN = Tensor.unflatten
_FUSED = (
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,  # as an exported model calls it
    torch.ops.aten.scaled_dot_product_attention.default,
)
_BEST = (torch.topk, Tensor.topk)
_ROLES = {
    _MULTI_HEAD: "multi-head",
    _UNFLATTEN: "unflatten",
    **dict.fromkeys(_FUSED, "fused"),
    **dict.fromkeys(SOFTMAXES, "softmax"),
    **dict.fromkeys(LOG_SOFTMAXES, "log-softmax"),
    **dict.fromkeys(MERGES, "merge"),
    **dict.fromkeys(PRODUCTS, "product"),
    **dict.fromkeys(_BEST, "select"),
}
_ORDINARY = {FunctionType, BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType}


@no_type_check
class AttentionMode(TorchFunctionMode):
    """Tells a `CallRecorder` of each attention call, and lets interventions change the call.

    The mode is active while the model runs. It sits above autograd: masks, groups and scale are as the model wrote
    them, and gradients flow. Its presence keeps nn.TransformerEncoder from its fused fast path, which shows nothing.

    ``changes`` change logits and weights where they are made; see `geoattn.attention.changes`.
    """

    def __init__(self, recorder: Any) -> None:
        super().__init__()
        self.recorder = recorder
        self.tracker = recorder.tracker
        self.changes: list[Any] = []
        # torch's own code of multi-head attention, told that no mode is active: else it would hand itself to the mode
        # for ever. Run under the mode it shows the attention inside.
        told = {**vars(functional), "has_torch_function": _never}
        self.multi_head = FunctionType(_MULTI_HEAD.__code__, told, _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__)

    @plain_python
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        role = _role(func) if torch.compiler.is_compiling() else _ROLES.get(func)
        recorder, tracker = self.recorder, self.tracker
        following = tracker.scores or tracker.derived or tracker.logs or recorder.streams.depth > 0
        if role is None and not following and type(func) in _ORDINARY:  # nearly all functions
            return func(*args, **kwargs)
        if not recorder.running:
            return func(*args, **kwargs)
        if role == "merge" and not following:
            out = func(*args, **kwargs)
            if isinstance(out, Tensor) and out.ndim == 3:
                recorder.merged(args, kwargs, out)
            return out
        if role == "multi-head":
            with self:
                return self.multi_head(*args, **kwargs)
        if role == "unflatten" and torch.compiler.is_compiling():
            return _unflatten(*args, **kwargs)
        if not torch.compiler.is_compiling() and runs_compiled_graph(1):
            return func(*args, **kwargs)  # what a compiled graph does was seen when it was traced
        if role is not None and role != "merge" and not torch.compiler.is_compiling():
            recorder.heard()
        if role == "fused" or role == "softmax":
            run = self._fused if role == "fused" else self._softmax
            if torch.compiler.is_compiling():
                return run(func, args, kwargs)
            HiddenSoftmaxes.expected += 1
            try:
                return run(func, args, kwargs)
            finally:
                HiddenSoftmaxes.expected -= 1
        if role == "log-softmax":
            out = func(*args, **kwargs)
            axis = softmax_axis(func, args, kwargs, out)
            if axis is not None:
                recorder.log_softmax(args[0] if args else kwargs["input"], out, axis)
            return out
        if role is None and isinstance(func, KERNELS):
            recorder.kernel(func)
        if following or role == "product":
            out = recorder.follow(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if role == "select":
            self.tracker.select(out)
        if role == "merge" and isinstance(out, Tensor) and out.ndim == 3:
            recorder.merged(args, kwargs, out)
        return out

    def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
        active = self._active()
        if active:
            return changed_attention(active, self.recorder, func, args, kwargs)
        out = func(*args, **kwargs)
        self.recorder.fused(args, kwargs, out)
        return out

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        argument = args[0] if args else kwargs["input"]
        active = self._active()
        if active and self.tracker.is_score(argument):
            return changed_softmax(active, self.recorder, func, args, kwargs)
        out = func(*args, **kwargs)
        axis = softmax_axis(func, args, kwargs, out)
        if axis is not None:
            self.recorder.softmax(argument, out, axis)
        return out

    def _active(self) -> Any:
        """The changes that apply in the module that is running."""
        if not self.changes:
            return None
        name = self.recorder.running[-1].name
        return [change for change in self.changes if change.is_active(name)]


@no_type_check
def _role(func):
    """What _ROLES says, for torch.compile, which does not find every function in a dictionary."""
    if func in _FUSED:
        return "fused"
    if func in SOFTMAXES:
        return "softmax"
    if func in LOG_SOFTMAXES:
        return "log-softmax"
    if func in MERGES:
        return "merge"
    if func in PRODUCTS:
        return "product"
    if func in _BEST:
        return "select"
    return "multi-head" if func is _MULTI_HEAD else "unflatten" if func is _UNFLATTEN else None


@no_type_check
def _unflatten(x, dim, sizes):
    """What Tensor.unflatten does; torch.compile cannot trace that one under a function mode."""
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


@no_type_check
def _never(*_):
    return False
