"""Files that are written as a whole or not at all, and that a loss of power does not take back."""

from __future__ import annotations

import os
import socket
import tempfile
import zlib
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError

__all__ = ["clear_halves", "half_name", "keep_names", "set_aside", "write_atomically"]


def write_atomically(path: str | os.PathLike[str], write: Any) -> None:
    """Call ``write(file)`` on a temporary file beside ``path`` and rename it: all or nothing.

    When it returns, content and name are on the disk. A process that is killed leaves the temporary file; the next
    write to ``path`` on this machine removes it.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_halves(target.parent, f".{target.name}.", ".part")
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=half_name(f".{target.name}."), suffix=".part")
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
        left = _remove(temporary)
        raise GeoattnError(f"cannot write {target}: {error.strerror or error}. {left}") from None
    except BaseException:
        _remove(temporary)
        raise
    keep_names(target.parent)


def keep_names(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; some file systems cannot say so, and are believed."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def half_name(prefix: str) -> str:
    """The beginning of the name of a temporary file that says which process of which machine writes it."""
    return f"{prefix}{zlib.crc32(socket.gethostname().encode()):08x}-{os.getpid()}-"


def clear_halves(folder: Path, prefix: str, suffix: str = "") -> list[Path]:
    """Remove what processes of this machine that are no more left half-written; what cannot be removed is given back.

    Only regular files are removed; folders are given back, too, for the caller to remove.
    """
    left = []
    machine = half_name(prefix).rsplit("-", 2)[0]
    for name in os.listdir(folder):
        if not name.startswith(f"{machine}-") or not name.endswith(suffix):
            continue
        number = name.removeprefix(f"{machine}-").split("-")[0]
        if not number.isdigit() or _is_alive(int(number)):
            continue
        try:
            os.unlink(folder / name)
        except OSError:
            left.append(folder / name)
    return left


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _remove(temporary: str) -> str:
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        pass
    except OSError:
        return f"{temporary} could not be removed."
    return "Nothing was left behind."


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
    keep_names(folder)
    return target
