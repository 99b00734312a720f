"""All forms of own data, and the one door through which they come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.datasets.forms.encodings import ENCODING, TENSOR
from geoattn.datasets.forms.files import FILE
from geoattn.datasets.forms.form import Asked, Form, Samples, came
from geoattn.datasets.forms.images import FOLDER, PICTURES
from geoattn.datasets.forms.loaders import LOADER, ROWS
from geoattn.datasets.forms.tables import FRAME, HUB_DATASET
from geoattn.datasets.forms.texts import TEXTS

__all__ = ["FORMS", "nearest_ways", "read_samples"]

#: The forms, in the order in which they are tried. A new one is a file with a `Form`, and an entry here.
FORMS: tuple[Form, ...] = (FRAME, HUB_DATASET, FOLDER, FILE, PICTURES, TEXTS, ENCODING, ROWS, TENSOR, LOADER)

_WAYS = 3


def read_samples(given: Any, column: str | None = None, labels: Any = None) -> Samples:
    """What a user gave, by the first form that it is; what is none of them is refused with the nearest that work."""
    asked = Asked(column, labels, lambda part: read_samples(part, column, labels if isinstance(labels, str) else None))
    for form in FORMS:
        if form.matches(given):
            return form.read(given, asked)
    raise GeoattnError(f"cannot use {came(given)} as data. Nearest ways that work: {'; '.join(nearest_ways(given))}.")


def nearest_ways(given: Any) -> list[str]:
    """How to write the three forms that have most in common with what was given."""
    words = _words(given)
    if not any(form.about & words for form in FORMS):
        words = {"str", "sentence", "picture"}
    ranked = sorted(FORMS, key=lambda form: -len(form.about & words))
    return [f"{form.name}: {form.way}" for form in ranked[:_WAYS]]


def _words(given: Any) -> set[str]:
    words = {
        part for kind in type(given).__mro__[:-1] for part in (kind.__name__.lower(), kind.__module__.split(".")[0])
    }
    if isinstance(given, (str, Path)):
        words |= {"str", "text", "file", "path"}
    if isinstance(given, (list, tuple)):
        words |= {"list"}
    if isinstance(given, np.ndarray):
        words |= {"array", "image"} if given.ndim > 2 else {"array", "number", "tokens"}
    if isinstance(given, (int, float)):
        words |= {"number", "tensor"}
    if hasattr(given, "items"):
        words |= {"dict", "mapping"}
    return words
