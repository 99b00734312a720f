"""Forms with columns: a DataFrame, a Dataset of the datasets library, and what files hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.visible import visible
from geoattn.datasets.forms.encodings import encoded_rows
from geoattn.datasets.forms.form import Asked, Form, Samples, nothing
from geoattn.datasets.forms.images import is_picture, picture_samples
from geoattn.datasets.forms.texts import as_labels, text_samples

__all__ = ["FRAME", "HUB_DATASET", "Table", "table_samples"]

_INPUTS = ("text", "sentence", "content", "review", "question", "prompt", "headline", "image", "img")
_LABELS = ("label", "labels", "target", "class")
_READY = ("input_ids", "pixel_values", "inputs_embeds")


@dataclass(frozen=True)
class Table:
    """Columns by name, read when asked for. ``classes`` are the names of the labels of a column, if it knows them."""

    name: str
    columns: tuple[str, ...]
    rows: int
    column: Callable[[str], list[Any]]
    classes: Callable[[str], tuple[str, ...] | None] = lambda _: None
    source: str = "memory"


def table_samples(table: Table, asked: Asked) -> Samples:
    """The column of texts or images, and the labels."""
    if table.rows == 0:
        raise nothing(table.name)
    if asked.column is None and (ready := [name for name in _READY if name in table.columns]):
        return _ready(table, ready)
    name = asked.column or _guess(table)
    if name not in table.columns:
        raise GeoattnError(f"{table.name} has no column {name!r}; it has {_named(table.columns)}.")
    label, labels, classes = _labels(table, asked, name)
    about = {"labels": labels, "classes": classes, "source": table.source, "split": name}
    values = [_picture(value) for value in table.column(name)]
    if len(values) != table.rows:
        raise GeoattnError(
            f"{table.name}: {table.rows:,} rows by its header, and column {visible(name)} holds {len(values):,}."
        )
    empty = [row for row, value in enumerate(values) if value is None or value != value][:1] if _scalars(values) else []
    if empty:
        raise GeoattnError(f"{table.name}, column {name!r}, row {empty[0]}: no value; drop such rows first.")
    if isinstance(values[0], bytes) or is_picture(values[0]):
        return picture_samples(values, table.name, asked, **about)
    if not isinstance(values[0], str):
        raise GeoattnError(
            f"{table.name}: column {name!r} holds {type(values[0]).__name__}, not texts or images; name another of"
            f" {_named(c for c in table.columns if c not in (name, label))} with column=."
        )
    return text_samples(values, table.name, asked, **about)


def _named(columns: Iterable[str]) -> str:
    """Names of columns on one line; a file may hold anything there."""
    names = [visible(name) for name in columns]
    return ", ".join(names[:20]) + ", ..." * (len(names) > 20)


def _scalars(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, (str, float)) for value in values)


def _picture(value: Any) -> Any:
    """The bytes of an image as parquet files of the hub hold it, and anything else as it is."""
    return value["bytes"] if isinstance(value, dict) and isinstance(value.get("bytes"), bytes) else value


def _guess(table: Table) -> str:
    known = [name for name in _INPUTS if name in table.columns]
    if known:
        return known[0]
    others = [name for name in table.columns if name not in _LABELS]
    found = [name for name in others if _is_input(table.column(name)[0])]
    if len(found) == 1:
        return found[0]
    which = f"several ({_named(found)})" if found else f"none of {_named(table.columns) or 'no column'}"
    raise GeoattnError(f"{table.name}: which column holds the texts or images? {which}; name it with column=.")


def _is_input(value: Any) -> bool:
    value = _picture(value)
    return isinstance(value, (str, bytes)) or is_picture(value)


def _labels(table: Table, asked: Asked, taken: str) -> tuple[str, tuple[Any, ...] | None, tuple[str, ...] | None]:
    if asked.labels is not None and not isinstance(asked.labels, str):
        return "", as_labels(asked.labels, table.rows), None
    if isinstance(asked.labels, str) and asked.labels not in table.columns:
        raise GeoattnError(f"{table.name} has no column {asked.labels!r}; it has {_named(table.columns)}.")
    name = asked.labels or next((n for n in _LABELS if n in table.columns and n != taken), "")
    if not name:
        return "", None, None
    values = [value.item() if hasattr(value, "item") else value for value in table.column(name)]
    if all(isinstance(v, str) and v.lstrip("-").isdigit() for v in values):
        values = [int(v) for v in values]  # of a file of text
    return name, tuple(values), table.classes(name)


def _ready(table: Table, ready: list[str]) -> Samples:
    wanted = [n for n in (*ready, "attention_mask", "token_type_ids") if n in table.columns]
    columns = {name: table.column(name) for name in wanted}
    rows = [{name: columns[name][k] for name in wanted} for k in range(table.rows)]
    return Samples(table.name, batches=tuple(encoded_rows(rows)), source=table.source, split=ready[0])


def is_frame(given: Any) -> bool:
    """A DataFrame of pandas."""
    kind = type(given)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pandas")


def read_frame(given: Any, asked: Asked) -> Samples:
    """A column of it; ``column=`` names which."""
    names = {str(name): name for name in given.columns}
    table = Table("DataFrame", tuple(names), len(given), lambda name: given[names[name]].tolist())
    return table_samples(table, asked)


def is_hub_dataset(given: Any) -> bool:
    """A Dataset of the datasets library; a DatasetDict has splits and is none."""
    kind = type(given)
    return kind.__name__ == "Dataset" and kind.__module__.startswith("datasets.")


def read_hub_dataset(given: Any, asked: Asked) -> Samples:
    """A column of it; columns of tokens are taken as they are. Names of classes are those of its ClassLabel."""

    def classes(name: str) -> tuple[str, ...] | None:
        names = getattr(given.features.get(name), "names", None)
        return None if names is None else tuple(names)

    plain = given.with_format(None)
    table = Table("datasets.Dataset", tuple(given.column_names), len(given), lambda name: list(plain[name]), classes)
    return table_samples(table, asked)


FRAME = Form(
    "a DataFrame",
    'frame, column="text"',
    frozenset({"table", "text", "frame", "column", "series"}),
    is_frame,
    read_frame,
)
HUB_DATASET = Form(
    "a datasets.Dataset",
    'load_dataset("imdb")["test"], column="text"',
    frozenset({"table", "text", "datasets", "column", "dict"}),
    is_hub_dataset,
    read_hub_dataset,
)
