"""Profiles kept beside a report, so that making it again takes no time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.datasets.dataset import Dataset
from geoattn.profiles.result import Profile

__all__ = ["FOLDER", "cached_profile"]

#: Name of the folder beside the report.
FOLDER = ".geoattn"


def cached_profile(
    report: Path, model_checksum: str, data: Dataset, settings: dict[str, Any], *, fresh: bool,
    make: Callable[[], Profile],
) -> tuple[Profile, bool]:  # fmt: skip
    """(profile, whether it was there already). A file that cannot be read is made anew."""
    path = report.parent / FOLDER / f"profile-{_key(model_checksum, data, settings)}.npz"
    if path.is_file() and not fresh:
        try:
            return Profile.load(path), True
        except GeoattnError:
            pass  # of another version, or damaged
    made = make()
    made.save(path)
    return made, False


def _key(model_checksum: str, data: Dataset, settings: dict[str, Any]) -> str:
    """Of everything that decides the numbers: version, model, rows of the data, settings."""
    parts = {"geoattn": __version__, "model": model_checksum, "data": data.checksum, "rows": data.rows.tolist()}
    return hashlib.sha256(json.dumps({**parts, **settings}, sort_keys=True).encode()).hexdigest()[:20]
