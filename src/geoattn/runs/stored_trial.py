"""What is stored of one trial: its key, its bytes and its checksum."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["DamagedTrialError", "canonical", "checksum", "is_sound", "trial_key"]


class DamagedTrialError(GeoattnError):
    """A result that is there and cannot be trusted."""


def trial_key(study: str, version: int, config: dict[str, Any]) -> str:
    """Hash of what a result depends on.

    >>> trial_key("table1", 1, {"seed": 0, "data": "digits"}) == trial_key("table1", 1, {"data": "digits", "seed": 0})
    True
    """
    return hashlib.sha256(canonical({"study": study, "version": version, "config": config})).hexdigest()[:24]


def is_sound(content: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether a stored trial is the one of the configuration, and its result is what was written."""
    return content["config"] == json.loads(canonical(config)) and content["checksum"] == checksum(content["result"])


def canonical(content: Any) -> bytes:
    """The same bytes for equal content; NaN is refused, as JSON has none."""
    try:
        return (json.dumps(content, sort_keys=True, allow_nan=False, indent=1) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise GeoattnError(f"configurations and results must be plain JSON: {error}.") from None


def checksum(result: Any) -> str:
    """Hash of a result, to notice that a file was changed."""
    return hashlib.sha256(canonical(result)).hexdigest()
