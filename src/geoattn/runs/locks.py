"""Locks: who is at a trial. Kernel locks, so that a process that dies lets go at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geoattn._core.errors import GeoattnError

__all__ = ["Locks", "TrialLock"]


class TrialLock:
    """A lock that this process holds. Its file counts the processes that began and did not come to an end."""

    def __init__(self, handle: int, folder: Path) -> None:
        self._handle, self._folder = handle, folder

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Work inside it: an end of any kind clears the count, except that of the process."""
        try:
            os.pwrite(self._handle, str(_count(self._handle) + 1).encode(), 0)
        except OSError as error:
            raise GeoattnError(f"cannot write to {self._folder}: {error.strerror or error}.") from None
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Nobody died."""
        os.ftruncate(self._handle, 0)


class Locks:
    """Locks by name in a folder (flock): between processes of one machine, and on file systems that share locks.

    Examples
    --------
    >>> import tempfile
    >>> locks = Locks(tempfile.mkdtemp())
    >>> with locks.hold("a") as mine, locks.hold("a", wait=False) as second:
    ...     (mine is not None, second, locks.is_held("a"))
    (True, None, True)
    >>> locks.is_held("a")
    False
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @contextmanager
    def hold(self, name: str, *, wait: bool = True) -> Iterator[TrialLock | None]:
        """The claim, or None when another holds it and we do not wait."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise GeoattnError(f"cannot write to {self.folder.parent}: {error.strerror or error}.") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                claim = TrialLock(handle, self.folder.parent)
            except BlockingIOError:
                claim = None
            except OSError as error:
                raise GeoattnError(f"{self.folder} is on a file system without locks: {error.strerror}.") from None
            yield claim
        finally:
            os.close(handle)  # lets go of the lock

    def is_held(self, name: str) -> bool:
        """Whether a process is at it."""
        try:
            handle = os.open(self._path(name), os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def deaths(self, name: str) -> int:
        """How many processes in a row died while they were at it."""
        try:
            handle = os.open(self._path(name), os.O_RDONLY)
        except OSError:
            return 0
        try:
            return _count(handle)
        finally:
            os.close(handle)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.lock"


def _count(handle: int) -> int:
    text = os.pread(handle, 16, 0)
    return int(text) if text.isdigit() else 0
