"""Forms of plain text: a list of strings."""

from __future__ import annotations

from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.form import Asked, Form, Samples, nothing

__all__ = ["TEXTS", "as_labels", "text_samples"]


def is_texts(given: Any) -> bool:
    """A list or tuple that begins with a string; an array or one column of strings too."""
    if type(given).__name__ in ("Series", "Column") and type(given).__module__.startswith(("pandas.", "datasets.")):
        return len(given) > 0 and isinstance(next(iter(given)), str)
    if getattr(getattr(given, "dtype", None), "kind", "") in ("U", "T"):
        return given.ndim == 1
    return isinstance(given, (list, tuple)) and bool(given) and isinstance(given[0], str)


def read_texts(given: Any, asked: Asked) -> Samples:
    """The strings, with the labels that the caller gave."""
    return text_samples(list(given), "texts", asked)


def text_samples(texts: list[Any], name: str, asked: Asked, **about: Any) -> Samples:
    """Checked strings as samples; labels from the caller unless ``about`` has them."""
    if not texts:
        raise nothing(name)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise GeoattnError(f"{name}, row {row}: expected a text; got {type(text).__name__} ({str(text)[:30]}).")
    about.setdefault("labels", as_labels(asked.labels, len(texts)))
    return Samples(name, texts=tuple(map(str, texts)), **about)


def as_labels(given: Any, count: int) -> tuple[Any, ...] | None:
    """Labels that were given as a sequence, as Python's own numbers or strings; None for a name of a column."""
    if given is None or isinstance(given, str):
        return None
    labels = tuple(given.tolist() if hasattr(given, "tolist") else given)
    if len(labels) != count:
        raise GeoattnError(f"labels must be one for each of the {count} samples; got {len(labels)}.")
    return labels


TEXTS = Form(
    "a list of strings",
    '["a text", "another"]',
    frozenset({"text", "list", "str", "sentence"}),
    is_texts,
    read_texts,
)
