"""From a sighting to a call: axes in order, the cheaper of the two things that can be kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from geoattn.capture.call import Call, Probe
from geoattn.capture.context import Context
from geoattn.capture.kept import Kept, versions
from geoattn.capture.layout import Lead, broadcast_lead, lead_axes, spread_mask, to_four
from geoattn.capture.maps import Mask
from geoattn.capture.padding import is_token_mask
from geoattn.capture.sighting import Sighting
from geoattn.errors import GeoattnError

__all__ = ["read_sighting", "reads_a_cache", "versions_of"]

_NAMES = ("query", "key", "weights", "mask", "value", "key_mask", "query_mask", "tokens", "source")


def read_sighting(
    sighting: Sighting, seen: tuple[int | None, ...], index: int, visit: int, before: Call | None
) -> Call:
    """The call. ``seen`` are the versions of its tensors when it was seen, ``before`` is the last self-attention
    (it knows which queries of cross-attention are real).
    """
    if _is_plain(sighting, seen):
        return _read_plain(sighting, seen, index, visit)
    context = sighting.context
    names = [name for name, part in zip(_NAMES, _parts(sighting), strict=True) if part is not None]
    pairs = zip(names, seen, versions_of(sighting), strict=True)
    changed = frozenset(name for name, before, after in pairs if before != after)
    query, key = sighting.query, sighting.key
    if sighting.weights is None:
        query, key = broadcast_lead(query, key, sighting.grouped)
    subject = query if sighting.weights is None else sighting.weights
    axes, n = tuple(subject.shape[:-2]), subject.shape[-2]
    m = key.shape[-2] if sighting.weights is None else subject.shape[-1]
    lead = lead_axes(axes, context.heads, context.batch, sighting.merge)
    if sighting.grouped and len(axes) == 1:
        lead = Lead(1, axes[0])
    b, h = lead.batch, lead.heads
    query_mask = _fitting(context.query_mask, b, n)
    if context.kind == "cross" and query_mask is None:
        try:
            query_mask = _known_queries(context, before, b, n)
        except GeoattnError:
            changed |= {"query_mask"}
    kept = Kept.of(
        changed,
        query=_four(query, lead),
        key=_four(key, lead),
        value=_four(sighting.value, lead),
        weights=_four(sighting.weights, lead),
        fused=sighting.weights is None,
        scale=_scale(sighting),
        cast=sighting.cast if sighting.weights is None and query.dtype != torch.float64 else None,
        mask=_mask(sighting, axes, lead),
        key_mask=_fitting(context.key_mask, b, m),
        query_mask=query_mask,
        peaks=_peaks(sighting.peaks, lead, m),
        tokens=context.tokens,
        source=context.source,
        appended=context.appended,
        length=context.length,
        whole=context.whole,
    )
    if not changed and reads_a_cache(sighting):
        kept = _keep_cached(kept, h * n * m, context.kind)
    return Call(
        name=context.name,
        kind="cross" if context.kind == "cross" else "self",
        route="sdpa" if sighting.weights is None else "softmax",
        shape=(b, h, n, m),
        index=index,
        visit=visit,
        kept=kept,
        probe=_probe(sighting, visit),
    )


def _is_plain(sighting: Sighting, seen: tuple[int | None, ...]) -> bool:
    """Fused self-attention of (batch, heads, n, d) with nothing beside queries and keys, as in vision models."""
    context, query, key = sighting.context, sighting.query, sighting.key
    if not context.whole or sighting.weights is not None or sighting.mask is not None or sighting.value is not None:
        return False
    if context.kind != "self" or query.ndim != 4 or query.shape != key.shape or query.dtype == torch.float64:
        return False
    if context.heads != context.batch and query.shape[:2] == (context.heads, context.batch):
        return False  # heads first
    return seen == versions(query, key)


def _read_plain(sighting: Sighting, seen: tuple[int | None, ...], index: int, visit: int) -> Call:
    """What the long way gives, in a third of its time: a regulariser reads every layer at every step."""
    query, context = sighting.query, sighting.context
    b, h, n, _ = query.shape
    kept = Kept(
        query=query, key=sighting.key, scale=_scale(sighting), cast=sighting.cast, fused=True,
        mask=Mask(None, sighting.diagonal), appended=context.appended, length=context.length, whole=True,
        versions=seen, others={"mask": None},
    )  # fmt: skip
    return Call(context.name, "self", "sdpa", (b, h, n, n), index, visit, kept=kept, probe=_probe(sighting, visit))


def _probe(sighting: Sighting, visit: int) -> Probe | None:
    return Probe(*sighting.probe, dropout=sighting.dropout) if visit == 0 and sighting.probe is not None else None


def versions_of(sighting: Sighting) -> tuple[int | None, ...]:
    """Versions of the tensors of the call."""
    context = sighting.context
    if sighting.weights is None and sighting.mask is None and sighting.value is None and context.whole:
        return versions(sighting.query, sighting.key)  # the rest is None: the short way of vision models
    return versions(*[part for part in _parts(sighting) if part is not None])


def _parts(sighting: Sighting) -> tuple[Any, ...]:
    """Tensors of the call, in the order of _NAMES. Queries behind a map of the model's own are not needed for it."""
    own, weights = sighting.context, sighting.weights
    query, key = (sighting.query, sighting.key) if weights is None else (None, None)
    return (
        query, key, weights, sighting.mask, sighting.value, own.key_mask, own.query_mask, own.tokens, own.source
    )  # fmt: skip


