"""Variance of attention weights, streamed from queries and keys: no map is kept."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.masks import BLOCKED, Mask
from geoattn.training.variance_short import is_short, squares_of_short_maps

__all__ = ["result_dtype", "stream_variance", "streamed_variance"]

_UNDERFLOW = 87.0  # exp(-87) is the smallest normal number of float32, about
_BLOCK = 1 << 19  # entries of one block of maps: its few copies stay in the cache of a core


def streamed_variance(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b g m d"],
    *,
    scale: float | None = None,
    causal: bool = False,
    mask: Any = None,
    valid: Bool[Tensor, "b n"] | None = None,
    valid_keys: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h"]:
    r"""Variance of softmax(scale q k^T + mask), map by map, in O(n) memory.

    The rows of a map sum to one, so with :math:`N_i` entries in row i and N in all, on M valid rows,

    .. math:: \sigma^2 = \frac1N \sum_i \Big[ \sum_j (A_{ij} - \tfrac1{N_i})^2 + \tfrac1{N_i} \Big] - (M/N)^2,

    which needs one row at a time. The gradient, :math:`\partial\sigma^2/\partial s_{ij} = \frac2N A_{ij} (\delta_{ij}
    - \sum_k \delta_{ik}^2)` with :math:`\delta_{ij} = A_{ij} - 1/N_i`, is taken in the same pass and kept as two
    tensors of the size of q and k. Forward and backward pass together are three products of the size of q k^T,
    about half of that under a causal mask.

    The computation is in the dtype of the inputs, float32 for 16-bit ones. In float32 the value has a relative error
    of about 1e-6, and the gradient one of about 1e-6 max(1, s) of its largest entry, for logits of size s. For nearly
    uniform maps (s below 0.1) both errors grow as 1e-7 / s. A common part of all keys is taken off first and costs
    no digits.

    Time O(b h n m d); memory O(b h (n + m) d) and some fixed blocks.

    Parameters
    ----------
    query, key
        Any float dtype. Query head i uses key head i // (h / g).
    scale
        None: 1 / sqrt(d).
    causal
        Row i sees column j only when j <= i.
    mask
        Broadcasts to (b, h, n, m): bool, True = may see; or a float that is added to the logits. No gradient flows
        to it.
    valid, valid_keys
        True for real tokens; by default all queries, and the keys that ``valid`` says when n = m.

    Examples
    --------
    >>> import torch
    >>> from geoattn.training import attention_variance, streamed_variance
    >>> q, k = torch.randn(2, 3, 50, 8).double(), torch.randn(2, 3, 50, 8).double()
    >>> plain = attention_variance((q @ k.mT / 8**0.5).softmax(-1))
    >>> bool(torch.allclose(streamed_variance(q, k), plain, rtol=1e-12))
    True
    """
    b, h, n, d = query.shape
    m = key.shape[2]
    if key.shape[0] != b or h % key.shape[1] or key.shape[3] != d:
        raise GeoattnError(f"queries {tuple(query.shape)} and keys {tuple(key.shape)} do not fit together.")
    if mask is not None and not isinstance(mask, Tensor):
        raise GeoattnError(f"mask must be a boolean or float tensor; got {type(mask).__name__}.")
    if valid_keys is None and valid is not None and n == m:
        valid_keys = valid
    entries = mask if mask is None or mask.ndim >= 4 else mask.reshape(*((1,) * (4 - mask.ndim)), *mask.shape)
    wanted = Mask(entries, 0 if causal else None)
    with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
        variance, leaks = stream_variance(
            query, key, 1 / math.sqrt(d) if scale is None else scale, wanted, valid, valid_keys
        )  # fmt: skip
    if leaks:
        raise GeoattnError(
            "valid_keys hides tokens that the mask lets queries see, so rows do not sum to one; give the mask too."
        )
    return variance


def stream_variance(query: Any, key: Any, scale: float, mask: Mask, valid: Any, valid_keys: Any) -> tuple[Any, bool]:
    """The variances, and whether real rows give weight to keys that are no tokens (then they mean nothing)."""
    rows = None if valid is None or bool(valid.all()) else valid
    keys = None if valid_keys is None or bool(valid_keys.all()) else valid_keys
    if keys is not None and _leaks(mask, rows, keys, query.shape[2], query.device):
        return query.new_zeros(query.shape[:2]), True
    return _Streamed.apply(query, key, scale, mask, rows, keys), False


class _Streamed(torch.autograd.Function):
    """Variances of all maps; the gradient for an upstream gradient of one per map is computed along with them."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, scale: float, mask: Mask, rows: Any, keys: Any):
        (b, h, n, d), g, m, dtype = query.shape, key.shape[1], key.shape[2], result_dtype(query.dtype)
        device, group, grads = query.device, h // g, any(ctx.needs_input_grad[:2])
        ctx.group, ctx.dtypes, ctx.scale = group, (query.dtype, key.dtype), scale
        if rows is None and keys is None and mask == (None, None) and is_short(query, key):
            squares, *slopes = squares_of_short_maps(query, key, scale, grads)
            if grads:
                ctx.save_for_backward(*slopes, torch.tensor(2 / (n * n)))
            return (squares / (n * n)).to(dtype)
        k = torch.mul(key.to(dtype), scale, out=torch.empty(key.shape, dtype=dtype, device=device))
        if m > 1 and keys is None:
            k -= k.mean(2, keepdim=True)  # a common part of all keys changes no weight
        k = k.repeat_interleave(group, 1) if group > 1 else k
        entries = _Entries(mask, rows, keys, n, m, dtype, device)
        squares = torch.zeros(b, h, dtype=torch.float64 if device.type != "mps" else dtype, device=device)
        to_query = torch.empty(b, h, n, d, dtype=dtype, device=device) if grads else None
        to_key = torch.zeros(b, h, m, d, dtype=dtype, device=device) if grads else None
        first = second = torch.empty(0, dtype=dtype, device=device)
        for sample, block in _blocks(b, h, n, m):
            seen = entries.columns(block) if len(range(n)[block]) < n else m
            qs, ks = query[sample, :, block].to(dtype).flatten(0, 1), k[sample, :, :seen].flatten(0, 1)
            size = qs.shape[0] * qs.shape[1] * seen
            if len(first) < size:
                first, second = (torch.empty(size, dtype=dtype, device=device) for _ in range(2))
            logits = torch.bmm(qs, ks.mT, out=first[:size].view(len(qs), -1, seen))
            weights, deviation = entries.softmax(
                logits.unflatten(0, (-1, h)), sample, block, second[:size].view(-1, h, qs.shape[1], seen)
            )
            row = torch.linalg.vecdot(deviation, deviation).unsqueeze(-1)
            squares[sample] += row.sum((-2, -1), dtype=squares.dtype)
            if to_query is not None and to_key is not None:
                slope = deviation.sub_(row).mul_(weights).flatten(0, 1)
                # Views: a block has all rows of some samples, or some rows of one.
                torch.bmm(slope, ks, out=to_query[sample, :, block].flatten(0, 1))
                to_key[sample, :, :seen].flatten(0, 1).baddbmm_(slope.mT, qs)
        total = entries.total
        if to_query is not None and to_key is not None:
            per_map = (2 / total).nan_to_num(posinf=0.0).to(dtype)
            ctx.save_for_backward(to_query, to_key, per_map)
        return ((squares + entries.between) / total).to(dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        if torch.is_grad_enabled():  # create_graph=True: silence would be a wrong second derivative
            raise GeoattnError(
                "the streamed variance has no second derivative; use create_graph=False, or attention_variance."
            )
        to_query, to_key, per_map = ctx.saved_tensors
        factor = (upstream[0] * per_map)[..., None, None]
        query, key = factor * to_query, (ctx.scale * factor) * to_key  # the keys were scaled, and the queries were not
        if ctx.group > 1:  # heads that share their keys
            key = key.unflatten(1, (-1, ctx.group)).sum(2)
        return query.to(ctx.dtypes[0]), key.to(ctx.dtypes[1]), None, None, None, None


class _Entries:
    """Which entries of the maps count: ``total`` of each map, and the part of the variance ``between`` rows."""

    def __init__(self, mask: Mask, rows: Any, keys: Any, n: int, m: int, dtype: Any, device: Any) -> None:
        self.mask, self.rows, self.keys, self.m, self.dtype, self.device = mask, rows, keys, m, dtype, device
        self.all = rows is None and keys is None and mask == (None, None)
        self._known: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}
        wide = torch.float32 if torch.device(device).type == "mps" else torch.float64
        if self.all:
            self.total, self.between = torch.tensor(float(n * m), dtype=wide, device=device), 0.0
            return
        count = torch.cat([self._allowed(slice(None), rows).sum(-1) for rows in _row_blocks(n)], -1).to(wide)
        self.total = count.sum(-1)
        mean = (count > 0).sum(-1).to(wide) / self.total  # rows sum to one
        self.between = (count * (1 / count.clamp_min(1) - mean[..., None]).square()).sum(-1)

    def columns(self, block: slice) -> int:
        """How many columns these rows may see: the later ones of a causal map are never computed."""
        if self.mask.diagonal is None:
            return self.m
        return min(self.m, max(1, block.stop + self.mask.diagonal))

    def softmax(self, logits: Any, sample: slice, block: slice, out: Any) -> tuple[Any, Any]:
        """Weights of the entries, in ``out``, and their deviations from the mean of their row, in place of the logits.

        Both are 0 where there is no entry.
        """
        if self.all:
            return torch.softmax(logits, -1, out=out), torch.sub(out, 1 / self.m, out=logits)
        hidden, mean, empty = self._tables(sample, block, logits.shape[-1])
        bias = self.mask.entries
        if bias is not None and bias.dtype != torch.bool:
            part = _part(bias, sample, block)
            logits += (part[..., : logits.shape[-1]] if part.shape[-1] > 1 else part).to(logits.dtype)
        torch.softmax(logits.add_(hidden), -1, out=out)
        if empty is not None:
            out.masked_fill_(empty, 0.0)
        return out, torch.sub(out, mean, out=logits)

    def _tables(self, sample: slice, block: slice, seen: int) -> tuple[Any, Any, Any]:
        """What is added to the logits (0 or -inf), the mean of each row at its entries, and rows without entries.

        Rows without entries keep their logits: 0 times infinity would be NaN.
        """
        depends = self.rows is not None or self.keys is not None
        depends = depends or (self.mask.entries is not None and self.mask.entries.shape[0] > 1)
        place = (sample.start if depends else None, sample.stop if depends else None, block.start, block.stop)
        if place not in self._known:
            entries = self._allowed(sample, block)[..., :seen]
            count = entries.sum(-1, keepdim=True)
            empty = count == 0
            hidden = torch.zeros(entries.shape, dtype=self.dtype, device=self.device)
            hidden.masked_fill_(~entries & ~empty, -torch.inf)
            mean = entries / count.clamp_min(1).to(self.dtype)
            self._known = {**({} if depends else self._known), place: (hidden, mean, empty if empty.any() else None)}
        return self._known[place]

    def _allowed(self, sample: slice, block: slice) -> Any:
        return _allowed(self.mask, self.rows, self.keys, self.m, self.device, sample, block)


