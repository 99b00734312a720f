"""What the running modules say of an attention call inside them: its name, kind, padding and tokens.

torch.compile traces this code: it uses plain loops and never reads the values of tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

from geoattn.attention.module_stack import RunningModule

__all__ = ["Context", "describe", "token_counts"]

_SOURCES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "context", "memory")
_TORCH = (("query", 0), ("key", 1), ("value", 2))  # nn.MultiheadAttention and its likes
_SHORT = (("q", 0), ("k", 1), ("v", 2))  # the attention of Segment Anything


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
    kind: Any  # that of `Call`
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
def describe(running: list[RunningModule], n: int, m: int, with_inputs: bool, other: Any = None) -> Context:
    """What the running modules say of a call with n queries and m keys. O(modules around it).

    ``other`` is the sequence that the keys come from, when it was seen to be another than that of the queries.
    """
    module = running[-1]
    tokens = None
    for i in range(len(running) - 1, max(-1, len(running) - 4), -1):
        tokens = _first_tokens(running[i], n)
        if tokens is not None:
            break
    batch = None if tokens is None else tokens.shape[0]
    appended = module.parameters[:3] == _TORCH
    source = other if other is not None and n == m else _source(module, tokens, n, m)
    if n == m and source is not None and source.ndim == 3 and _joins(module, source, n):
        kind, source = "joint", None
        key_mask = query_mask = None
    elif source is not None or n > m:
        kind = "cross"
        key_mask = _token_mask(running, "encoder_attention_mask", batch, m)
        query_mask = _token_mask(running, "attention_mask", batch, n)
    else:
        kind = "self"
        key_mask = query_mask = _token_mask(running, "attention_mask", batch, m)
    length = _token_count(module)
    if not with_inputs:
        tokens = source = None
    return Context(
        module.name, kind, module.heads, batch, appended, key_mask, query_mask, tokens, source, length,
        all([_is_one_tensor(each) for each in running]),
    )  # fmt: skip


@no_type_check
def _is_one_tensor(module: RunningModule) -> bool:
    """Whether a module was given one tensor of numbers and nothing else, no masks, no other sequence."""
    args = module.args
    if len(args) != 1 or len(module.kwargs) > 0:
        return False
    return isinstance(args[0], Tensor) and args[0].is_floating_point()


@no_type_check
def _token_count(module: RunningModule):
    """Number of tokens in the first floating-point argument, None when that is no (batch, n, width)."""
    for value in (*module.args, *module.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.shape[1 if module.batch_first else 0] if value.ndim == 3 else None
    return None


@no_type_check
def token_counts(module: RunningModule) -> list[int]:
    """Numbers of tokens that the module may have been given: (batch, n, width), or an image of n pixels."""
    counts = []
    for value in (*module.args, *module.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            if value.ndim == 3:
                counts.append(value.shape[1 if module.batch_first else 0])
            elif value.ndim == 4:
                counts.append(value.shape[2] * value.shape[3])
                counts.append(value.shape[1] * value.shape[2])
    return counts


@no_type_check
def _argument(module: RunningModule, key: str):
    """(given, value) of an argument of the running forward."""
    if key in module.kwargs:
        return True, module.kwargs[key]
    for name, i in module.parameters[: len(module.args)]:
        if name == key:
            return True, module.args[i]
    return False, None


@no_type_check
def _first_tokens(module: RunningModule, n: int):
    """The first floating-point argument if it has shape (batch, n, width), else None."""
    for value in (*module.args, *module.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            if value.ndim == 2 and value.shape[0] == n and module.parameters[:3] == _TORCH:
                return value.unsqueeze(0)
            if value.ndim != 3:
                return None
            if not module.batch_first:
                value = value.transpose(0, 1)
            return value if value.shape[1] == n else None
    return None


@no_type_check
def _joins(module: RunningModule, source: Any, n: int) -> bool:
    """Whether the n tokens are those of the module and those of another stream one after the other (SD3, Flux)."""
    if source.shape[1] >= n:
        return False
    for value in (*module.args, *module.kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3 and value is not source:
            if value.shape[1] + source.shape[1] == n:
                return True
    return False


@no_type_check
def _source(module: RunningModule, tokens, n: int, m: int):
    """Tokens (batch, m, width) of another sequence that the keys come from; None for self-attention."""
    for key, value in module.kwargs.items():
        if key in _SOURCES and isinstance(value, Tensor):
            return None if tokens is not None and _same(value, tokens) else value
    for name, i in module.parameters[: len(module.args)]:
        if name in _SOURCES and isinstance(module.args[i], Tensor):
            return None if tokens is not None and _same(module.args[i], tokens) else module.args[i]
    if module.parameters[:2] == _TORCH[:2] or module.parameters[:2] == _SHORT[:2]:
        _, query = _argument(module, module.parameters[0][0])
        _, key = _argument(module, module.parameters[1][0])
        if isinstance(key, Tensor) and key.ndim <= 3 and not _same(query, key):
            return key if module.batch_first or key.ndim < 3 else key.transpose(0, 1)
    if n != m and tokens is not None:
        for value in (*module.args, *module.kwargs.values()):
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
def _token_mask(running: list[RunningModule], key: str, batch, length: int):
    """The 2-D mask of the nearest module that was given one; None when that module was given none.

    Above a decoder (a module that takes encoder states) the same word means the encoder's mask: the search
    stops there.
    """
    in_decoder = False
    for i in range(len(running) - 1, -1, -1):
        module = running[i]
        _, memory = _argument(module, "encoder_hidden_states")
        if in_decoder and memory is None and key == "attention_mask":
            return None
        in_decoder = in_decoder or memory is not None
        given, value = _argument(module, key)
        if given and value is None:
            return None
        if given and isinstance(value, Tensor) and value.ndim == 2:
            fits = value.shape[1] == length and (batch is None or value.shape[0] == batch)
            return value if fits else None
    return None
