"""How results show themselves in a session and in a notebook: a few lines, and a small table."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from geoattn._core.visible import visible

__all__ = ["Displayed", "Viewable"]

_LINE = 100  # characters of a representation on one line
_MOST = 9  # facts; with the title and a line of dots fewer than twelve lines
_LONGEST = 72  # characters of one fact
_FEW = 4  # numbers that are written out


class Displayed:
    """A result with a short ``repr`` and an HTML table, both from `facts`."""

    def facts(self) -> dict[str, Any]:
        """What to show, by name, the most important first; by default the fields of the result."""
        return {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}

    def __repr__(self) -> str:
        """On one line if it fits, else a line a fact; never twelve lines."""
        name, shown = type(self).__name__, _shown(self.facts())
        line = f"{name}({', '.join(f'{key}={value}' for key, value in shown)})"
        if len(line) <= _LINE and len(shown) <= _MOST:
            return line
        more = [f"  ... {len(shown) - _MOST} more"] if len(shown) > _MOST else []
        return "\n".join([name, *(f"  {key}: {value}" for key, value in shown[:_MOST]), *more])

    def _repr_html_(self) -> str:
        """For notebooks. Everything in it is escaped."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
            for key, value in _shown(self.facts())
        )
        return f"<table><caption style='text-align:left'>{escape(type(self).__name__)}</caption>{rows}</table>"


class Viewable(Displayed):
    """A result with something to look at."""

    def view(self, **choices: Any) -> Any:
        """An interactive view for notebooks, with the code of the report; see `geoattn.report.view`."""
        from geoattn.report.inline import view

        return view(self, **choices)


def _shown(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(visible(key), visible(_short(value), _LONGEST)) for key, value in facts.items()]


def _short(value: Any) -> str:
    """A value in a few words: numbers as they are, arrays by their shape, what is nested by its size."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, (float, complex)):
        return f"{value:.6g}"
    if isinstance(value, str):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return f"table of {len(value):,} rows x {len(value.columns)} columns"
    if isinstance(value, dict):
        return f"{len(value)} entries: {', '.join(map(str, value))}" if value else "none"
    if isinstance(value, (list, tuple)):
        plain = all(isinstance(one, (bool, int, float, str)) for one in value)
        if plain and len(value) <= _FEW:
            return f"({', '.join(map(_short, value))})"
        kinds = {type(one).__name__ for one in value}
        return f"{len(value)} x {kinds.pop()}" if len(kinds) == 1 else f"{len(value)} entries"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) and name else type(value).__name__


def _array(value: Any) -> str:
    shape = tuple(value.shape)
    if shape == ():
        return _short(value.item())
    if len(shape) == 1 and 0 < shape[0] <= _FEW:
        return f"[{', '.join(_short(one) for one in value.tolist())}]"
    return f"{str(value.dtype).removeprefix('torch.')} {' x '.join(map(str, shape))}"
