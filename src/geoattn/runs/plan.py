"""``DIR/trials.json``: the study, its version, its size and the configurations of its trials, in order."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn._core.files import set_aside, write_atomically
from geoattn._core.text_files import read_json
from geoattn.runs.locks import Locks
from geoattn.runs.stored_trial import canonical

__all__ = ["write_plan"]


def write_plan(
    folder: Path, locks: Locks, *, study: str, version: int, size: str, configs: list[dict[str, Any]]
) -> None:
    """Write down what is to be done, under the lock ``plan``; nothing is written when the file says so already.

    A folder of another study or size is an error. The table of another version is put away.
    """
    about = {"study": study, "version": version, "size": size, "configs": configs}
    wanted = json.loads(canonical(about))
    path = folder / "trials.json"
    if _planned(path) == wanted:
        return
    if _holds_other_things(folder) and not path.exists():  # in this order: another driver may be writing it now
        raise GeoattnError(f"{folder} is not empty and holds no study; choose another folder.")
    with locks.hold("plan"):
        before = _planned(path)
        if before == wanted:
            return
        if before is not None and before.get("study") != study:
            raise GeoattnError(f"{folder} holds study {before.get('study')}; choose another folder.")
        if before is not None and before.get("size") != size:
            raise GeoattnError(
                f"{folder} holds size {before.get('size')} of {study}, not {size}; choose another folder."
            )
        if before is None and path.exists():
            kept = set_aside(path, folder / "damaged")
            _mention(f"{path} was damaged: kept as {kept}, written anew.")
        elif before is not None and before["version"] != version:
            _put_away(folder, study, before["version"], version)
        write_atomically(path, lambda file: file.write(canonical(about)))


def _planned(path: Path) -> dict[str, Any] | None:
    """What the file says; None when there is none, or one that cannot be read."""
    try:
        content = read_json(path)
        return content if isinstance(content, dict) and "version" in content else None
    except (OSError, ValueError):
        return None


def _holds_other_things(folder: Path) -> bool:
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise GeoattnError(f"{folder} must be a folder; it is a file.")
    names = (entry.name for entry in folder.iterdir())
    return any(name not in ("claims", "damaged") and not name.startswith(".trials.json.") for name in names)


def _put_away(folder: Path, study: str, old: int, new: int) -> None:
    """Plan, table and figure of another version go to a folder of their own."""
    target = folder / f"version-{old}"
    for name in ("trials.json", *(f"{study}.{kind}" for kind in ("csv", "json", "png"))):
        if (folder / name).exists():
            set_aside(folder / name, target)
    _mention(
        f"{folder} holds version {old} of {study}, this is version {new}: its results stay"
        f" under their own keys, its table is in {target}, and all trials are done for the new version."
    )


def _mention(message: str) -> None:
    warnings.warn(message, GeoattnWarning, stacklevel=2)
