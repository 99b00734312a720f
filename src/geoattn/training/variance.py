"""Variance of attention weights: from maps, or streamed from queries and keys without one."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn.capture.call import Call
from geoattn.capture.kept import versions
from geoattn.capture.maps import BLOCKED, Mask, allowed_entries
from geoattn.capture.sighting import Glimpse
from geoattn.errors import GeoattnError
from geoattn.training.short_variance import narrow_dtype, refuse_second_derivative, short_variances, wide_dtype

__all__ = ["attention_variance", "call_variance", "glimpsed_variances", "record_variances", "streamed_variance"]

_BLOCK_BYTES = 8 << 20  # of one float64 block of rows; about five such blocks exist at once
_SHORT = 512  # longest row of the quick way; longer ones go block by block, all in float64


def attention_variance(attention: Any, valid: Any = None) -> Float[Tensor, "*b"]:
    r"""Population variance of the entries of each map.

    .. math:: \sigma^2 = \frac1N \sum_{(i,j)\ \mathrm{valid}} (A_{ij} - \mu)^2, \qquad
              \mu = \frac1N \sum_{(i,j)\ \mathrm{valid}} A_{ij}

    over the N valid entries of a map: masked entries (padding, the future) are not entries. Uniform attention has
    variance 0; one-hot rows over n tokens have the most, (n - 1) / n^2.

    Parameters
    ----------
    attention
        (..., n, m), torch, any float dtype.
    valid
        Boolean, broadcasts to the attention: True for an entry. None: all of them.

    Returns
    -------
    Tensor
        (...), in the dtype of the attention (float32 for 16-bit). NaN for a map without entries. Differentiable.
        Centred before it is squared, in float64: nearly uniform maps lose nothing.

    Examples
    --------
    >>> import torch
    >>> from geoattn.training.variance import attention_variance
    >>> attention_variance(torch.eye(4))
    tensor(0.1875)
    >>> attention_variance(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1, 0], [1, 1]]).bool())
    tensor(0.0556)
    """
    if not isinstance(attention, Tensor) or not attention.is_floating_point() or attention.ndim < 2:
        raise GeoattnError(f"attention must be a float tensor of shape (..., n, m); got {_what(attention)}.")
    x = attention.to(wide_dtype(attention.device))
    if valid is None:
        x = x - x.mean(dim=(-2, -1), keepdim=True)
        return x.square().mean(dim=(-2, -1)).to(narrow_dtype(attention.dtype))
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
        raise GeoattnError(f"valid must be a boolean tensor, True for an entry; got {_what(valid)}.")
    try:
        valid = valid.to(x.device).expand(x.shape)
    except RuntimeError:
        raise GeoattnError(
            f"valid must broadcast to the attention, {tuple(x.shape)}; got shape {tuple(valid.shape)}."
        ) from None
    count = valid.sum(dim=(-2, -1), keepdim=True)
    mean = x.masked_fill(~valid, 0.0).sum(dim=(-2, -1), keepdim=True) / count
    centred = (x - mean).masked_fill(~valid, 0.0)
    variance = centred.square().sum(dim=(-2, -1)) / count[..., 0, 0]
    return variance.to(narrow_dtype(attention.dtype))


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
    tensors of the size of q and k: nothing is computed twice and no map is kept. Deviations are taken before squares
    and all sums are in float64, so nearly uniform attention loses nothing to cancellation.

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
    >>> from geoattn.training.variance import attention_variance, streamed_variance
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
        raise GeoattnError(f"mask must be a boolean or float tensor; got {_what(mask)}.")
    if valid_keys is None and valid is not None and n == m:
        valid_keys = valid
    wanted = Mask(None if mask is None else _four(mask), 0 if causal else None)
    variance, leaks = _stream(query, key, 1 / math.sqrt(d) if scale is None else scale, wanted, valid, valid_keys)
    if leaks:
        raise GeoattnError(
            "valid_keys hides tokens that the mask lets queries see, so rows do not sum to one; give the mask too."
        )
    return variance


def call_variance(call: Call) -> Float[Tensor, "b h"]:
    """Variance of each map of a captured call, with gradients to the model: streamed where queries and keys are kept.

    Entries are those that the mask of the call allows between real tokens. Where the model made its maps itself the
    mask is not known: an entry that is exactly 0 in all heads of a sample counts as masked.
    """
    kept = call._read()
    if call.route == "sdpa" and kept.weights is None and kept.versions == versions(kept.query, kept.key):
        bias = kept.mask.entries
        if bias is None or not bias.requires_grad:  # a trained bias gets its gradient from the map
            query, key, _ = kept.operands()
            if _unmasked(kept):
                return _stream(query, key, kept.scale, kept.mask, None, None)[0]
            variance, leaks = _stream(query, key, kept.scale, kept.mask, call.valid, call.valid_keys)
            if not leaks:
                return variance
    weights = call.attention()
    real = call.valid[:, None, :, None] & call.valid_keys[:, None, None, :]
    if kept.weights is None:
        allowed = allowed_entries(kept.mask, *call.shape[2:])
        return attention_variance(weights, real if allowed is None else real & allowed.to(real.device))
    seen = (weights.detach() != 0).any(dim=1, keepdim=True)
    return attention_variance(weights, real & seen)


def record_variances(calls: list[Call]) -> Tensor | list[Tensor]:
    """`call_variance` of each call, (b, h): short calls of one shape without masks go together.

    One tensor (calls, b, h) where that holds for all of them, as for the layers of a small model.
    """
    groups: dict[Any, list[int]] = {}
    operands: dict[int, tuple[Tensor, Tensor]] = {}
    for i, call in enumerate(calls):
        kept = call._read()
        if call.route != "sdpa" or kept.weights is not None or not _unmasked(kept):
            continue
        if kept.versions != versions(kept.query, kept.key):
            continue
        query, key, _ = kept.operands()
        if _is_short(query, key):
            operands[i] = query, key
            about = (query.shape, key.shape, query.dtype, key.dtype, query.device, kept.scale)
            groups.setdefault(about, []).append(i)
    found: dict[int, Tensor] = {}
    with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
        for about, members in groups.items():
            values = short_variances([operands[i][0] for i in members], [operands[i][1] for i in members], about[-1])
            if len(members) == len(calls):
                return values
            found.update(zip(members, values.unbind(), strict=True))
    return [found[i] if i in found else call_variance(call) for i, call in enumerate(calls)]


def glimpsed_variances(calls: list[Glimpse]) -> Tensor | None:
    """Variances (calls, b, h) of short calls of one kind, without reading the rest of them; None for others.

    Of calls that were dealt with early, slopes are no larger than queries and keys, however many there are.
    """
    query, key, scale = calls[0].query, calls[0].key, calls[0].scale
    shape, dtype, device = query.shape, query.dtype, query.device
    for call in calls:
        x = call.query  # and keys of the same shape
        if x.shape != shape or x.dtype != dtype or x.device != device or call.key.dtype != dtype or call.scale != scale:
            return None
    early = [call.early for call in calls]
    if None in early:
        if not _is_short(query, key):
            return None
        early = None
    with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
        return short_variances([call.query for call in calls], [call.key for call in calls], scale, early)


def _unmasked(kept: Any) -> bool:
    """Whether every entry of the call counts, for all that is known of it."""
    return kept.mask == Mask() and kept.key_mask is None and kept.query_mask is None and kept.partner is None


def _is_short(query: Any, key: Any) -> bool:
    """Rows that are short, of heads with keys of their own, few enough to be held at once in float64."""
    few = query.shape[:3].numel() * key.shape[2] <= _BLOCK_BYTES // 8
    return query.shape[:2] == key.shape[:2] and key.shape[2] <= _SHORT and few


def _stream(query: Any, key: Any, scale: float, mask: Mask, valid: Any, valid_keys: Any) -> tuple[Any, bool]:
    """The variances, and whether real rows give weight to keys that are no tokens (then they mean nothing)."""
    rows = None if valid is None or bool(valid.all()) else valid
    keys = None if valid_keys is None or bool(valid_keys.all()) else valid_keys
    leaks: list[bool] = []
    with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
        if rows is None and keys is None and mask == (None, None) and _is_short(query, key):
            return short_variances([query], [key], scale)[0], False
        return _Streamed.apply(query, key, scale, mask, rows, keys, leaks), any(leaks)


class _Streamed(torch.autograd.Function):
    """Variances of all maps; the gradient for an upstream gradient of one per map is computed along with them."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, scale: float, mask: Mask, rows: Any, keys: Any, leaks: list[bool]):
        b, h, n, _ = query.shape
        m, device, wide, stored = key.shape[2], query.device, wide_dtype(query.device), narrow_dtype(query.dtype)
        group = h // key.shape[1]
        grads = any(ctx.needs_input_grad[:2])
        step = max(1, _BLOCK_BYTES // (8 * b * h * m))
        blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        everything = rows is None and keys is None and mask == (None, None)
        total, mean = (n * m, 1 / m) if everything else _count(mask, rows, keys, blocks, m, device)
        spread = torch.zeros(b, h, dtype=wide, device=device)
        k = key.to(wide).repeat_interleave(group, 1) if group > 1 else key.to(wide)
        to_query = torch.empty(query.shape, dtype=stored, device=device) if grads else None
        to_key = torch.zeros_like(k) if grads else None
        for block in blocks:
            q = query[:, :, block].to(wide) * scale
            logits = q @ k.mT
            if mask.entries is not None and mask.entries.dtype != torch.bool:
                logits = logits + _cut(mask.entries, block).to(wide)
            if everything:
                weights = logits.softmax(-1)
                deviation = weights - 1 / m
                squares = deviation.square().sum(-1, keepdim=True)
            else:
                support = _support(mask, block, m, device)
                entries = _entries(support, rows, keys, block, m, device)
                if keys is not None and _leaks(support, rows, keys, block):
                    leaks.append(True)
                    return spread.to(stored)
                count = entries.sum(-1, keepdim=True)
                # Rows without entries get finite logits: 0 times infinity would be NaN.
                weights = logits.masked_fill(~entries & (count > 0), -torch.inf).softmax(-1).masked_fill(~entries, 0.0)
                share = 1 / count.clamp_min(1).to(wide)
                deviation = (weights - share).masked_fill(~entries, 0.0)
                squares = deviation.square().sum(-1, keepdim=True)
                spread += (count * (share - mean).square()).sum(dim=(-2, -1))  # between rows of unequal length
            spread += squares.sum(dim=(-2, -1))
            if to_query is not None and to_key is not None:
                slope = weights * (deviation - squares)
                to_query[:, :, block] = scale * (slope @ k)
                to_key += slope.mT @ q
        if to_query is not None and to_key is not None:
            per_map = torch.as_tensor(2 / total, device=device, dtype=wide).nan_to_num(posinf=0.0).expand(b, h)
            ctx.save_for_backward(to_query, to_key.to(stored), per_map)
            ctx.group, ctx.dtypes = group, (query.dtype, key.dtype)
        return (spread / total).to(stored)

    @staticmethod
    def backward(ctx: Any, *upstream: Any):
        refuse_second_derivative()
        to_query, to_key, per_map = ctx.saved_tensors
        g = (upstream[0] * per_map)[..., None, None]
        query, key = g * to_query, g * to_key
        if ctx.group > 1:  # heads that share their keys
            key = key.unflatten(1, (-1, ctx.group)).sum(2)
        return query.to(ctx.dtypes[0]), key.to(ctx.dtypes[1]), *([None] * 5)


def _support(mask: Mask, rows: slice, m: int, device: Any) -> Any:
    """Where the mask lets these rows look, (b or 1, h or 1, rows, m); None: everywhere."""
    allowed = None
    if mask.entries is not None:
        entries = _cut(mask.entries, rows)
        allowed = entries if entries.dtype == torch.bool else entries.detach() > BLOCKED
    if mask.diagonal is not None:
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        future = torch.arange(m, device=device) > row + mask.diagonal
        allowed = ~future[None, None] if allowed is None else allowed & ~future
    return allowed


def _entries(support: Any, valid: Any, valid_keys: Any, rows: slice, m: int, device: Any) -> Any:
    """The entries among these rows: allowed, and between real tokens."""
    entries = torch.ones(1, 1, rows.stop - rows.start, m, dtype=torch.bool, device=device)
    for part in (
        support,
        None if valid is None else valid[:, None, rows, None],
        None if valid_keys is None else valid_keys[:, None, None, :],
    ):
        entries = entries if part is None else entries & part
    return entries


def _leaks(support: Any, valid: Any, valid_keys: Any, rows: slice) -> bool:
    """True when a real row may look at a key that is no token: its weights on tokens do not sum to one."""
    hidden = ~valid_keys[:, None, None, :]
    seen = hidden if support is None else support & hidden
    return bool((seen if valid is None else seen & valid[:, None, rows, None]).any())


def _count(mask: Mask, valid: Any, valid_keys: Any, blocks: list[slice], m: int, device: Any) -> tuple[Any, Any]:
    """Number of entries N of each map, and their mean M / N, for M rows that have entries."""
    total = rows = torch.zeros((), device=device, dtype=torch.int64)
    for block in blocks:
        count = _entries(_support(mask, block, m, device), valid, valid_keys, block, m, device).sum(-1)
        total, rows = total + count.sum(-1), rows + (count > 0).sum(-1)
    wide = wide_dtype(device)
    return total.to(wide), rows[..., None, None].to(wide) / total[..., None, None].to(wide)


def _cut(entries: Any, rows: slice) -> Any:
    return entries[:, :, rows] if entries.shape[2] > 1 else entries


def _four(mask: Tensor) -> Tensor:
    return mask.reshape(*((1,) * (4 - mask.ndim)), *mask.shape) if mask.ndim < 4 else mask


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, shape {tuple(value.shape)}"
    return type(value).__name__
