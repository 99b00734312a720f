"""What a page is made of: sections, which hold controls, figures and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from geoattn._core.errors import GeoattnError

__all__ = ["Control", "Figure", "Section", "key_of"]


_NOTHING = Markup("")


@dataclass(frozen=True)
class Control:
    """A choice for the figures of a section: ``options`` are (value, label), the first one is shown first."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Figure:
    """A Plotly figure. ``variants`` holds one specification (data, layout) for each choice of the controls in ``by``.

    A colour may be ``var(--name)``: the page puts in the colour of its scheme, light or dark. Text from outside goes
    through `geoattn.report.escaping.plotly_text`, because Plotly reads tags in text.
    """

    name: str
    title: str
    variants: Mapping[str, Mapping[str, Any]]
    by: tuple[str, ...] = ()
    note: str = ""
    wide: bool = False


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page. ``before`` comes before the figures, ``html`` after them: text in them must be escaped.

    ``lead`` and all other strings are plain text. ``data`` is what the page's script needs beyond the figures.
    """

    key: str
    title: str
    lead: Sequence[str] = ()
    controls: tuple[Control, ...] = ()
    figures: tuple[Figure, ...] = ()
    before: Markup = _NOTHING
    html: Markup = _NOTHING
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for figure in self.figures:
            controls = {control.name: control for control in self.controls}
            first = key_of(*(controls[name].options[0][0] for name in figure.by))
            if first not in figure.variants:
                raise GeoattnError(f"figure {figure.name} of section {self.key} has no variant {first!r}.")


def key_of(*choices: object) -> str:
    """Key of a variant: the values of its controls, in the order of ``Figure.by``."""
    return "|".join(map(str, choices))
