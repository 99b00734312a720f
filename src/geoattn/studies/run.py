"""Run a study: do its trials, then write table, figure and findings beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json
from geoattn.runs.drive import run_trials
from geoattn.runs.store import Store, TrialCounts
from geoattn.studies.catalogue import find_study
from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.output import write_output
from geoattn.studies.engine.study import Study

__all__ = ["run_study", "take_results"]


def run_study(
    study: Study,
    size: str,
    out: str | os.PathLike[str],
    *,
    backend: str = "local",
    workers: int | None = None,
    address: str | None = None,
    retry: bool = False,
    progress: Callable[[TrialCounts], object] | None = None,
    reuse: Sequence[str | os.PathLike[str]] = (),
) -> list[Finding]:
    """Do all trials, then write NAME.csv, NAME.png and NAME.json (findings) beside them.

    ``out`` is the store: run it again to go on. The table has no times and no paths: the same trials, the same bytes.
    ``backend``, ``workers``, ``address`` and ``retry`` are those of `run_trials`.
    ``reuse`` are stores of other studies with the same trial function: what they have done is not done again.

    Examples
    --------
    >>> from geoattn.studies import find_study, run_study
    >>> study = find_study("appendix-c")
    >>> len(study.configs("smoke")) > 0  # run_study(study, "smoke", "results/appendix-c") does these trials
    True
    """
    configs = study.configs(size)
    store = Store(out, study.name, study.version)
    if reuse:
        store.plan(size, configs)
    for folder in reuse:
        _take_over(study, store, configs, Path(folder))
    results = run_trials(
        store, size, configs, study.trial, backend=backend, workers=workers, address=address, retry=retry,
        progress=progress,
    )  # fmt: skip
    return write_output(study, size, store, list(zip(configs, results, strict=True)))


def take_results(study: Study, size: str, out: str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[Finding]:
    """Copy the finished trials of a store that is still under way, pack them, and write the output of what is there.

    For long studies (``partial``): the store of the running trials stays where it is.
    """
    if not study.partial:
        raise GeoattnError(f"{study.name} is written when all of its trials are done; run it.")
    configs, store = study.configs(size), Store(out, study.name, study.version)
    source = Store(folder, study.name, study.version)
    store.plan(size, configs)
    for config in configs:
        content = source.content(config) if source.is_done(config) else None
        if content is not None and not store.is_done(config):
            store.write(config, content["result"], made_with=content["made_with"])
    store.pack()
    pairs = [(config, store.read(config)) for config in configs if store.is_done(config)]
    if not pairs:
        raise GeoattnError(f"{folder} has no finished trial of {study.name} yet.")
    return write_output(study, size, store, pairs)


def _take_over(study: Study, store: Store, configs: list[dict[str, Any]], folder: Path) -> None:
    """Copy the results that another study has for these configurations: a trial is a pure function."""
    try:
        about = read_json(folder / "trials.json")
        other, version = find_study(about["study"]), about["version"]
    except (OSError, ValueError, KeyError):
        raise GeoattnError(f"{folder} holds no study to take results from.") from None
    if (other.trial, version) != (study.trial, study.version):
        raise GeoattnError(
            f"{folder} holds {other.name} version {version}, whose trials are not those of {study.name}."
        )
    source = Store(folder, other.name, version)
    for config in configs:
        result = source.read(config)
        if result is not None:
            store.write(config, result)
