"""Conventions on the command line: from options to a `Convention`."""

from __future__ import annotations

from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention

__all__ = ["build_convention", "read_conventions"]


def build_convention(preset: str, parts: dict[str, Any]) -> Convention:
    """The preset with the parts that were given (those that are not None) changed."""
    changes = {name: value for name, value in parts.items() if value is not None}
    if "alpha" in changes and changes["alpha"] != "limit":
        try:
            changes["alpha"] = float(changes["alpha"])
        except ValueError:
            raise GeoattnError(
                f"--alpha must be a number with 0 <= alpha < 1, or limit; got {changes['alpha']!r}."
            ) from None
    convention = Convention.of(preset)
    return convention.but(**changes) if changes else convention


def read_conventions(text: str) -> list[str]:
    """Names of presets from ``--convention``: one or several, with commas, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise GeoattnError("--convention must name at least one convention.")
    for name in names:
        Convention.of(name)
    if len(set(names)) < len(names):
        raise GeoattnError(f"--convention: each once; got {text}.")
    return names
