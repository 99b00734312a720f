"""The function mode that sees every function of torch that a running model calls."""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
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

_is_compiling = torch.compiler.is_compiling
_MULTI_HEAD = functional.multi_head_attention_forward
_UNFLATTEN = Tensor.unflatten
_FUSED = (
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,  # as an exported model calls it
    torch.ops.aten.scaled_dot_product_attention.default,
)
_JOINS = (torch.cat, torch.concat, torch.concatenate)
_BEST = (torch.topk, Tensor.topk)
_ROLES = {
    _MULTI_HEAD: "multi-head",
    _UNFLATTEN: "unflatten",
    **dict.fromkeys(_FUSED, "fused"),
    **dict.fromkeys(SOFTMAXES, "softmax"),
    **dict.fromkeys(LOG_SOFTMAXES, "log-softmax"),
    **dict.fromkeys(MERGES, "merge"),
    **dict.fromkeys(_JOINS, "join"),
    **dict.fromkeys(PRODUCTS, "product"),
    **dict.fromkeys(_BEST, "select"),
}
_PLAIN = {FunctionType, BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType}
#: Methods, properties and functions of torch that nobody needs to look at while no tensor is followed.
_ORDINARY: frozenset[Any] = frozenset(
    function
    for place in (*Tensor.__mro__[:-1], functional, torch)
    for member in vars(place).values()
    for function in (getattr(member, "__get__", None) if isinstance(member, GetSetDescriptorType) else member,)
    if type(function) in _PLAIN and function not in _ROLES
)


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
        self.streams = recorder.streams
        # torch's own code of multi-head attention, told that no mode is active: else it would hand itself to the mode
        # for ever. Run under the mode it shows the attention inside.
        told = {**vars(functional), "has_torch_function": _never}
        self.multi_head = FunctionType(_MULTI_HEAD.__code__, told, _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__)

    @plain_python
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        compiling = _is_compiling()
        recorder, tracker = self.recorder, self.tracker
        following = tracker.scores or tracker.derived or tracker.logs or self.streams.depth > 0
        if not compiling and not following and func in _ORDINARY:  # nearly all functions
            return func(*args) if kwargs is None else func(*args, **kwargs)
        kwargs = {} if kwargs is None else kwargs
        role = _role(func) if compiling else _ROLES.get(func)
        if (role is None and not following and type(func) in _PLAIN) or not recorder.running:
            return func(*args, **kwargs)
        if (role == "merge" or role == "join") and not following:
            return self._merge(role, func(*args, **kwargs), args, kwargs)
        if role == "multi-head":
            with self:
                return self.multi_head(*args, **kwargs)
        if role == "unflatten" and compiling:
            return _unflatten(*args, **kwargs)
        if not compiling and runs_compiled_graph(1):
            return func(*args, **kwargs)  # what a compiled graph does was seen when it was traced
        if role is not None and role != "merge" and role != "join" and not compiling:
            recorder.heard()
        if role == "fused" or role == "softmax":
            run = self._fused if role == "fused" else self._softmax
            if compiling:
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
        return self._merge(role, out, args, kwargs)

    def _merge(self, role: Any, out: Any, args: Any, kwargs: Any) -> Any:
        """Note what axes were put into one, and what a cache of keys goes on as."""
        if role == "merge" or role == "join":
            if isinstance(out, Tensor) and out.ndim == 3:
                self.recorder.merged(args, kwargs, out)
            if role == "join" and not _is_compiling() and self.recorder.caches.lines:
                self.recorder.caches.joined(args, kwargs, out)
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
