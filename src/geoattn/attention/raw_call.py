"""One attention call as it was seen, and the call of a record that is made from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.axes import Lead, broadcast_lead, lead_axes, spread_mask, to_four
from geoattn.attention.call import Call, Probe
from geoattn.attention.masks import Mask, masked_softmax
from geoattn.attention.module_context import Context
from geoattn.attention.padding import is_token_mask
from geoattn.attention.stored import StoredTensors, versions

__all__ = [
    "RawCall", "autocast_dtype", "first_head", "keep_rows", "read_call", "reads_a_cache", "shape_of", "steps_of",
    "versions_of",
]  # fmt: skip

_NAMES = ("query", "key", "weights", "mask", "value", "key_mask", "query_mask", "tokens", "source")


class RawCall(NamedTuple):
    """One attention call: its tensors as they came, and what the modules around it say.

    Either ``weights`` (..., n, m), or ``query`` (..., n, d) and ``key`` (..., m, d). ``diagonal`` k hides keys
    j > i + k from query i. ``grouped``: query heads share keys in groups. ``merge`` is (heads, whether they are
    outer) of batch and heads in one axis, if it was seen how they got there; ``steps`` are the strides of the axes in
    front. ``peaks`` (..., m) are the highest
    scores of each key. ``probe`` is (value (m, d), output (n, d)) of the first head of the first sample.
    ``cast`` is the dtype that autocast gives to queries, keys and masks. ``part`` counts the calls of one run of the
    module. ``sink`` is the number of columns that the model cut off after the softmax. ``inputs``: inputs were
    asked for. ``random``: the model applied a random mask to the weights itself. ``rows`` is the map (..., n, m) in the
    place of queries and keys, see `keep_rows`. ``cached`` is (keys, values, their number m) of a cache that grows, in
    the place of ``key``; see `geoattn.attention.growing_cache`.
    """

    context: Context
    weights: Any = None
    query: Any = None
    key: Any = None
    value: Any = None
    mask: Any = None
    diagonal: Any = None
    scale: float = 1.0
    grouped: bool = False
    merge: Any = None
    steps: Any = None
    peaks: Any = None
    cast: Any = None
    dropout: bool = False
    probe: Any = None
    part: int = 0
    sink: int = 0
    inputs: bool = False
    random: bool = False
    rows: Any = None
    cached: Any = None


def read_call(raw: RawCall, seen: tuple[int | None, ...], index: int, visit: int, before: Call | None) -> Call:
    """The call. ``seen`` are the versions of its tensors when it was seen, ``before`` is the last self-attention
    (it knows which queries of cross-attention are real).
    """
    context = raw.context
    names = [name for name, part in zip(_NAMES, _parts(raw), strict=True) if part is not None]
    pairs = zip(names, seen, versions_of(raw), strict=True)
    changed = frozenset(name for name, before, after in pairs if before != after)
    if raw.cached is not None:
        changed = changed if raw.cached[0].is_intact() else changed | {"key"}
        raw = _read_cache(raw)
    query, key, weights = raw.query, raw.key, raw.weights if raw.rows is None else raw.rows
    if weights is None:
        query, key = broadcast_lead(query, key, raw.grouped)
    subject = query if weights is None else weights
    axes, n = tuple(subject.shape[:-2]), subject.shape[-2]
    m = key.shape[-2] if weights is None else subject.shape[-1]
    lead = lead_axes(axes, context.heads, context.batch, raw.merge, raw.steps)
    if raw.grouped and len(axes) == 1:
        lead = Lead(1, axes[0])
    b, h = lead.batch, lead.heads
    query_mask = _fitting(context.query_mask, b, n)
    if context.kind == "cross" and query_mask is None:
        try:
            query_mask = _known_queries(context, before, b, n)
        except GeoattnError:
            changed |= {"query_mask"}
    stored = StoredTensors.of(
        changed,
        query=_four(query, lead),
        key=_four(key, lead),
        value=_four(raw.value, lead),
        weights=_four(weights, lead),
        fused=raw.weights is None,
        scale=raw.scale,
        cast=raw.cast if weights is None and query.dtype != torch.float64 else None,
        mask=_mask(raw, axes, lead),
        key_mask=_fitting(context.key_mask, b, m),
        query_mask=query_mask,
        peaks=_peaks(raw.peaks, lead, m),
        tokens=context.tokens,
        source=context.source,
        inputs=raw.inputs,
        random=raw.random,
        appended=context.appended,
        length=context.length,
        whole=context.whole,
    )
    if not changed and reads_a_cache(raw):
        stored = _keep_cached(stored, context.kind)
    return Call(
        name=context.name,
        kind=context.kind,
        route="sdpa" if raw.weights is None else "softmax",
        shape=(b, h, n, m),
        index=index,
        visit=visit,
        part=raw.part,
        sink=raw.sink,
        stored=stored,
        probe=raw.probe and Probe(*raw.probe),
    )


def versions_of(raw: RawCall) -> tuple[int | None, ...]:
    """Versions of the tensors of the call."""
    return versions(*[part for part in _parts(raw) if part is not None])


def shape_of(raw: RawCall) -> tuple[int, ...]:
    """Shape of the map of a fused call, with the axes as they came."""
    if raw.rows is not None:
        return tuple(raw.rows.shape)
    return (*raw.query.shape[:-1], raw.key.shape[-2] if raw.cached is None else raw.cached[2])


def _parts(raw: RawCall) -> tuple[Any, ...]:
    """Tensors of the call, in the order of _NAMES. Queries behind a map of the model's own are not needed for it."""
    own, weights = raw.context, raw.weights
    query, key = (raw.query, raw.key) if weights is None else (None, None)
    return (
        query, key, weights, raw.mask, raw.value, own.key_mask, own.query_mask, own.tokens, own.source
    )  # fmt: skip


