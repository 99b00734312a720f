"""Run the trials of a store with processes of this machine."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoattn.errors import GeoattnError
from geoattn.runs.store import Status, Store

__all__ = ["run_trials", "verify", "work"]

_PATIENCE = 3  # rounds in which workers died and nothing was finished

Trial = Callable[[dict[str, Any]], Any]


def run_trials(
    store: Store,
    size: str,
    configs: list[dict[str, Any]],
    trial: str,
    *,
    workers: int = 1,
    progress: Callable[[Status], object] | None = None,
) -> list[Any]:
    """Do what is not done yet, and return all results in order.

    ``trial`` names a function as ``module:function``. With one worker it runs here; with more, in processes of their
    own, which may be killed: what they were at is done again. Two drivers on one folder share the work. A trial that
    raises is an error at the end, when all others are done.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise GeoattnError(f"workers must be at least 1; got {workers!r}.")
    find_trial(trial)
    store.plan(size, configs)
    store.forget_failures()
    idle = 0
    while True:
        before = store.status(configs)
        if before.done + before.failed == before.total:
            break
        if workers == 1:
            work(store, configs, find_trial(trial), progress)
        else:
            _spawn(store, trial, workers, configs, progress)
        after = store.status(configs)
        idle = idle + 1 if after.done + after.failed == before.done + before.failed and not after.running else 0
        if idle == _PATIENCE:
            raise GeoattnError(f"workers died {idle} times without finishing a trial; see what they printed.")
        if after.running:  # another driver is at the rest
            import time

            time.sleep(0.2)
    bad = [config for config in configs if store.failure(config) is not None and store.read(config) is None]
    if bad:
        raise GeoattnError(
            f"{len(bad)} of {len(configs)} trials failed; first {json.dumps(bad[0])}: {store.failure(bad[0])}"
        )
    return [store.read(config) for config in configs]


def work(
    store: Store,
    configs: list[dict[str, Any]],
    trial: Trial,
    progress: Callable[[Status], object] | None = None,
) -> None:
    """Do every trial that nobody did or does, one after the other."""
    for config in configs:
        if store.read(config) is not None or store.failure(config) is not None:
            continue
        with store.claim(config) as mine:
            if not mine:
                continue
            try:
                store.write(config, trial(config))
            except Exception as error:
                store.fail(config, f"{type(error).__name__}: {error}")
        if progress is not None:
            progress(store.status(configs))


def verify(store: Store, configs: list[dict[str, Any]], trial: str, *, limit: int | None = None) -> list[str]:
    """Do finished trials once more and compare; returns a sentence for each that differs, none when all is well."""
    function, findings = find_trial(trial), []
    done = [config for config in configs if store.read(config) is not None]
    for config in done[:limit]:
        again = json.loads(json.dumps(function(config)))
        if again != store.read(config):
            findings.append(f"{store.key(config)} {json.dumps(config)}: stored {store.read(config)}, now {again}")
    return findings


def find_trial(name: str) -> Trial:
    """The function behind ``module:function``."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        raise GeoattnError(f"no trial function {name!r}; expected module:function.") from None


def _spawn(store: Store, trial: str, workers: int, configs: list[dict[str, Any]], progress: Any) -> None:
    """Start workers and wait until all have ended, whatever way."""
    command = [sys.executable, "-m", "geoattn.runs.local", str(store.folder), store.study, str(store.version), trial]
    running = [subprocess.Popen(command) for _ in range(workers)]
    try:
        while any(worker.poll() is None for worker in running):
            for worker in running:
                try:
                    worker.wait(0.2)
                except subprocess.TimeoutExpired:
                    pass
            if progress is not None:
                progress(store.status(configs))
    finally:
        for worker in running:  # Ctrl-C: our own children only
            if worker.poll() is None:
                worker.kill()
                worker.wait()


def _main(folder: str, study: str, version: str, trial: str) -> None:
    """One worker."""
    store = Store(folder, study, int(version))
    work(store, json.loads(Path(folder, "trials.json").read_text())["configs"], find_trial(trial))


if __name__ == "__main__":
    _main(*sys.argv[1:])
