"""A disk that fails: faults at any change of a folder, in a child process that runs one job.

An audit hook of Python sees every file that is opened for writing, renamed, made or removed; `os.fsync` is replaced.
The k-th such change inside the folder is where the fault happens:

    kill       SIGKILL before the change
    power      the same, and what was not synced is lost: files end anywhere, names that no sync of their folder
               followed go back to what they were, each or not by a seeded coin (writes in another order)
    interrupt  Ctrl-C before the change
    full       no space left, for this change and all later ones that need space
    readonly   a read-only file system, for this change and all later ones
    torn       the file that is synced keeps half of its bytes, and the sync fails
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("kill", "power", "interrupt", "full", "readonly", "torn")
_NEED_SPACE = ("open", "mkdir", "fsync")
DONE, REFUSED, INTERRUPTED, CRASHED = 0, 2, 130, 70


class FaultyDisk:
    """Counts the changes of a folder in this process, and fails at one of them; 0: never."""

    def __init__(self, folder: Path, kind: str, at: int, seed: int, graves: Path) -> None:
        self.folder, self.kind, self.at, self.graves = os.path.realpath(folder), kind, at, graves
        self.random, self.count, self.busy = random.Random(seed), 0, False
        self.unsynced: dict[str, int] = {}  # files by the length that is surely on the disk
        self.undo: list[tuple[str, str, str | None]] = []  # folder, name, copy of what it was

    def install(self) -> None:
        real_fsync = os.fsync

        def fsync(handle: int) -> None:
            path = os.path.realpath(f"/proc/self/fd/{handle}")
            if self._inside(path) and not os.path.isdir(path):
                self.change("fsync", path, lambda: os.truncate(path, os.path.getsize(path) // 2))
            real_fsync(handle)
            if os.path.isdir(path):
                self.undo = [one for one in self.undo if one[0] != path]
            elif os.path.exists(path):
                self.unsynced[path] = os.path.getsize(path)

        os.fsync = fsync
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:
            return
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2]
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and self._inside(path) and not path.endswith(".lock"):
                self.change("open", path)
                self.unsynced.setdefault(path, os.path.getsize(path) if os.path.exists(path) else 0)
        elif event == "os.rename":
            source, target = (os.path.realpath(os.fsdecode(a)) for a in arguments[:2])
            if self._inside(target):
                self.change("rename", target)
                self._remember(source, target)
                self.unsynced[target] = self.unsynced.pop(source, os.path.getsize(source))
        elif event in ("os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if self._inside(path) and not path.endswith(".lock"):
                self.change(event.split(".")[1], path)
                if event == "os.remove":
                    self._remember(path)

    def _inside(self, path: str) -> bool:
        return path.startswith(self.folder + os.sep) or path == self.folder

    def change(self, what: str, path: str, tear: Callable[[], Any] | None = None) -> None:
        """One change is about to happen."""
        self.count += 1
        if not self.at or self.count < self.at or os.getpid() != _CHILD:
            return
        first = self.count == self.at
        if self.kind in ("kill", "power") and first:
            if self.kind == "power":
                self.busy = True
                self._lose_power()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "interrupt" and first:
            raise KeyboardInterrupt
        if self.kind == "full" and what in _NEED_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.kind == "readonly":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if self.kind == "torn" and first and tear is not None:
            tear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _remember(self, *paths: str) -> None:
        """What names stand for before they change."""
        self.busy = True
        for path in paths:
            copy = None
            if os.path.isfile(path):
                copy = str(self.graves / f"{len(self.undo)}-{os.path.basename(path)[:60]}")
                shutil.copyfile(path, copy)
            self.undo.append((os.path.dirname(path), path, copy))
        self.busy = False

    def _lose_power(self) -> None:
        for path, length in self.unsynced.items():
            if os.path.isfile(path) and os.path.getsize(path) > length:
                os.truncate(path, self.random.randint(length, os.path.getsize(path)))
        for folder, path, copy in reversed(self.undo):
            if os.path.isdir(folder) and self.random.random() < 0.5:
                shutil.copyfile(copy, path) if copy else Path(path).unlink(missing_ok=True)


_CHILD = 0


def run_child(job: Callable[[Path], Any], folder: Path, kind: str, at: int, seed: int = 0) -> tuple[int, int, str]:
    """Run a job on a faulty disk in a fork: how it ended (minus the signal, or a code), changes, and what it said."""
    global _CHILD
    graves = folder.parent / f"graves-{os.getpid()}-{folder.name}"
    graves.mkdir(exist_ok=True)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code, said, disk = CRASHED, "", None
        try:
            _CHILD = os.getpid()
            os.close(read)
            sys.stdout, sys.stderr = open(os.devnull, "w"), io.StringIO()
            disk = FaultyDisk(folder, kind, at, seed, graves)
            disk.install()
            code, said = ended(job, folder)
            said = said or sys.stderr.getvalue()
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(write, f"{disk.count if disk else 0}\n{said[-3000:]}".encode(errors="replace"))
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    shutil.rmtree(graves, ignore_errors=True)
    count, _, said = text.partition("\n")
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), int(count or 0), said


def ended(job: Callable[[Path], Any], folder: Path) -> tuple[int, str]:
    """How a job ends: done, refused in words, interrupted, or a crash with its traceback."""
    from geoattn._core.errors import GeoattnError

    try:
        code = job(folder)
        return (code, "") if isinstance(code, int) else (DONE, "")
    except GeoattnError as error:
        return REFUSED, str(error)
    except KeyboardInterrupt:
        return INTERRUPTED, "interrupted"
    except OSError as error:  # the command line makes one line of it
        return (
            (REFUSED, str(error)) if error.errno in (errno.ENOSPC, errno.EROFS, errno.EIO) else (CRASHED, repr(error))
        )
    except BaseException:
        return CRASHED, traceback.format_exc()
