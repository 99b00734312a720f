"""Do the trials of a store with processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.runs.outcome import keep
from geoattn.runs.store import Store, TrialCounts
from geoattn.runs.trial import THREAD_SETTINGS, Trial, do_trial, find_trial

__all__ = ["run_here", "work"]

_CANNOT_STORE = 74  # exit code of a worker whose result could not be written (EX_IOERR)
_LOOK = 0.2  # seconds between looks at the workers

Progress = Callable[[TrialCounts], object] | None


def run_here(store: Store, configs: list[dict[str, Any]], trial: str, workers: int, progress: Progress) -> None:
    """One round: with one worker in this process, else in processes of their own, which may be killed."""
    if workers == 1:
        work(store, configs, find_trial(trial), progress)
    else:
        _spawn(store, trial, workers, configs, progress)


def work(store: Store, configs: list[dict[str, Any]], function: Trial, progress: Progress = None) -> None:
    """Do every trial that nobody did or does, one after the other.

    Those at which processes died come last, so that one that kills its process does not stop the rest. A result that
    cannot be written is an error: to go on would be to compute for nothing.
    """
    for config in sorted(configs, key=store.deaths):
        if store.is_done(config) or store.failure(config) is not None:
            continue
        with store.claim(config) as mine:
            if not mine:
                continue
            keep(store, config, do_trial(function, config, store.workspace(config)))
            store.clear_workspace(config)
        if progress is not None:
            progress(store.status(configs))


def _spawn(store: Store, trial: str, workers: int, configs: list[dict[str, Any]], progress: Progress) -> None:
    """Start workers and wait until all have ended, whatever way."""
    command = [sys.executable, "-m", "geoattn.runs.local", str(store.folder), store.study, str(store.version), trial]
    environment = {**os.environ, **dict.fromkeys(THREAD_SETTINGS, "1")}
    said = [tempfile.TemporaryFile() for _ in range(workers)]
    running = [
        # A pipe that nobody writes to: it ends when this process ends, and with it the worker.
        subprocess.Popen(
            [*command, "watch"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=file, env=environment
        )
        for file in said
    ]
    try:
        while any(worker.poll() is None for worker in running):
            for worker in running:
                if worker.poll() is None:
                    try:
                        worker.wait(_LOOK)
                    except subprocess.TimeoutExpired:
                        pass
                    break
            if progress is not None:
                progress(store.status(configs))
        for worker, file in zip(running, said, strict=True):
            if worker.returncode == _CANNOT_STORE:
                file.seek(0)
                raise GeoattnError(file.read().decode(errors="replace").strip().splitlines()[-1])
    finally:
        for worker, file in zip(running, said, strict=True):
            if worker.poll() is None:  # Ctrl-C: our own children only
                worker.kill()
                worker.wait()
            if worker.stdin is not None:
                worker.stdin.close()
            file.close()


def _main(folder: str, study: str, version: str, trial: str, watch: str = "") -> int:
    """One worker. With ``watch`` it ends when its standard input does: with the driver, however that ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    if watch:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    store = Store(folder, study, int(version))
    try:
        work(store, json.loads(Path(folder, "trials.json").read_text())["configs"], find_trial(trial))
    except GeoattnError as error:
        sys.stderr.write(f"{error}\n")
        return _CANNOT_STORE
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
