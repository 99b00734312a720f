"""Attention of short sequences with dropout on its weights, in the native kernel, behind torch's own function.

The model calls ``F.scaled_dot_product_attention`` as ever, so that capture, regularisers and interventions of geoattn
see the call and may change it. Its values are of a subclass of Tensor, by which torch hands the call to this module;
see "Subclassing torch.Tensor" in torch's notes on extending it.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn import _native
from geoattn.models.fused_blocks import STRIP, addresses, draw_seed, ready, threshold
from geoattn.models.quick_linear import refuse_second_derivative

__all__ = ["FusedAttention", "Values"]

_LONGEST = 64  # tokens: a map and its gradient stay in the L1 cache


class FusedAttention(torch.autograd.Function):
    """drop(softmax(scale q k^T)) v of (b, h, n, d), with ``(scale, seed, dropped)``; ``dropped`` is a `threshold`."""

    @staticmethod
    def forward(ctx: Any, settings: tuple[float, int, int], *inputs: Tensor) -> Tensor:
        inputs = tuple(ready(inputs))
        b, h, n, d = inputs[0].shape
        weights, out = inputs[0].new_empty(b * h, n, n), torch.empty_like(inputs[0])
        sizes = (b * h, n, d, *settings)
        _native.attention(*sizes, addresses(inputs), weights.data_ptr(), out.data_ptr(), 0, (0,) * 3)
        ctx.save_for_backward(*inputs, weights)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        refuse_second_derivative()
        *inputs, weights = ctx.saved_tensors
        (by_out,), gradients = ready(upstream), [torch.empty_like(tensor) for tensor in inputs]
        _native.attention(
            *ctx.sizes, inputs=addresses(inputs), weights=weights.data_ptr(), out=0, by_out=by_out.data_ptr(),
            gradients=addresses(gradients),
        )  # fmt: skip
        return None, *gradients


class Values(Tensor):
    """Values for ``F.scaled_dot_product_attention`` that may be mixed by `FusedAttention`.

    Any other function of torch takes them as the plain tensor, and gives plain tensors. So does the attention itself
    with a mask, a causal mask, or other shapes and dtypes than the kernel takes.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.functional import scaled_dot_product_attention as attention
    >>> q, k, v = torch.randn(3, 2, 1, 17, 16)
    >>> bool(torch.allclose(attention(q, k, v.as_subclass(Values)), attention(q, k, v), atol=1e-6))
    True
    """

    @classmethod
    @no_type_check
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if func is functional.scaled_dot_product_attention:
                return _attention(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))


@no_type_check
def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    n, d = query.shape[-2:]
    value = value.as_subclass(Tensor)
    fits = (
        attn_mask is None
        and not is_causal
        and not enable_gqa
        and query.ndim == 4
        and query.shape == key.shape == value.shape
        and query.numel() > 0
        and n <= _LONGEST
        and d % STRIP == 0
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (query, key, value))
        and not torch.is_autocast_enabled("cpu")
    )
    if not fits:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    dropped = threshold(dropout_p)
    settings = (d**-0.5 if scale is None else float(scale), draw_seed() if dropped else 0, dropped)
    return FusedAttention.apply(settings, query, key, value)
