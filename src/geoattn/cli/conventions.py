"""Conventions on the command line: from options to a `Convention`, and from a `Convention` to words."""

from __future__ import annotations

from typing import Any

from geoattn.errors import GeoattnError
from geoattn.graph.convention import Convention

__all__ = ["build_convention", "in_words"]


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


def in_words(convention: Convention) -> str:
    """One sentence that fixes every part."""
    c = convention
    weight = {
        "mean": "S = (A + A^T) / 2",
        "max": "S = max(A, A^T)",
        "min": "S = min(A, A^T)",
        "product": "S = A * A^T by entries",
        "directed": "S = A, directed",
    }[c.direction]
    if c.heads == "mean":
        weight = f"A = mean over heads, {weight}"
    length = {"w": "S", "1/w": "1 / S", "-log w": "-log S", "1-w": "1 - S", "hop": "1"}[c.length]
    measure = {
        "markov": "the attention row",
        "exponential": f"proportional to exp(-length^{c.exponent:g}) over the neighbours",
        "uniform": "uniform over the neighbours",
    }[c.measure]
    if c.alpha == "limit":
        lazy = "Lin-Lu-Yau limit alpha -> 1"
    elif c.alpha:
        lazy = f"with {c.alpha:g} of the mass kept on the token"
    else:
        lazy = "alpha = 0"
    below = {"distance": "the shortest-path distance", "length": "the length of the edge"}[c.denominator]
    floor = f"; 0 where that is below {c.floor:g}" if c.floor else ""
    return f"{weight}; edge length {length}; measure {measure}, {lazy}; kappa = 1 - W1 / {below}{floor}."
