"""The logger of GraphRicciCurvature, and its levels by name."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["logger", "set_verbose"]

logger = logging.getLogger("geoattn.compat")
_TRACE = logging.DEBUG + 5
_LEVELS = {"INFO": logging.INFO, "TRACE": _TRACE, "DEBUG": logging.DEBUG, "ERROR": logging.ERROR}


def set_verbose(verbose: Any = "ERROR") -> None:
    """Set the level by its name; an unknown one is ERROR, with a line that says so."""
    if verbose not in _LEVELS:
        print('Incorrect verbose level, option:["INFO","DEBUG","ERROR"], use "ERROR instead."')  # noqa: T201
    logger.setLevel(_LEVELS.get(verbose, logging.ERROR))
