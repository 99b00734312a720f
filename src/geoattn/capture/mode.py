"""The function mode that sees every attention call of a running model."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from geoattn.capture.compiling import plain_python, runs_compiled_graph
from geoattn.capture.merges import MERGES
from geoattn.capture.refusals import KERNELS
from geoattn.capture.sightings import Sightings
from geoattn.capture.trails import SOFTMAXES

__all__ = ["AttentionMode"]

_MULTI_HEAD = functional.multi_head_attention_forward
_UNFLATTEN = Tensor.unflatten
_FUSED = (
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,  # as an exported model calls it
    torch.ops.aten.scaled_dot_product_attention.default,
)
_ROLES = {
    _MULTI_HEAD: "multi-head",
    _UNFLATTEN: "unflatten",
    **dict.fromkeys(_FUSED, "fused"),
    **dict.fromkeys(SOFTMAXES, "softmax"),
    **dict.fromkeys(MERGES, "merge"),
}
_ORDINARY = {FunctionType, BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType}


@no_type_check
class AttentionMode(TorchFunctionMode):
    """Tells `Sightings` of each scaled_dot_product_attention, and of each softmax that may be attention.

    It sits above autograd and below nothing: masks, groups and scale are as the model wrote them, gradients
    flow. Its presence keeps nn.TransformerEncoder from its fused fast path, which shows nothing.
    """

    def __init__(self, sightings: Sightings) -> None:
        super().__init__()
        self.sightings = sightings
        # torch's own code of multi-head attention, told that no mode is there: else it would hand itself to
        # the mode for ever. Run under the mode it shows the attention inside.
        told = {**vars(functional), "has_torch_function": _never}
        self.multi_head = FunctionType(_MULTI_HEAD.__code__, told, _MULTI_HEAD.__name__, _MULTI_HEAD.__defaults__)

    @plain_python
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        seen = self.sightings
        if not seen.frames:
            return func(*args, **kwargs)
        role = _role(func) if torch.compiler.is_compiling() else _ROLES.get(func)
        following = seen.trails or seen.with_inputs
        if role is None and not following and type(func) in _ORDINARY:  # the short way of nearly all functions
            return func(*args, **kwargs)
        if role == "fused" or role == "softmax":
            out = func(*args, **kwargs)
            if not _runs_again():
                seen.fused(args, kwargs, out) if role == "fused" else seen.softmax(args, kwargs, out)
            return out
        if role == "multi-head":
            with self:
                return self.multi_head(*args, **kwargs)
        if role == "unflatten" and torch.compiler.is_compiling():
            return _unflatten(*args, **kwargs)
        if role is None and isinstance(func, KERNELS) and not _runs_again():
            seen.kernel(func)
        if following and not _runs_again():
            out = seen.follow(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if role == "merge" and out.ndim == 3 and not _runs_again():
            seen.merged(args, kwargs, out)
        return out


@no_type_check
def _role(func):
    """What _ROLES says, for torch.compile, which does not find every function in a dictionary."""
    if func in _FUSED:
        return "fused"
    if func in SOFTMAXES:
        return "softmax"
    if func in MERGES:
        return "merge"
    return "multi-head" if func is _MULTI_HEAD else "unflatten" if func is _UNFLATTEN else None


@no_type_check
def _runs_again() -> bool:
    """True in a graph that torch.compile runs in Python: what it does was seen when it was traced."""
    return not torch.compiler.is_compiling() and runs_compiled_graph(2)


@no_type_check
def _unflatten(x, dim, sizes):
    """What Tensor.unflatten does; torch.compile cannot trace that one under a function mode."""
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


@no_type_check
def _never(*_):
    return False
