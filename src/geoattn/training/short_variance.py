"""Variance of many short maps at once: all layers of a model in one pass, value and gradient together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geoattn.errors import GeoattnError

__all__ = ["narrow_dtype", "refuse_second_derivative", "short_variances", "wide_dtype"]


def short_variances(queries: list[Any], keys: list[Any], scale: float) -> Tensor:
    r"""Variance of softmax(scale q k^T) for each map of L calls of one shape, without masks: (L, b, h).

    For short rows the work is small and its many small steps are what costs: so all layers take each of them together.

    Weights and their deviations are in float64, as both nearly uniform and nearly one-hot rows lose digits in float32
    (the latter in the gradient); the products that make the gradient are in the dtype of the inputs, float32 for 16-bit
    ones. Keeps two tensors of the size of q and k.
    """
    return _Short.apply(scale, *queries, *keys)


class _Short(torch.autograd.Function):
    """Forward computes the gradient for an upstream gradient of one per map along with the values."""

    @staticmethod
    def forward(ctx: Any, scale: float, *inputs: Any):
        layers = len(inputs) // 2
        (b, h, n, d), m = inputs[0].shape, inputs[layers].shape[2]
        stored, exact = narrow_dtype(inputs[0].dtype), wide_dtype(inputs[0].device)
        q = torch.stack(inputs[:layers]).to(stored).reshape(-1, n, d)
        k = torch.stack(inputs[layers:]).to(stored).reshape(-1, m, d)
        logits = torch.bmm(q.to(exact), k.to(exact).mT)
        logits.mul_(scale)
        weights = logits.sub_(logits.amax(-1, keepdim=True)).exp_()  # in parts: softmax in float64 takes twice as long
        weights.mul_(weights.sum(-1, keepdim=True).reciprocal_())
        deviation = weights - 1 / m
        squares = torch.linalg.vecdot(deviation, deviation)[..., None]
        if any(ctx.needs_input_grad):
            slope = weights.mul_(deviation.sub_(squares)).mul_(2 * scale / (n * m)).to(stored)
            # rows of the slope sum to 0, so a common offset of the keys is taken off first: it would only cost digits
            to_query = torch.bmm(slope, k.sub_(k.mean(1, keepdim=True)))
            to_key = torch.bmm(slope.mT, q)
            ctx.save_for_backward(to_query.view(layers, b, h, n, d), to_key.view(layers, b, h, m, d))
            ctx.dtypes = inputs[0].dtype, inputs[layers].dtype
        return squares.view(layers, b, h, n).sum(-1).div_(n * m).to(stored)

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        refuse_second_derivative()
        g = upstream[0][..., None, None]
        parts = [(g * kept).to(dtype) for kept, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return None, *parts[0].unbind(), *parts[1].unbind()


def refuse_second_derivative() -> None:
    """Silence would be a wrong second derivative."""
    if torch.is_grad_enabled():  # create_graph=True
        raise GeoattnError(
            "the streamed variance has no second derivative; use create_graph=False, or attention_variance."
        )


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of sums that must not lose digits."""
    return torch.float32 if device.type == "mps" else torch.float64  # the one device without float64


def narrow_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of results: that of the inputs, float32 for 16-bit ones."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32
