"""Which layers: names and patterns of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean

__all__ = ["Layers", "chooser", "complain", "name_some"]

if TYPE_CHECKING:
    Layers = str | Sequence[str] | Callable[[str], bool] | None
else:  # checked by `chooser`, with words that help
    Layers = Any


def chooser(layers: Layers) -> Callable[[str], bool]:
    """A function that says of a module's name whether it is chosen.

    A pattern is in the style of file names (fnmatch: ``*`` any characters, dots too, ``?`` one, ``[012]`` one
    of these) and chooses the modules that it matches with all that is inside them.

    Examples
    --------
    >>> chosen = chooser("encoder.layer.1")
    >>> chosen("encoder.layer.1.attention.self"), chosen("encoder.layer.11.attention.self")
    (True, False)
    >>> chooser(["*.0", "*.[23].*"])("encoder.layer.3.attention.self")
    True
    """
    if layers is None:
        return lambda _: True
    if callable(layers):
        return lambda name: bool(layers(name))
    patterns = _patterns(layers)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise GeoattnError(
            f"layers must be a pattern, a list of patterns or a function of the name; got {layers!r}. Layers are named"
            " as the modules of the model: '*.3' is the one that is named 3, with all inside it."
        )

    def chosen(name: str) -> bool:
        parts = name.split(".")
        paths = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
        return any(fnmatchcase(path, pattern) for pattern in patterns for path in paths)

    return chosen


def complain(layers: Layers, names: Iterable[str], what: str) -> GeoattnError:
    """The error for a choice that matches none of these names."""
    names = list(dict.fromkeys(names))
    near = next(filter(None, (_nearest_layer(one, names) for one in _patterns(layers))), "")
    return GeoattnError(f"layers={layers!r} matches none of the {what}: {name_some(names)}.{near}")


def _nearest_layer(name: str, names: Iterable[str]) -> str:
    """The question that names the module nearest to ``name``, or the one around it; empty when none is near."""
    paths = (".".join(parts[:k]) for parts in (one.split(".") for one in names) for k in range(len(parts), 0, -1))
    return did_you_mean(name, dict.fromkeys(paths))


def _patterns(layers: Layers) -> list[Any]:
    if layers is None or callable(layers):
        return []
    return [layers] if isinstance(layers, str) or not isinstance(layers, Iterable) else list(layers)


def name_some(names: Iterable[str], limit: int = 8) -> str:
    """A few names in quotes, and how many there are beyond."""
    names = list(dict.fromkeys(names))
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
