"""The function mode that sees every attention call of a running model."""

from __future__ import annotations

from types import FunctionType
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from geoattn.capture.compiling import plain_python, runs_compiled_graph
from geoattn.capture.refusals import KERNELS
from geoattn.capture.sightings import Sightings
from geoattn.capture.trails import SOFTMAXES

__all__ = ["AttentionMode"]

_FUSED = functional.scaled_dot_product_attention
_MULTI_HEAD = functional.multi_head_attention_forward
_UNFLATTEN = Tensor.unflatten


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
        if func is _FUSED or func in SOFTMAXES:
            out = func(*args, **kwargs)
            if not _runs_again():
                seen.fused(args, kwargs, out) if func is _FUSED else seen.softmax(args, kwargs, out)
            return out
        if func is _MULTI_HEAD:
            with self:
                return self.multi_head(*args, **kwargs)
        if func is _UNFLATTEN and torch.compiler.is_compiling():
            return _unflatten(*args, **kwargs)
        if (seen.trails or seen.with_inputs) and not _runs_again():
            return seen.follow(func, args, kwargs)
        if isinstance(func, KERNELS):
            seen.kernel(func)
        return func(*args, **kwargs)


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
