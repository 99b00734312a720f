"""Forms that a model takes as they are: tensors, mappings of tensors, the BatchEncoding of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.form import Asked, Form, Samples

__all__ = ["ENCODING", "TENSOR", "encoded_rows"]

_IDS = "input_ids"


def is_tensor(given: Any) -> bool:
    """A tensor; or an array of whole numbers that are no pixels: token numbers."""
    return isinstance(given, Tensor) or (isinstance(given, np.ndarray) and given.dtype in (np.int64, np.int32))


def read_tensor(given: Any, asked: Asked) -> Samples:
    """One batch."""
    return Samples("batches", batches=(torch.as_tensor(given),))


def is_encoding(given: Any) -> bool:
    """A mapping with names as keys that holds a tensor, an array or token numbers, and no text or image to be read."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(key, str) for key in given):
        return False
    if _IDS in given or "pixel_values" in given or "inputs_embeds" in given:
        return True
    values = list(given.values())
    raw = any(isinstance(v, str) or (isinstance(v, (list, tuple)) and v and isinstance(v[0], str)) for v in values)
    return not raw and any(isinstance(value, Tensor) for value in values)


def read_encoding(given: Any, asked: Asked) -> Samples:
    """One batch; lists of token numbers become tensors, padded with their attention mask."""
    if all(isinstance(value, Tensor) or not _numbers(value) for value in given.values()):
        return Samples("batches", batches=(dict(given),))
    many = {key: value for key, value in given.items() if _numbers(value)}
    several = len(many.get(_IDS, ())) and _nested(many[_IDS])
    if not several:
        return Samples("batches", batches=tuple(encoded_rows([many])))
    rows = [{key: value[k] for key, value in many.items()} for k in range(len(many[_IDS]))]
    return Samples("batches", batches=tuple(encoded_rows(rows, size=len(rows))))


def _numbers(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (int, float, np.ndarray, Tensor)) and not isinstance(value, bool)


def _nested(value: Any) -> bool:
    return np.ndim(value[0]) > 0


def encoded_rows(rows: Sequence[Mapping[str, Any]], size: int = 8) -> Iterator[dict[str, Tensor]]:
    """Batches of rows that are numbers already: token numbers of unequal length are padded on the right, with a mask.

    Padding is 0 and never seen: the attention mask says so.
    """
    for first in range(0, len(rows), size):
        some = [{key: torch.as_tensor(np.asarray(v)) for key, v in row.items()} for row in rows[first : first + size]]
        lengths = [len(row[_IDS]) if _IDS in row else 0 for row in some]
        longest = max(lengths)
        batch: dict[str, Tensor] = {}
        for key in some[0]:
            parts = [row[key] for row in some]
            if lengths[0] and all(p.ndim == 1 and len(p) == n for p, n in zip(parts, lengths, strict=True)):
                parts = [torch.nn.functional.pad(p, (0, longest - len(p))) for p in parts]
            shapes = {tuple(p.shape) for p in parts}
            if len(shapes) > 1:
                raise GeoattnError(f"rows of {key} have different shapes: {sorted(shapes)[:3]}; pad or resize them.")
            batch[key] = torch.stack(parts)
        if longest and "attention_mask" not in batch:
            batch["attention_mask"] = torch.stack([(torch.arange(longest) < n).long() for n in lengths])
        yield batch


ENCODING = Form(
    "a BatchEncoding",
    'tokenizer(texts, return_tensors="pt", padding=True)',
    frozenset({"tokens", "dict", "mapping", "text", "encoding"}),
    is_encoding,
    read_encoding,
)
TENSOR = Form(
    "a list of tensors",
    "[tensor], as model(tensor) takes it",
    frozenset({"tokens", "array", "tensor", "list", "number"}),
    is_tensor,
    read_tensor,
)
