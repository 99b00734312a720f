"""Attention calls that an intervention changes while the model runs.

A change has ``logits(scores)``, ``weights(weights)`` and ``options(query, key, options)``, as
`geoattn.training.Intervention` describes them. What is recorded are the changed logits, and the weights before
anything is dropped. torch.compile traces this code.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import torch
from torch.nn import functional

from geoattn.attention.followed_tensors import Derived
from geoattn.attention.function_kinds import softmax_axis
from geoattn.attention.products import Product

__all__ = ["changed_attention", "changed_softmax"]


@no_type_check
def changed_attention(active: Any, recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """scaled_dot_product_attention with all changes: fused where they allow it, else step by step."""
    query, key, value, options = _read(*args, **kwargs)
    for change in active:
        change.count()
        if options is not None:
            options = change.options(query, key, options)
    if options is not None:
        out = func(query, key, value, **options)
        recorder.fused((query, key, value), options, out)
        return out
    _, _, _, options = _read(*args, **kwargs)
    scores = _scores(query, key, options)
    if options["enable_gqa"]:
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    for change in active:
        scores = change.logits(scores)
    weights = dropped = torch.softmax(scores, -1)
    for change in active:
        dropped = change.weights(dropped)
    out = torch.matmul(functional.dropout(dropped, options["dropout_p"]), value)
    changed = dropped is not weights or options["dropout_p"] > 0
    derived = Derived(weights, weights, -1, None, changed, False, 0)
    recorder.weighted(scores, Product(weights, value, out, value.stride()[:-2]), (query, key), derived)
    return out


@no_type_check
def changed_softmax(active: Any, recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A softmax of scores with all changes."""
    tracker = recorder.tracker
    argument = args[0] if args else kwargs["input"]
    scores = argument
    for change in active:
        change.count()
        scores = change.logits(scores)
    if args:
        args = (scores, *args[1:])
    else:
        kwargs = {**kwargs, "input": scores}
    out = func(*args, **kwargs)
    axis = softmax_axis(func, args, kwargs, out)
    tracker.rename_score(argument, scores)
    recorder.softmax(scores, out, axis)
    dropped = out
    for change in active:
        dropped = change.weights(dropped)
    if dropped is not out:
        tracker.drop(out, dropped)
    return dropped


@no_type_check
def _read(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """Operands and options of scaled_dot_product_attention."""
    options = {
        "attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale,
        "enable_gqa": enable_gqa,
    }  # fmt: skip
    return query, key, value, options


@no_type_check
def _scores(query: Any, key: Any, options: Any) -> Any:
    """The logits of scaled_dot_product_attention, with its mask."""
    scale, mask = options["scale"], options["attn_mask"]
    if options["enable_gqa"]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = torch.matmul(query, key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if options["is_causal"]:
        n, m = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(1), -torch.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
