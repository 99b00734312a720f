"""Forms that come part by part: a DataLoader, a generator, a list of batches; each part is a form itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.form import Asked, Form, Samples
from geoattn.datasets.forms.images import is_picture
from geoattn.datasets.forms.tables import Table, table_samples

__all__ = ["LOADER", "ROWS", "inputs_and_labels"]


def is_rows(given: Any) -> bool:
    """A mapping of columns: what a DataLoader makes of rows with texts or images; or one such row."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(key, str) for key in given):
        return False
    return any(_is_raw(value) or (_listed(value) and _is_raw(value[0])) for value in given.values())


def read_rows(given: Any, asked: Asked) -> Samples:
    """A column of it, as of a table."""
    columns = {
        key: list(value) if _listed(value) or isinstance(value, Tensor) else [value] for key, value in given.items()
    }
    rows = max(map(len, columns.values()))
    columns = {key: values for key, values in columns.items() if len(values) == rows}
    return table_samples(Table("a batch", tuple(columns), rows, lambda name: columns[name]), asked)


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value)


def _is_raw(value: Any) -> bool:
    return isinstance(value, str) or is_picture(value)


def is_loader(given: Any) -> bool:
    """Anything else that can be gone through."""
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Tensor, np.ndarray))


def read_loader(given: Any, asked: Asked) -> Samples:
    """Its parts, to be read when their turn comes."""
    return Samples("batches", parts=given)


def inputs_and_labels(item: Any, asked: Asked, number: int) -> Samples:
    """One part: a form, or a tuple of a form and its labels, as data loaders give them."""
    labels: Any = asked.labels
    if isinstance(item, str):
        item = [item]  # a column, row by row
    if isinstance(item, (tuple, list)) and item:
        pair = len(item) == 2 and _is_raw(item[0]) and isinstance(item[1], (int, np.integer, Tensor))
        if pair:
            item, labels = [item[0]], [int(item[1])]
        elif not _is_raw(item[0]):
            rest, item = item[1:], item[0]
            texts = [part for part in rest if _listed(part) and isinstance(part[0], str)]
            if texts and _listed(item) and isinstance(item[0], str):
                raise GeoattnError(
                    f"batch {number} holds {1 + len(texts)} lists of texts, and one would be lost: give the column of a"
                    " DataFrame, or pairs of texts as a tokenizer encodes them."
                )
            if (
                rest
                and labels is None
                and isinstance(rest[0], (Tensor, list, tuple, np.ndarray))
                and np.ndim(rest[0]) == 1
            ):
                labels = rest[0]
    try:
        found = asked.read(item)
    except GeoattnError as error:
        raise GeoattnError(f"batch {number}: {error}") from None
    if found.labels is None and labels is not None and not isinstance(labels, str) and found.batches is None:
        given = tuple(labels.tolist() if hasattr(labels, "tolist") else labels)
        if len(given) == len(found):
            return replace(found, labels=given)
    return found


ROWS = Form(
    "rows with a column of texts or images",
    '{"text": ["a text", "another"]}',
    frozenset({"dict", "mapping", "text", "column", "table"}),
    is_rows,
    read_rows,
)
LOADER = Form(
    "a DataLoader, or any iterable of batches",
    "DataLoader(data, batch_size=8)",
    frozenset({"loader", "list", "iterable", "generator", "tensor", "dataset", "torch"}),
    is_loader,
    read_loader,
)
