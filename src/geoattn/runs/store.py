"""A folder of trials: each result is written once, and no two processes do the same trial.

    DIR/trials.json            study, version, size and the configurations, in order
    DIR/results/KEY.json       configuration and result of one trial; KEY is a hash of configuration, study and version
    DIR/trials.jsonl           such trials packed into one file, a line each; a file in results/ comes before a line
    DIR/claims/KEY.lock        held with flock while a process works on the trial: the kernel lets go when it dies
    DIR/checkpoints/KEY/       what a trial under way keeps, to go on after a kill
    DIR/failures/KEY.json      what went wrong, until the trial succeeds
    DIR/damaged/KEY.json       a result that could not be read; its trial was done again
    DIR/version-1/             plan, table and figure of an earlier version of the study; its results stay in results/

A trial is a pure function of its configuration, so results carry no times and no paths.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.files import set_aside, write_atomically
from geoattn._core.text_files import read_json
from geoattn._core.versions import versions
from geoattn.runs.locks import Locks
from geoattn.runs.packed import PackedTrials, pack_folder
from geoattn.runs.plan import write_plan
from geoattn.runs.stored_trial import DamagedTrialError, canonical, checksum, is_sound, trial_key

__all__ = ["Store", "TrialCounts"]


@dataclass(frozen=True)
class TrialCounts:
    """How far a store is: numbers of trials. The damaged ones are done again by the next run."""

    total: int
    done: int
    running: int
    failed: int
    damaged: int = 0

    @property
    def waiting(self) -> int:
        """None of the others."""
        return self.total - self.done - self.running - self.failed - self.damaged

    @property
    def finished(self) -> int:
        """Done or failed: nothing is left to do for them."""
        return self.done + self.failed


class Store:
    """The folder of one study at one version.

    Claims are kernel locks: kill -9 of a worker frees its trial at once, and a claim is never stale.

    Examples
    --------
    >>> import tempfile
    >>> from geoattn.runs import Store
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
        self._packed = PackedTrials(self.folder / "trials.jsonl")
        self._claims = Locks(self.folder / "claims")
        self._good: dict[str, tuple[int, int] | None] = {}  # whose checksum was right: time and size of their file

    def key(self, config: dict[str, Any]) -> str:
        """Name of a trial."""
        return trial_key(self.study, self.version, config)

    def plan(self, size: str, configs: list[dict[str, Any]]) -> None:
        """Write down what is to be done.

        A folder of another study or size is an error. For a new version of the study all trials are done anew, beside
        the old results. A list that grew or shrank keeps the results of the trials that stay.
        """
        write_plan(self.folder, self._claims, study=self.study, version=self.version, size=size, configs=configs)

    def read(self, config: dict[str, Any]) -> Any:
        """The result of a trial, or None; one that was damaged is an error."""
        content = self.content(config)
        return None if content is None else content["result"]

    def content(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """All of a trial's file: config, version, result, checksum, made_with."""
        path = self._result(config)
        try:
            before = path.stat()
            content = read_json(path)
            good = is_sound(content, config)
        except FileNotFoundError:
            return self._unpacked(config)
        except OSError as error:
            raise GeoattnError(f"cannot read {path}: {error.strerror or error}.") from None
        except (ValueError, KeyError, TypeError):
            good, content, before = False, {}, None
        if not good or before is None:
            raise DamagedTrialError(f"{path} is damaged: the next run keeps it aside and does the trial again.")
        self._good[path.name] = (before.st_mtime_ns, before.st_size)
        return content

    def _unpacked(self, config: dict[str, Any]) -> dict[str, Any] | None:
        key = self.key(config)
        if key not in self._packed:
            return None
        content = self._packed.get(key)
        if content is None or not is_sound(content, config):
            raise DamagedTrialError(f"trial {key} in {self._packed.path} is damaged: the next run does it again.")
        self._good[key] = self._packed.stamp
        return content

    def pack(self) -> int:
        """Fold the files of finished trials into ``trials.jsonl``; how many they were. The same trials, the same bytes.

        Not while trials run: a worker that looks between the two steps would do a trial again.
        """
        with self._claims.hold("plan"):
            self._good.clear()
            return pack_folder(self.folder / "results", self._packed.path)

    def is_done(self, config: dict[str, Any]) -> bool:
        """Whether a good result is there; a file is read once, then only looked at."""
        path = self._result(config)
        try:
            now = path.stat()
        except OSError:
            key = self.key(config)
            if key in self._packed and self._good.get(key) == self._packed.stamp:
                return True
            try:
                return self._unpacked(config) is not None
            except DamagedTrialError:
                return False
        if self._good.get(path.name) == (now.st_mtime_ns, now.st_size):
            return True
        try:
            return self.read(config) is not None
        except DamagedTrialError:
            return False

    def is_damaged(self, config: dict[str, Any]) -> bool:
        """Whether a result is there that cannot be read."""
        return not self.is_done(config) and (self._result(config).exists() or self.key(config) in self._packed)

    def workspace(self, config: dict[str, Any]) -> Path:
        """The folder in which a trial may keep a checkpoint; it is made when something is written to it."""
        return self.folder / "checkpoints" / self.key(config)

    def clear_workspace(self, config: dict[str, Any]) -> None:
        """A trial that is done needs its checkpoint no more; one that failed keeps it for another try."""
        if self.is_done(config):
            shutil.rmtree(self.workspace(config), ignore_errors=True)

    def write(
        self, config: dict[str, Any], result: Any, *, provenance: dict[str, Any] | None = None,
        made_with: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write a result, once: a second one must be equal.

        ``provenance``: where and how it was made; ``made_with``: all of that, of a result from another store.
        """
        try:
            before = self.read(config)
        except DamagedTrialError:  # packed: a file in results/ was set aside by `claim`
            if self._result(config).exists():
                raise
            before = None
        plain = json.loads(canonical(result))
        if plain is None:
            raise GeoattnError("a trial must return something; got None.")
        if before is not None:
            if before != plain:
                raise GeoattnError(f"trial {self.key(config)} has another result already: it is no pure function.")
            return
        content = {"config": config, "version": self.version, "result": plain, "checksum": checksum(plain)}
        content["made_with"] = made_with or {**versions(), **(provenance or {})}
        write_atomically(self._result(config), lambda file: file.write(canonical(content)))
        self._failure(config).unlink(missing_ok=True)

    def fail(self, config: dict[str, Any], message: str) -> None:
        """Note why a trial failed."""
        content = canonical({"config": config, "error": message})
        write_atomically(self._failure(config), lambda file: file.write(content))

    def failure(self, config: dict[str, Any]) -> str | None:
        """Why a trial failed, if it did."""
        try:
            return str(read_json(self._failure(config))["error"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return "it failed, and the note of why is damaged"

    def failures(self, configs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """(configuration, why) of the trials that failed."""
        found = ((c, self.failure(c)) for c in configs if not self.is_done(c))
        return [(config, why) for config, why in found if why is not None]

    def forget_failures(self, configs: list[dict[str, Any]]) -> None:
        """Failed trials may be tried again."""
        for config in configs:
            if self._failure(config).exists():
                with self._claims.hold(self.key(config), wait=False) as held:
                    if held is not None:
                        held.clear()
                        self._failure(config).unlink(missing_ok=True)

    @contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[bool]:
        """True inside the block if the trial is this process's to do: not done, and nobody else is at it.

        What a killed process left is cleared away: half-written files, and a damaged result, which is kept aside.
        """
        with self._claims.hold(self.key(config), wait=False) as held:
            if held is None or self.is_done(config):  # after the lock: another may have finished it in between
                yield False
                return
            path = self._result(config)
            if path.exists():
                set_aside(path, self.folder / "damaged")
            for half in path.parent.glob(f".{path.name}.*.part"):
                half.unlink(missing_ok=True)
            with held.attempt():
                yield True

    def deaths(self, config: dict[str, Any]) -> int:
        """How many processes died in a row while they were at the trial."""
        return self._claims.deaths(self.key(config))

    def status(self, configs: list[dict[str, Any]]) -> TrialCounts:
        """How many trials are done, running, failed and damaged."""
        done = running = failed = damaged = 0
        for config in configs:
            if self.is_done(config):
                done += 1
            elif self._claims.is_held(self.key(config)):
                running += 1
            elif self._failure(config).exists():
                failed += 1
            elif self.is_damaged(config):
                damaged += 1
        return TrialCounts(len(configs), done, running, failed, damaged)

    def _result(self, config: dict[str, Any]) -> Path:
        return self.folder / "results" / f"{self.key(config)}.json"

    def _failure(self, config: dict[str, Any]) -> Path:
        return self.folder / "failures" / f"{self.key(config)}.json"
