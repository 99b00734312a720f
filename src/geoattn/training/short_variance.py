"""Variance of many short maps at once: all layers of a model in one pass, value and gradient together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geoattn import _native
from geoattn.errors import GeoattnError
from geoattn.training.reused_memory import ReusedMemory

__all__ = ["narrow_dtype", "refuse_second_derivative", "short_variances", "wide_dtype"]

_TOGETHER = 1 << 19  # numbers of queries and keys of short calls that go together: more leaves the cache, and is slower
_PER_THREAD = 1 << 24  # products from which another thread repays its start, beside those of torch that still spin
_memory = ReusedMemory()


def short_variances(queries: list[Any], keys: list[Any], scale: float) -> Tensor:
    r"""Variance of softmax(scale q k^T) for each map of L calls of one shape, without masks: (L, b, h).

    For short rows the work is small and its many small steps are what costs: so all layers take each of them together.

    On a CPU float32 goes through a kernel of our own, one map at a time in cache, where the maps are no larger than q
    and k; the rest takes the same steps in torch.

    Weights and their deviations are in float64, as both nearly uniform and nearly one-hot rows lose digits in float32
    (the latter in the gradient); the products that make the gradient are in the dtype of the inputs, float32 for 16-bit
    ones. Keeps no more than q and k for the backward pass.
    """
    if _kernel_fits(queries, keys):
        return _Kernel.apply(scale, *queries, *keys)
    room = max(1, _TOGETHER // (queries[0].numel() + keys[0].numel()))
    starts = range(0, len(queries), room)
    return torch.cat([_Short.apply(scale, *queries[i : i + room], *keys[i : i + room]) for i in starts])


def _kernel_fits(queries: list[Any], keys: list[Any]) -> bool:
    (n, d), m = queries[0].shape[-2:], keys[0].shape[-2]
    if n * m > (n + m) * d or torch.compiler.is_compiling():
        return False
    return all([_is_dense(x) for x in (*queries, *keys)])


class _Kernel(torch.autograd.Function):
    """Forward keeps the slope of each variance in the logits, backward multiplies it with keys and queries."""

    @staticmethod
    def forward(ctx: Any, scale: float, *inputs: Any):
        layers = len(inputs) // 2
        variance, slope = _values(scale, inputs[:layers], inputs[layers:], any(ctx.needs_input_grad))
        if slope is not None:
            ctx.save_for_backward(slope, *inputs)
        return variance

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        refuse_second_derivative()
        slope, *inputs = ctx.saved_tensors
        layers = len(slope)
        return None, *_gradients(inputs[:layers], inputs[layers:], slope, upstream[0])


def _values(scale: float, queries: Any, keys: Any, with_slope: bool) -> tuple[Any, Any]:
    """Variances (layers, b, h), and their slopes if wanted."""
    (b, h, n, d), m, layers = queries[0].shape, keys[0].shape[2], len(queries)
    variance = torch.empty((layers, b, h), dtype=torch.float32, device="cpu")
    slope = _memory.take((layers, b, h, n, m)) if with_slope else None
    _native.row_variances(
        [_place(x) for x in queries], [_place(x) for x in keys], (b, h, n, m, d), scale,
        variance.data_ptr(), 0 if slope is None else slope.data_ptr(), _threads(layers * b * h * n * m * d),
    )  # fmt: skip
    return variance, slope


def _gradients(queries: Any, keys: Any, slope: Any, upstream: Any) -> list[Any]:
    """Gradients of sum(upstream * variance)."""
    (b, h, n, d), m, upstream = queries[0].shape, keys[0].shape[2], upstream.contiguous()
    made = [_memory.take(x.shape) for x in (*queries, *keys)]
    addresses = [x.data_ptr() for x in made]
    _native.row_variance_gradients(
        [_place(x) for x in queries], [_place(x) for x in keys], (b, h, n, m, d), slope.data_ptr(), upstream.data_ptr(),
        addresses[: len(queries)], addresses[len(queries) :], _threads(len(queries) * b * h * n * m * d),
    )  # fmt: skip
    return made


def _threads(products: int) -> int:
    return max(1, min(torch.get_num_threads(), products // _PER_THREAD))


def _place(x: Tensor) -> tuple[int, int, int, int]:
    batch, head, row, _ = x.stride()
    return x.data_ptr(), batch, head, row


def _is_dense(x: Any) -> bool:
    """Whether the kernel can read it: rows of float32 in the memory of the CPU, as they are (not to be negated)."""
    dense = type(x) is Tensor and x.dtype == torch.float32 and x.stride(-1) == 1 and x.device.type == "cpu"
    return dense and not x.is_neg()


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
