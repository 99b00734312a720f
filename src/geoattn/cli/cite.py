"""``geoattn cite``: what to put into the bibliography."""

from __future__ import annotations

from typing import Annotated

import typer

from geoattn import citations

__all__ = ["cite"]


def cite(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help=f"Of these: {', '.join(citations.METHODS)}.", show_default=False),
    ] = None,
) -> None:
    """Print BibTeX of geoattn and of the methods used (all, or those named)."""
    print(citations.cite(*methods or ()))
