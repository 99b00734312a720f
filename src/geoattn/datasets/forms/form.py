"""What a form of own data is, and what a reader makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["Asked", "Form", "Samples", "came"]


@dataclass(frozen=True)
class Asked:
    """What the caller said about the data: the column of texts or images, and labels or the column of them.

    ``read`` reads a part of a form by the registry: the batches of a loader are forms themselves.
    """

    column: str | None
    labels: Any
    read: Callable[[Any], Samples]


@dataclass(frozen=True, eq=False)
class Samples:
    """What a reader gives: ``texts``, ``images``, ``batches`` as a model takes them, or ``parts`` to be read in turn.

    Exactly one of the four is there. ``images`` are pictures of Pillow, arrays (height, width) or (height, width,
    channel), encoded bytes or paths. ``labels`` are numbers or names, None when nothing is known; ``classes`` are their
    names by number.
    """

    name: str
    texts: tuple[str, ...] | None = None
    images: tuple[Any, ...] | None = None
    batches: tuple[Any, ...] | None = None
    parts: Iterable[Any] | None = field(default=None, repr=False)
    labels: tuple[Any, ...] | None = None
    classes: tuple[str, ...] | None = None
    source: str = "memory"
    split: str = "given"

    def __len__(self) -> int:
        """How many texts or images; an error for batches, whose sizes only the model knows."""
        held = self.texts if self.texts is not None else self.images
        if held is None:
            raise TypeError("batches have no number of samples before they are read")
        return len(held)

    def first(self, limit: int | None) -> Samples:
        """At most so many texts or images, from the start."""
        if limit is None:
            return self
        cut = {name: part[:limit] for name in ("texts", "images", "labels") if (part := getattr(self, name))}
        return replace(self, **cut)


@dataclass(frozen=True)
class Form:
    """One form of own data. ``way`` is how a user writes it; ``about`` are words by which near forms are found.

    ``matches`` looks at the type and at the first entry only, and imports nothing. ``read`` gives `Samples`.
    """

    name: str
    way: str
    about: frozenset[str]
    matches: Callable[[Any], bool]
    read: Callable[[Any, Asked], Samples]


def came(given: Any) -> str:
    """What was given, in a few words: its type, shape or columns."""
    kind = type(given)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return f"{name} of shape {tuple(given.shape)} and {given.dtype}"
    if isinstance(given, str):
        return f"the text {given[:40]!r}"
    if isinstance(given, (list, tuple)):
        inside = "empty" if not given else f"{len(given)} entries, the first a {type(given[0]).__name__}"
        return f"{name} ({inside})"
    if isinstance(given, dict):
        return f"{name} with the keys {', '.join(map(str, list(given)[:6])) or 'none'}"
    return name


def nothing(name: str) -> GeoattnError:
    """The error of a form without a sample."""
    return GeoattnError(f"{name} holds no sample.")
