"""What the running modules say of an attention call inside them: its name, kind, padding and tokens.

Traced by torch.compile: plain loops, and no look at the values of tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

from geoattn.capture.frames import Frame

__all__ = ["Context", "describe", "describe_only_tokens"]

_SOURCES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "context", "memory")
_TORCH = (("query", 0), ("key", 1), ("value", 2))  # nn.MultiheadAttention and its likes


class Context(NamedTuple):
    """What is known of an attention call beside its own tensors.

    ``key_mask`` (batch, m) and ``query_mask`` (batch, n) are the model's own 2-D masks, non-zero for real
    tokens. ``tokens`` (batch, n, width) are the inputs of the module, ``source`` (batch, m, width) those of
    another sequence that the keys come from. ``batch`` is the size of the batch of the tokens, ``heads`` what
    the module calls its number of heads. ``appended``: keys beyond the n-th are extra ones of torch, at the end.
    ``length`` is the number of tokens that the module was given, None when not known. ``whole``: no module around
    was given anything but one tensor of numbers, so nothing can say that a token is padding.
    """

    name: str
    kind: str
    heads: int | None
    batch: int | None
    appended: bool
    key_mask: Any
    query_mask: Any
    tokens: Any
    source: Any
    length: int | None = None
    whole: bool = False


@no_type_check
def describe(frames: list[Frame], n: int, m: int, with_inputs: bool) -> Context:
    """What the frames say of a call with n queries and m keys. O(modules around it)."""
    frame = frames[-1]
    if not with_inputs and n == m and frame.only_tokens:  # the way of nearly all vision models, kept short
        return describe_only_tokens(frame.name, frame.heads, frame.batch_first, frame.args[0].shape, n)
    tokens = None
    for i in range(len(frames) - 1, max(-1, len(frames) - 4), -1):
        tokens = _first_tokens(frames[i], n)
        if tokens is not None:
            break
    batch = None if tokens is None else tokens.shape[0]
    appended = frame.spots[:3] == _TORCH
    source = _source(frame, tokens, n, m)
    if source is not None or n > m:
        kind = "cross"
        key_mask = _token_mask(frames, "encoder_attention_mask", batch, m)
        query_mask = _token_mask(frames, "attention_mask", batch, n)
    else:
        kind = "self"
        key_mask = query_mask = _token_mask(frames, "attention_mask", batch, m)
    length = _token_count(frame)
    if not with_inputs:
        tokens = source = None
    return Context(
        frame.name, kind, frame.heads, batch, appended, key_mask, query_mask, tokens, source, length, frame.only_tokens
    )  # fmt: skip


@no_type_check
def describe_only_tokens(name: str, heads: int | None, batch_first: bool, tokens: Any, n: int) -> Context:
    """Self-attention of n tokens in a module that was given tokens of this shape, and nothing else."""
    length = tokens[1 if batch_first else 0] if len(tokens) == 3 else None
    batch = tokens[0 if batch_first else 1] if length == n else None
    return Context(name, "self", heads, batch, False, None, None, None, None, length, True)


@no_type_check
def _token_count(frame: Frame):
    """Number of tokens in the first floating-point argument, None when that is no (batch, n, width)."""
    for value in (*frame.args, *frame.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.shape[1 if frame.batch_first else 0] if value.ndim == 3 else None
    return None


@no_type_check
def _argument(frame: Frame, key: str):
    """(given, value) of an argument of the running forward."""
    if key in frame.kwargs:
        return True, frame.kwargs[key]
    for name, i in frame.spots[: len(frame.args)]:
        if name == key:
            return True, frame.args[i]
    return False, None


@no_type_check
def _first_tokens(frame: Frame, n: int):
    """The first floating-point argument if it has shape (batch, n, width), else None."""
    for value in (*frame.args, *frame.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            if value.ndim == 2 and value.shape[0] == n and frame.spots[:3] == _TORCH:
                return value.unsqueeze(0)
            if value.ndim != 3:
                return None
            if not frame.batch_first:
                value = value.transpose(0, 1)
            return value if value.shape[1] == n else None
    return None


@no_type_check
def _source(frame: Frame, tokens, n: int, m: int):
    """Tokens (batch, m, width) of another sequence that the keys come from; None for self-attention."""
    for key, value in frame.kwargs.items():
        if key in _SOURCES and isinstance(value, Tensor):
            return None if tokens is not None and _same(value, tokens) else value
    for name, i in frame.spots[: len(frame.args)]:
        if name in _SOURCES and isinstance(frame.args[i], Tensor):
            return None if tokens is not None and _same(frame.args[i], tokens) else frame.args[i]
    if frame.spots[:2] == _TORCH[:2]:
        _, query = _argument(frame, "query")
        _, key = _argument(frame, "key")
        if isinstance(key, Tensor) and key.ndim <= 3 and not _same(query, key):
            return key if frame.batch_first or key.ndim < 3 else key.transpose(0, 1)
    if n != m and tokens is not None:
        for value in (*frame.args, *frame.kwargs.values()):
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3 and value.shape[1] == m:
                return value
    return None


@no_type_check
def _same(a, b) -> bool:
    """The same tensor, or another view of the very same numbers."""
    if a is b or torch.compiler.is_compiling():
        return a is b
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


@no_type_check
def _token_mask(frames: list[Frame], key: str, batch, length: int):
    """The 2-D mask of the nearest module that was given one; None when that module was given none.

    Above a decoder (a module that takes encoder states) the same word means the encoder's mask: the search
    stops there.
    """
    in_decoder = False
    for i in range(len(frames) - 1, -1, -1):
        frame = frames[i]
        _, memory = _argument(frame, "encoder_hidden_states")
        if in_decoder and memory is None and key == "attention_mask":
            return None
        in_decoder = in_decoder or memory is not None
        given, value = _argument(frame, key)
        if given and value is None:
            return None
        if given and isinstance(value, Tensor) and value.ndim == 2:
            fits = value.shape[1] == length and (batch is None or value.shape[0] == batch)
            return value if fits else None
    return None
