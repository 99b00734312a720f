"""From a sighting to a call: axes in order, the cheaper of the two things that can be kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch import Tensor

from geoattn.capture.call import Call, Probe
from geoattn.capture.context import Context
from geoattn.capture.kept import Kept, versions
from geoattn.capture.layout import lead_axes, spread_mask, to_four
from geoattn.capture.maps import Mask
from geoattn.capture.sightings import Sighting

__all__ = ["read_sighting", "reads_a_cache", "versions_of"]


def read_sighting(
    sighting: Sighting, seen: tuple[int | None, ...], index: int, visit: int, before: Call | None
) -> Call:
    """The call. ``seen`` are the versions of its tensors when it was seen, ``before`` is the last self-attention
    (it knows which queries of cross-attention are real).
    """
    context = sighting.context
    subject = sighting.query if sighting.weights is None else sighting.weights
    lead, n = tuple(subject.shape[:-2]), subject.shape[-2]
    m = sighting.key.shape[-2] if sighting.weights is None else subject.shape[-1]
    b, h = lead_axes(lead, context.heads, context.batch)
    kept = Kept.of(
        query=_four(sighting.query, b, h),
        key=_four(sighting.key, b, h),
        value=_four(sighting.value, b, h),
        weights=_four(sighting.weights, b, h),
        scale=_scale(sighting),
        cast=sighting.cast,
        mask=_mask(sighting, lead, b, h),
        partner=_partner(context, before, b, n),
        key_mask=_fitting(context.key_mask, b, m),
        query_mask=_fitting(context.query_mask, b, n),
        tokens=context.tokens,
        source=context.source,
        appended=context.appended,
    )
    if versions_of(sighting) != seen:
        kept = replace(kept, versions=())  # changed since: an error for who asks for the map
    elif reads_a_cache(sighting):
        kept = _keep_cached(kept, h * n * m, context.kind)
    probe = None if sighting.probe is None else Probe(*sighting.probe, dropout=sighting.dropout)
    return Call(
        name=context.name,
        kind="cross" if context.kind == "cross" else "self",
        route="sdpa" if sighting.weights is None else "softmax",
        shape=(b, h, n, m),
        index=index,
        visit=visit,
        kept=kept,
        probe=probe if visit == 0 else None,
    )


def versions_of(sighting: Sighting) -> tuple[int | None, ...]:
    """Versions of the tensors that the map is made from."""
    return versions(sighting.query, sighting.key) if sighting.weights is None else versions(sighting.weights)


def reads_a_cache(sighting: Sighting) -> bool:
    """True when the keys may be those of a cache, which a later step may overwrite."""
    query, key = sighting.query, sighting.key
    if sighting.weights is not None or query.shape[-2] >= key.shape[-2]:
        return False
    return not (query.requires_grad or key.requires_grad)


def _four(x: Any, batch: int, heads: int) -> Any:
    return None if x is None else to_four(x, batch, heads)


def _scale(sighting: Sighting) -> float:
    if sighting.weights is not None:
        return 1.0
    return 1 / math.sqrt(sighting.query.shape[-1]) if sighting.scale is None else float(sighting.scale)


def _mask(sighting: Sighting, lead: tuple[int, ...], batch: int, heads: int) -> Mask:
    entries = None if sighting.mask is None else spread_mask(sighting.mask, lead, batch, heads)
    return Mask(entries, 0 if sighting.causal else None)


def _partner(context: Context, before: Call | None, batch: int, n: int) -> Mask | None:
    """The mask of the self-attention before, when it stands in the same decoder and has the same queries."""
    if context.kind != "cross" or before is None or before.kept is None or before.kept.key_mask is not None:
        return None
    near = context.name.rsplit(".", 2)[0]  # the layer, or what holds the layers
    if before.name == context.name or not before.name.startswith(near + "."):
        return None
    return before.kept.mask if (before.shape[0], *before.shape[2:]) == (batch, n, n) else None


def _fitting(mask: Any, batch: int, length: int) -> Tensor | None:
    return mask if mask is not None and tuple(mask.shape) == (batch, length) else None


def _keep_cached(kept: Kept, size: int, kind: str) -> Kept:
    """Behind a cache: rows of the map where they are smaller than the keys, else a copy of the keys."""
    if kept.value is None and size <= kept.query.numel() + kept.key.numel():
        everything = slice(None)
        weights = kept.build(everything, everything, everything, "")
        return replace(kept, weights=weights, query=None, key=None, versions=versions(weights))
    if kind == "cross":
        return kept
    key = kept.key.clone()
    return replace(kept, key=key, versions=versions(kept.query, key))
