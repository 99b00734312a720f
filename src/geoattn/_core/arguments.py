"""Checks of plain arguments: a number, a whole number, one of a few words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean

# Editors and type checkers see the type; at run time the argument is checked here, with an error in words.
if TYPE_CHECKING:
    Count = int
    Number = float
else:
    Count = Number = Any

__all__ = ["Count", "Number", "read_choice", "read_count", "read_number"]


def read_number(name: str, value: Any, *, least: float | int = -math.inf, above: float | int = -math.inf) -> float:
    """A finite number, at least ``least`` and more than ``above``, from Python, NumPy or a tensor of no axes.

    Examples
    --------
    >>> read_number("gamma", 0.1, above=0)
    0.1
    >>> read_number("gamma", -1, above=0)
    Traceback (most recent call last):
    geoattn._core.errors.GeoattnError: gamma must be a finite number above 0; got -1.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < least or value <= above:
        bound = f" of at least {least:g}" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""
        raise GeoattnError(f"{name} must be a finite number{bound}; got {value!r}.")
    return float(value)


def read_count(name: str, value: Any, *, least: int, most: int = 2**31 - 1, instead: str = "") -> int:
    """A whole number from ``least`` to ``most``, from Python or NumPy; True and 2.0 are not.

    ``instead`` names other things that the argument may be, for the message.

    Examples
    --------
    >>> read_count("edges", 32, least=1)
    32
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        bound = ", below 2^31" if most == 2**31 - 1 else ""
        raise GeoattnError(f"{name} must be {instead}a whole number of at least {least}{bound}; got {value!r}.")
    return int(value)


def read_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words.

    Examples
    --------
    >>> read_choice("direction", "increase", ("increase", "decrease"))
    'increase'
    """
    if not isinstance(value, str) or value not in choices:
        near = did_you_mean(value, choices)
        raise GeoattnError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.{near}")
    return value
