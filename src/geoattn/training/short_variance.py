"""Variance of many short maps at once: all layers of a model in one pass, value and gradient together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _get_current_graph_task_keep_graph

from geoattn import _native
from geoattn.errors import GeoattnError
from geoattn.training.reused_memory import ReusedMemory

__all__ = ["early_variance", "narrow_dtype", "refuse_second_derivative", "short_variances", "wide_dtype"]

_TOGETHER = 1 << 19  # numbers of queries and keys of short calls that go together: more leaves the cache, and is slower
_PER_THREAD = 1 << 24  # products from which another thread repays its start, beside those of torch that still spin
_IN_HEAP = 1 << 15  # slopes up to which memory comes from the heap, without a system call and fresh pages
_memory = ReusedMemory()


def early_variance(query: Any, key: Any, scale: float) -> Any:
    """What `short_variances` takes as ``early``: the work of its forward pass on one call, right after it has run.

    Queries and keys of one shape (b, h, n, d) are in the cache then, and are not when the penalty is asked for. None
    where there is no kernel, or no gradient to come.
    """
    if not query.requires_grad or not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return None
    shape = query.shape
    if shape[2] > 2 * shape[3] or not _is_dense(query) or not _is_dense(key):
        return None
    products = shape.numel() * shape[2]
    threads = 1 if products < 2 * _PER_THREAD else _threads(products)
    slope = _memory.take((*shape[:3], shape[2])) if shape[:3].numel() * shape[2] > _IN_HEAP else None
    return _native.RowVariances(
        query.data_ptr(), query.stride(), key.data_ptr(), key.stride(), shape, scale, threads,
        0 if slope is None else slope.data_ptr(), slope,
    )  # fmt: skip


def short_variances(queries: list[Any], keys: list[Any], scale: float, early: list[Any] | None = None) -> Tensor:
    r"""Variance of softmax(scale q k^T) for each map of L calls of one shape, without masks: (L, b, h).

    For short rows the work is small and its many small steps are what costs: so all layers take each of them together.

    On a CPU float32 goes through a kernel of our own, one map at a time in cache, where the maps are no larger than q
    and k; the rest takes the same steps in torch.

    ``early`` is what `early_variance` made of each call.

    Weights and their deviations are in float64, as both nearly uniform and nearly one-hot rows lose digits in float32
    (the latter in the gradient); the products that make the gradient are in the dtype of the inputs, float32 for 16-bit
    ones. Keeps no more than q and k for the backward pass.
    """
    if early or _kernel_fits(queries, keys):
        return _Kernel.apply(scale, early, *queries, *keys)
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
    def forward(ctx: Any, scale: float, early: Any, *inputs: Any):
        layers = len(inputs) // 2
        variance = torch.empty((layers, *inputs[0].shape[:2]), dtype=torch.float32, device="cpu")
        if early:
            start, step = variance.data_ptr(), 4 * variance.stride(0)
            for k, found in enumerate(early):
                found.copy_to(start + k * step)
            ctx.slopes = early
        else:
            ctx.slopes = _fill(variance, scale, inputs[:layers], inputs[layers:], any(ctx.needs_input_grad))
        ctx.save_for_backward(*inputs)
        return variance

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        refuse_second_derivative()
        inputs, layers = ctx.saved_tensors, len(ctx.slopes)
        slopes = [x.data_ptr() if isinstance(x, Tensor) else x.slope for x in ctx.slopes]
        gradients = _gradients(inputs[:layers], inputs[layers:], slopes, upstream[0])
        if not _get_current_graph_task_keep_graph():
            ctx.slopes = None  # as saved tensors go, though the loss may live on
        return None, None, *gradients


def _fill(variance: Tensor, scale: float, queries: Any, keys: Any, with_slope: bool) -> Any:
    """Fills in the variances (layers, b, h); their slopes, if wanted."""
    (b, h, n, d), m, layers = queries[0].shape, keys[0].shape[2], len(queries)
    slope = _memory.take((layers, b, h, n, m)) if with_slope else None
    _native.row_variances(
        [_place(x) for x in queries], [_place(x) for x in keys], (b, h, n, m, d), scale,
        variance.data_ptr(), 0 if slope is None else slope.data_ptr(), _threads(layers * b * h * n * m * d),
    )  # fmt: skip
    return slope


def _gradients(queries: Any, keys: Any, slopes: list[int], upstream: Any) -> list[Any]:
    """Gradients of sum(upstream * variance)."""
    (b, h, n, d), m, upstream = queries[0].shape, keys[0].shape[2], upstream.contiguous()
    made = [_memory.take(x.shape) for x in (*queries, *keys)]
    addresses = [x.data_ptr() for x in made]
    _native.row_variance_gradients(
        [_place(x) for x in queries], [_place(x) for x in keys], (b, h, n, m, d), slopes, upstream.data_ptr(),
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
    return type(x) is Tensor and x.dtype == torch.float32 and x.stride(-1) == 1 and x.is_cpu and not x.is_neg()


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