def reads_a_cache(raw: RawCall) -> bool:
    """True when the keys may be those of a cache, which a later step may overwrite."""
    query, key = raw.query, raw.key
    if raw.weights is not None or raw.rows is not None or raw.cached is not None or query.shape[-2] >= key.shape[-2]:
        return False
    return not (query.requires_grad or key.requires_grad)


def _four(x: Any, lead: Lead) -> Any:
    return None if x is None else to_four(x, lead)


def _mask(raw: RawCall, axes: tuple[int, ...], lead: Lead) -> Mask:
    entries = None if raw.mask is None else spread_mask(raw.mask, axes, lead)
    return Mask(entries, raw.diagonal)


def _peaks(peaks: Any, lead: Lead, m: int) -> Any:
    """(batch, heads, m), unless weights were cut or joined since."""
    if peaks is None or peaks.shape[-1] != m or peaks.numel() != lead.batch * lead.heads * m:
        return None
    return to_four(peaks.unsqueeze(-2), lead)[:, :, 0]


def _known_queries(context: Context, before: Call | None, batch: int, n: int) -> Tensor | None:
    """What the self-attention before knows of the queries, when it stands in the same decoder and has as many."""
    if before is None or before.stored is None or (before.shape[0], before.shape[2]) != (batch, n):
        return None
    near = context.name.rsplit(".", 2)[0]  # the layer, or what holds the layers
    if before.name == context.name or not before.name.startswith(near + "."):
        return None
    return before.valid


def _fitting(mask: Any, batch: int, length: int) -> Tensor | None:
    return mask if mask is not None and is_token_mask(mask, batch, length) else None


def keep_rows(raw: RawCall, value: Any, out: Any) -> RawCall:
    """Behind a cache: the map in the place of queries and keys, where it is smaller; the call as it is elsewhere.

    The keys of each step hold those of all steps before. What the self-check needs of them is computed at once, from
    ``value`` (m, d) and ``out`` (n, d) of the first head of the first sample, if they are known.
    """
    query, key = raw.query, raw.key
    groups = query.shape[-3] // key.shape[-3] if raw.grouped and query.ndim == 4 else 1
    size = query.shape[:-1].numel() * key.shape[-2]
    if raw.inputs or raw.diagonal is not None or raw.cast is not None or size > query.numel() + key.numel():
        return raw
    if query.ndim != key.ndim or (groups == 1 and query.shape[:-2] != key.shape[:-2]):
        return raw
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    n, m = query.shape[-2], key.shape[-2]
    query = query * raw.scale
    if groups > 1:
        query = query.reshape(*key.shape[:2], groups * n, query.shape[-1])
    logits = torch.matmul(query, key.transpose(-1, -2)).reshape(*raw.query.shape[:-1], m)
    rows = logits.softmax(-1) if raw.mask is None else masked_softmax(logits, raw.mask)
    probe = None
    if not raw.dropout and value is not None:
        value, out = value.to(rows.dtype), out.to(rows.dtype)
        first = rows[(0,) * (rows.ndim - 2)]
        error = torch.addmm(out, first, value, alpha=-1), torch.linalg.vector_norm(value, torch.inf)
        probe = (None, None, None, False, error)
    return raw._replace(rows=rows, query=None, key=None, probe=probe)


def _read_cache(raw: RawCall) -> RawCall:
    """The same with keys or a map of its own, in the place of those in a cache that goes on growing."""
    keys, values, length = raw.cached
    value, out = None, None
    if raw.probe is not None:
        value, out = values.first(length), raw.probe[1]
        value = first_head(value) if values.is_intact() else None
    read = keep_rows(raw._replace(key=keys.first(length), probe=None, cached=None), value, out)
    return read if read.rows is not None or value is None else read._replace(probe=(value.clone(), out, None, False))


def first_head(x: Tensor) -> Tensor:
    """What (..., n, d) has for the first head of the first sample."""
    return x.detach()[(0,) * (x.ndim - 2)]


def _keep_cached(stored: StoredTensors, kind: str) -> StoredTensors:
    """Behind a cache, where the map is no smaller: a copy of the keys."""
    if kind == "cross":
        return stored
    key = stored.key.clone()
    return replace(stored, key=key, versions=versions(stored.query, key))


@no_type_check
def steps_of(*tensors: Any) -> Any:
    """Strides of the axes in front, of the first tensor with the most axes in which none is shared."""
    ndim = max([tensor.ndim for tensor in tensors])
    for tensor in tensors:
        steps = tensor.stride()[:-2]
        if tensor.ndim == ndim and 0 not in steps:
            return steps
    return None


@no_type_check
def autocast_dtype(x: Any) -> Any:
    """The dtype that autocast gives to operands on the device of x, None where it is off."""
    if not torch.compiler.is_compiling() and not torch._C._is_any_autocast_enabled():  # one quick test
        return None
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
