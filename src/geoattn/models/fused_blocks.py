"""The feed-forward block and the projection to queries, keys and values, each as one step of the native kernel.

Forward and backward pass walk over the rows in chunks that stay in the cache of a core. torch needs a pass over the
memory for each LayerNorm, GELU, dropout and copy. The kernel takes contiguous float32 tensors of a processor, and sizes
that are multiples of 16: `geoattn.models.fused_step` asks `fits` first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from geoattn import _native
from geoattn.attention.module_stack import is_own_hook
from geoattn.models.quick_dropout import QuickDropout
from geoattn.models.quick_linear import refuse_second_derivative

__all__ = ["STRIP", "FusedFeedForward", "FusedProjection", "addresses", "draw_seed", "drops_some", "fits", "is_unheard",
           "ready", "threshold"]  # fmt: skip


_VALUES = 1 << 16
STRIP = 16  # columns that the kernel takes at once


def threshold(p: float) -> int:
    """The probability of being dropped in units of 2^-16, as `geoattn.models.quick_dropout` rounds it."""
    return min(round(p * _VALUES), _VALUES - 1)


def draw_seed() -> int:
    """A seed from the default generator of torch: a run that restores its state draws the same one."""
    return int(torch.empty((), dtype=torch.int64).random_())


def fits(x: Tensor, norm: nn.LayerNorm, *linear: nn.Linear) -> bool:
    """Whether the kernel can take this call."""
    modules, sizes = (norm, *linear), [size for one in linear for size in (one.in_features, one.out_features)]
    return (
        type(x) is Tensor
        and x.ndim == 3
        and x.numel() > 0
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and all(size % STRIP == 0 for size in sizes)
        and norm.normalized_shape == (x.shape[-1],)
        and norm.bias is not None
        and all(_is_plain(module) for module in modules)
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (x, *_parameters(modules)))
    )


def drops_some(*dropouts: nn.Module) -> bool:
    """Whether these are dropouts that leave some entries, so that their probability says all about them."""
    return all(isinstance(one, nn.Dropout | QuickDropout) and one.p < 1 for one in dropouts)


def is_unheard(module: nn.Module) -> bool:
    """Whether nobody listens to it: hooks see inputs and outputs, which the kernel does not make.

    A capture looks for attention in every module once. There is none in these.
    """
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return not any(hooks) or all(is_own_hook(hook) for kind in hooks for hook in kind.values())


def _is_plain(module: nn.Module) -> bool:
    return type(module) in (nn.LayerNorm, nn.Linear) and is_unheard(module)


def _parameters(modules: tuple[nn.Module, ...]) -> list[Tensor]:
    return [parameter for module in modules for parameter in module.parameters(recurse=False)]


def addresses(tensors: Any) -> tuple[int, ...]:
    """Where the entries lie."""
    return tuple(tensor.data_ptr() for tensor in tensors)


def ready(tensors: Any) -> list[Tensor]:
    """Contiguous tensors; those that are so stay as they are."""
    return [tensor.contiguous() for tensor in tensors]


class FusedFeedForward(torch.autograd.Function):
    """drop(W2 drop(gelu(W1 LN(x) + b1)) + b2), with ``(epsilon, seed, inner, outer)`` and then x and its parameters.

    ``inner`` and ``outer`` are `threshold` of the probabilities. The seed alone says what is dropped.
    """

    @staticmethod
    def forward(ctx: Any, settings: tuple[float, int, int, int], *inputs: Tensor) -> Tensor:
        inputs = tuple(ready(inputs))
        x, middle = inputs[0], len(inputs[3])
        rows = x.numel() // x.shape[-1]
        kept = x.new_empty(rows, 2), x.new_empty(rows, middle)
        out = torch.empty_like(x)
        sizes = (rows, x.shape[-1], middle, *settings)
        _native.feed_forward(*sizes, addresses(inputs), addresses(kept), out.data_ptr(), 0, (0,) * 7)
        ctx.save_for_backward(*inputs, *kept)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        refuse_second_derivative()
        inputs, kept = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        (by_out,), gradients = ready(upstream), [torch.empty_like(tensor) for tensor in inputs]
        _native.feed_forward(
            *ctx.sizes, inputs=addresses(inputs), kept=addresses(kept), out=0, by_out=by_out.data_ptr(),
            gradients=addresses(gradients),
        )  # fmt: skip
        return None, *gradients


class FusedProjection(torch.autograd.Function):
    """Queries, keys and values of LN(x), each (b, h, n, d): ``(epsilon, heads)``, x and its parameters."""

    @staticmethod
    def forward(ctx: Any, settings: tuple[float, int], *inputs: Tensor) -> tuple[Tensor, ...]:
        inputs = tuple(ready(inputs))
        (epsilon, heads), x, (b, n, width) = settings, inputs[0], inputs[0].shape
        dim = len(inputs[3]) // (3 * heads)
        moments, out = x.new_empty(b * n, 2), tuple(x.new_empty(b, heads, n, dim) for _ in range(3))
        sizes = (b, n, width, heads, dim, epsilon)
        _native.projection(*sizes, addresses(inputs), moments.data_ptr(), addresses(out), (0,) * 3, (0,) * 4)
        ctx.save_for_backward(*inputs, moments)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        refuse_second_derivative()
        *inputs, moments = ctx.saved_tensors
        upstream, gradients = tuple(ready(upstream)), [torch.empty_like(tensor) for tensor in inputs]
        _native.projection(
            *ctx.sizes, inputs=addresses(inputs), moments=moments.data_ptr(), out=(0,) * 3, by_out=addresses(upstream),
            gradients=addresses(gradients),
        )  # fmt: skip
        return None, *gradients
