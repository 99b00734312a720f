"""Drive a store to its end: whatever was killed before, do what is left, and return all results in order."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.runs.local import Progress, run_here
from geoattn.runs.store import Store
from geoattn.runs.trial import do_trial, find_trial

__all__ = ["BACKENDS", "compare_again", "run_trials"]

#: Where trials can run: processes of this machine, or tasks of a Ray cluster.
BACKENDS = ("local", "ray")

_PATIENCE = 3  # rounds in which workers died and nothing was finished
_SHOWN = 5  # failures that are told in full


def run_trials(
    store: Store,
    size: str,
    configs: list[dict[str, Any]],
    trial: str,
    *,
    backend: str = "local",
    workers: int | None = None,
    address: str | None = None,
    retry: bool = False,
    progress: Progress = None,
) -> list[Any]:
    """Do the trials that are not done yet, and return all results in order.

    ``trial`` names a function of a configuration as ``module:function``. With the local backend one worker (the
    default) runs in this process, more workers run in processes of their own. With Ray the trials are tasks of the
    cluster at ``address``, at most ``workers`` at a time. Every process may be killed; the next run repeats what it was
    doing. Two drivers on one folder share the work. Trials that raise, or that kill their process several times, are an
    error after all others are done; ``retry`` tries them again.

    Examples
    --------
    >>> import tempfile
    >>> from geoattn.runs import Store, run_trials
    >>> store = Store(tempfile.mkdtemp(), "demo", 1)
    >>> run_trials(store, "small", [{"x": 2}, {"x": 3}], "json:dumps")  # any importable function of a configuration
    ['{"x": 2}', '{"x": 3}']
    >>> store.read({"x": 3})
    '{"x": 3}'
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise GeoattnError(f"workers must be at least 1; got {workers!r}.")
    if backend not in BACKENDS:
        raise GeoattnError(f"backend must be {' or '.join(BACKENDS)}; got {backend!r}.")
    if address is not None and backend != "ray":
        raise GeoattnError("an address is that of a Ray cluster: give it with backend ray.")
    find_trial(trial)
    store.plan(size, configs)
    _mention_damaged(store, configs)
    if retry:
        store.forget_failures(configs)
    idle = 0
    while (before := store.status(configs)).finished < before.total:
        if progress is not None:
            progress(before)
        if backend == "ray":
            from geoattn.runs.cluster_trials import run_on_ray

            run_on_ray(store, configs, trial, workers, address, progress)
        else:
            run_here(store, configs, trial, workers or 1, progress)
        after = store.status(configs)
        idle = idle + 1 if after.finished == before.finished and not after.running else 0
        if idle == _PATIENCE:
            _give_up(store, configs)
        if after.running:  # another driver is at the rest
            time.sleep(0.2)
    _tell_failures(store, configs)
    return [store.read(config) for config in configs]


def compare_again(store: Store, configs: list[dict[str, Any]], trial: str, *, limit: int | None = None) -> list[str]:
    """Do finished trials once more; a sentence for each that differs. ``limit``: so many, spread over the list."""
    function, findings = find_trial(trial), []
    done = [config for config in configs if store.is_done(config)]
    if limit is not None and limit < len(done):
        done = [done[k * len(done) // limit] for k in range(limit)]
    for config in done:
        result, error, _ = do_trial(function, config)
        now = f"failed ({error})" if error is not None else json.loads(json.dumps(result))
        if error is not None or now != store.read(config):
            findings.append(f"{store.key(config)} {json.dumps(config)}: stored {store.read(config)}, now {now}")
    return findings


def _mention_damaged(store: Store, configs: list[dict[str, Any]]) -> None:
    bad = [store.key(config) for config in configs if store.is_damaged(config)]
    if bad:
        names = ", ".join(bad[:_SHOWN]) + ", ..." * (len(bad) > _SHOWN)
        warnings.warn(
            f"{len(bad)} results in {store.folder} are damaged ({names}): they are kept in {store.folder / 'damaged'}"
            " and their trials are done again.",
            GeoattnWarning,
            stacklevel=3,
        )


def _give_up(store: Store, configs: list[dict[str, Any]]) -> None:
    """What is left killed its process each time."""
    for config in configs:
        if not store.is_done(config) and store.failure(config) is None:
            times = store.deaths(config)
            with store.claim(config) as mine:
                if mine:
                    store.fail(config, f"its process died {times} times: out of memory, or a crash")


def _tell_failures(store: Store, configs: list[dict[str, Any]]) -> None:
    bad = store.failures(configs)
    if bad:
        shown = "; ".join(f"{json.dumps(config)}: {why}" for config, why in bad[:_SHOWN])
        rest = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise GeoattnError(
            f"{len(bad)} of {len(configs)} trials failed, the others are done: {shown}{rest}. Retry them with --retry"
            " (retry=True)."
        )