def reads_a_cache(sighting: Sighting) -> bool:
    """True when the keys may be those of a cache, which a later step may overwrite."""
    query, key = sighting.query, sighting.key
    if sighting.weights is not None or query.shape[-2] >= key.shape[-2]:
        return False
    return not (query.requires_grad or key.requires_grad)


def _four(x: Any, lead: Lead) -> Any:
    return None if x is None else to_four(x, lead)


def _scale(sighting: Sighting) -> float:
    if sighting.weights is not None:
        return 1.0
    return 1 / math.sqrt(sighting.query.shape[-1]) if sighting.scale is None else float(sighting.scale)


def _mask(sighting: Sighting, axes: tuple[int, ...], lead: Lead) -> Mask:
    entries = None if sighting.mask is None else spread_mask(sighting.mask, axes, lead)
    return Mask(entries, sighting.diagonal)


def _peaks(peaks: Any, lead: Lead, m: int) -> Any:
    """(batch, heads, m), unless weights were cut or joined since."""
    if peaks is None or peaks.shape[-1] != m or peaks.numel() != lead.batch * lead.heads * m:
        return None
    return to_four(peaks.unsqueeze(-2), lead)[:, :, 0]


def _known_queries(context: Context, before: Call | None, batch: int, n: int) -> Tensor | None:
    """What the self-attention before knows of the queries, when it stands in the same decoder and has as many."""
    if before is None or before.kept is None or (before.shape[0], before.shape[2]) != (batch, n):
        return None
    near = context.name.rsplit(".", 2)[0]  # the layer, or what holds the layers
    if before.name == context.name or not before.name.startswith(near + "."):
        return None
    return before.valid


def _fitting(mask: Any, batch: int, length: int) -> Tensor | None:
    return mask if mask is not None and is_token_mask(mask, batch, length) else None


def _keep_cached(kept: Kept, size: int, kind: str) -> Kept:
    """Behind a cache: rows of the map where they are smaller than the keys, else a copy of the keys."""
    if kept.value is None and size <= kept.query.numel() + kept.key.numel():
        everything = slice(None)
        weights = kept.build(everything, everything, everything, "")
        return replace(kept, weights=weights, query=None, key=None, versions=versions(weights), cast=None)
    if kind == "cross":
        return kept
    key = kept.key.clone()
    return replace(kept, key=key, versions=versions(kept.query, key))
