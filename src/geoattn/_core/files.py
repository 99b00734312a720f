"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["set_aside", "write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Any) -> None:
    """Call ``write(file)`` on a temporary file beside ``path`` and rename it: all or nothing."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise GeoattnError(f"cannot write {target}: {error.strerror or error}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        os.unlink(temporary)
        raise GeoattnError(f"cannot write {target}: {error.strerror or error}. Nothing was left behind.") from None
    except BaseException:
        os.unlink(temporary)
        raise


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file to a folder, beside what is there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target, number = folder / path.name, 1
        while target.exists():
            number += 1
            target = folder / f"{path.stem}.{number}{path.suffix}"
        os.replace(path, target)
    except OSError as error:
        raise GeoattnError(f"cannot move {path} to {folder}: {error.strerror or error}.") from None
    return target
