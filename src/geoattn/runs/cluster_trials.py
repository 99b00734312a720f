"""Do the trials of a store as tasks of a Ray cluster.

The driver holds the claims and writes the results, which return to it: nodes need no shared folder, and two drivers,
with any backend, can share one. A node that dies takes its tasks with it; they are done again on another.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

from geoattn._core.versions import versions
from geoattn.runs.cluster import check_versions, cluster, processors
from geoattn.runs.local import Progress
from geoattn.runs.outcome import Outcome, keep
from geoattn.runs.store import Store
from geoattn.runs.trial import do_trial, find_trial

__all__ = ["run_on_ray"]

_DEATHS = 5  # of processes or nodes at one trial, after which it is a failure
_LOOK = 0.5  # seconds between looks at what others do


def run_on_ray(
    store: Store,
    configs: list[dict[str, Any]],
    trial: str,
    workers: int | None,
    address: str | None,
    progress: Progress,
) -> None:
    """One round: all trials that nobody did or does, at most ``workers`` at a time, by default one per processor."""
    with cluster(address, workers) as ray, ExitStack() as everything:
        task = ray.remote(num_cpus=1, max_retries=0)(_task)
        deaths: Counter[str] = Counter()
        # the trials that we are at, with their claims
        held: dict[Any, tuple[dict[str, Any], ExitStack]] = {}
        everything.callback(lambda: [claim.close() for _, claim in held.values()])
        while True:
            room = (workers or processors(ray)) - len(held)
            for config in sorted(configs, key=lambda c: deaths[store.key(c)]):
                if room <= 0:
                    break
                if store.is_done(config) or store.failure(config) is not None:
                    continue
                claim = ExitStack()
                if not claim.enter_context(store.claim(config)):
                    claim.close()
                    continue
                held[task.remote(trial, config)] = (config, claim)
                room -= 1
            if not held:
                return
            ready, _ = ray.wait(list(held), num_returns=1, timeout=_LOOK)
            for reference in ready:
                config, claim = held.pop(reference)
                with claim:
                    _collect(ray, reference, store, config, deaths)
            if progress is not None:
                progress(store.status(configs))


def _collect(ray: Any, reference: Any, store: Store, config: dict[str, Any], deaths: Counter[str]) -> None:
    try:
        outcome, theirs = ray.get(reference)
    except ray.exceptions.RayError as error:  # the process or its node died; what a trial raises comes as an outcome
        key = store.key(config)
        deaths[key] += 1
        if deaths[key] == _DEATHS:
            why = str(error).strip().splitlines()
            store.fail(config, f"its process died {_DEATHS} times: {why[0] if why else type(error).__name__}")
        return
    check_versions(theirs)
    keep(store, config, Outcome(*outcome))


def _task(trial: str, config: dict[str, Any]) -> tuple[Outcome, dict[str, str]]:
    """On a node."""
    try:
        function = find_trial(trial)
    except ValueError as error:
        return Outcome(None, f"on a node of the cluster: {error}"), versions()
    return do_trial(function, config), versions()