def _allowed(mask: Mask, rows: Any, keys: Any, m: int, device: Any, sample: slice, block: slice) -> Any:
    """The entries among these rows: where the mask allows them, between real tokens; (b or 1, h or 1, rows, m)."""
    number = torch.arange(block.start, block.stop, device=device)[:, None]
    allowed = torch.ones(1, 1, len(number), m, dtype=torch.bool, device=device)
    if mask.diagonal is not None:
        allowed = allowed & (torch.arange(m, device=device) <= number + mask.diagonal)
    if mask.entries is not None:
        entries = _part(mask.entries.detach(), sample, block)
        allowed = allowed & (entries if entries.dtype == torch.bool else _has_weight(entries))
    if rows is not None:
        allowed = allowed & rows[sample, None, block, None]
    return allowed if keys is None else allowed & keys[sample, None, None, :]


def _has_weight(bias: Any) -> Any:
    """Where a bias leaves a weight in some head that float32 can hold: Swin masks with -100, others with -10,000."""
    seen = (bias > BLOCKED) & (bias > bias.amax(-1, keepdim=True) - _UNDERFLOW)
    return seen.any(1, keepdim=True)


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of results: that of the inputs, float32 for 16-bit ones."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def _blocks(b: int, h: int, n: int, m: int) -> list[tuple[slice, slice]]:
    """(samples, rows) of blocks of at most _BLOCK entries, or one row of one sample."""
    step = max(1, min(n, _BLOCK // (h * m)))
    samples = max(1, _BLOCK // (h * m * n)) if step == n else 1
    return [
        (slice(i, min(i + samples, b)), slice(j, min(j + step, n)))
        for i in range(0, b, samples) for j in range(0, n, step)
    ]  # fmt: skip


def _part(entries: Any, sample: slice, block: slice) -> Any:
    entries = entries[sample] if entries.shape[0] > 1 else entries
    return entries[:, :, block] if entries.shape[2] > 1 else entries


def _row_blocks(n: int) -> list[slice]:
    return [slice(i, min(i + 1024, n)) for i in range(0, n, 1024)]


def _leaks(mask: Mask, rows: Any, keys: Any, n: int, device: Any) -> bool:
    """True when a real row may attend to a key that is no token: its weights on tokens do not sum to one."""
    everything, m = slice(None), keys.shape[1]
    return any(bool(_allowed(mask, rows, ~keys, m, device, everything, block).any()) for block in _row_blocks(n))
