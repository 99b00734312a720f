"""A folder of trials: each result is written once, and no two processes do the same trial.

    DIR/trials.json            study, version, size and the configurations, in order
    DIR/results/KEY.json       configuration and result of one trial; KEY is a hash of configuration, study and version
    DIR/claims/KEY.lock        held with flock while a process works on the trial: the kernel lets go when it dies
    DIR/failures/KEY.json      what went wrong, until the trial succeeds

A trial is a pure function of its configuration, so results carry no times and no paths.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoattn.curvature.result import write_atomically
from geoattn.errors import GeoattnError

__all__ = ["Status", "Store", "trial_key"]


def trial_key(study: str, version: int, config: dict[str, Any]) -> str:
    """Hash of what a result depends on.

    >>> trial_key("table1", 1, {"seed": 0, "data": "digits"}) == trial_key("table1", 1, {"data": "digits", "seed": 0})
    True
    """
    return hashlib.sha256(_canonical({"study": study, "version": version, "config": config})).hexdigest()[:24]


@dataclass(frozen=True)
class Status:
    """How far a store is: numbers of trials."""

    total: int
    done: int
    running: int
    failed: int

    @property
    def waiting(self) -> int:
        """Neither done, nor running, nor failed."""
        return self.total - self.done - self.running - self.failed


class Store:
    """The folder of one study at one version.

    Claims are kernel locks (flock): kill -9 of a worker frees its trial at once, and a claim is never stale. They hold
    between processes of one machine, and on file systems that share locks.

    Examples
    --------
    >>> import tempfile
    >>> from geoattn.runs.store import Store
    >>> store = Store(tempfile.mkdtemp(), "demo", 1)
    >>> with store.claim({"x": 2}) as mine:
    ...     if mine:
    ...         store.write({"x": 2}, {"square": 4})
    >>> store.read({"x": 2}), store.read({"x": 3})
    ({'square': 4}, None)
    >>> with store.claim({"x": 2}) as mine:  # done: nobody's to do
    ...     mine
    False
    """

    def __init__(self, folder: str | os.PathLike[str], study: str, version: int) -> None:
        self.folder, self.study, self.version = Path(folder), study, version

    def key(self, config: dict[str, Any]) -> str:
        """Name of a trial."""
        return trial_key(self.study, self.version, config)

    def plan(self, size: str, configs: list[dict[str, Any]]) -> None:
        """Write down what is to be done; a folder of another study, version or size is an error."""
        about = {"study": self.study, "version": self.version, "size": size, "configs": configs}
        path = self.folder / "trials.json"
        if path.exists():
            if json.loads(path.read_text()) != json.loads(_canonical(about)):
                raise GeoattnError(f"{self.folder} holds another study, version or size; choose another folder.")
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            raise GeoattnError(f"{self.folder} is not empty and holds no study; choose another folder.")
        write_atomically(path, lambda file: file.write(_canonical(about)))

    def read(self, config: dict[str, Any]) -> Any:
        """The result of a trial, or None; one that was damaged is an error."""
        path = self.folder / "results" / f"{self.key(config)}.json"
        try:
            content = json.loads(path.read_text())
            good = content["checksum"] == _checksum(content["result"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            good, content = False, {}
        if not good:
            raise GeoattnError(f"{path} is damaged; remove it and run the study again.")
        return content["result"]

    def write(self, config: dict[str, Any], result: Any) -> None:
        """Write a result, once: a second one must be equal."""
        before = self.read(config)
        plain = json.loads(_canonical(result))
        if before is not None:
            if before != plain:
                raise GeoattnError(f"trial {self.key(config)} has another result already: it is no pure function.")
            return
        content = {"config": config, "version": self.version, "result": plain, "checksum": _checksum(plain)}
        write_atomically(
            self.folder / "results" / f"{self.key(config)}.json", lambda file: file.write(_canonical(content))
        )
        self._failure(config).unlink(missing_ok=True)

    def fail(self, config: dict[str, Any], message: str) -> None:
        """Note why a trial failed."""
        content = _canonical({"config": config, "error": message})
        write_atomically(self._failure(config), lambda file: file.write(content))

    def failure(self, config: dict[str, Any]) -> str | None:
        """Why a trial failed, if it did."""
        path = self._failure(config)
        return json.loads(path.read_text())["error"] if path.exists() else None

    def forget_failures(self) -> None:
        """Failed trials may be tried again."""
        for path in (self.folder / "failures").glob("*.json"):
            path.unlink(missing_ok=True)

    @contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[bool]:
        """True inside the block if the trial is this process's to do: not done, and nobody else is at it."""
        path = self.folder / "claims" / f"{self.key(config)}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield self.read(config) is None  # after the lock: another may have finished it in between
        finally:
            os.close(handle)  # lets go of the lock

    def status(self, configs: list[dict[str, Any]]) -> Status:
        """How many trials are done, running and failed."""
        done = running = failed = 0
        for config in configs:
            if self.read(config) is not None:
                done += 1
            elif self._is_claimed(config):
                running += 1
            elif self._failure(config).exists():
                failed += 1
        return Status(len(configs), done, running, failed)

    def _is_claimed(self, config: dict[str, Any]) -> bool:
        path = self.folder / "claims" / f"{self.key(config)}.lock"
        if not path.exists():
            return False
        handle = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def _failure(self, config: dict[str, Any]) -> Path:
        return self.folder / "failures" / f"{self.key(config)}.json"


def _canonical(content: Any) -> bytes:
    """The same bytes for equal content; NaN is refused, as JSON has none."""
    try:
        return (json.dumps(content, sort_keys=True, allow_nan=False, indent=1) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise GeoattnError(f"configurations and results must be plain JSON: {error}.") from None


def _checksum(result: Any) -> str:
    return hashlib.sha256(_canonical(result)).hexdigest()
