"""What a study is: trials in three sizes, a table, a figure and a verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from geoattn.errors import GeoattnError
from geoattn.runs.drive import run_trials
from geoattn.runs.store import Status, Store
from geoattn.studies.output import as_plain, write_output

__all__ = ["STUDIES", "Finding", "Study", "as_plain", "find_study", "interval", "judge", "run_study"]

#: Studies by name, and the module of each; its ``STUDY`` is loaded when asked for.
STUDIES = {
    "appendix-c": "geoattn.studies.appendix_c",
    "curvature-training": "geoattn.studies.curvature_training",
    "fig10": "geoattn.studies.fig10",
    "fig11": "geoattn.studies.fig11",
    "fig12": "geoattn.studies.fig12",
    "fig13": "geoattn.studies.fig13",
    "fig14": "geoattn.studies.fig14",
    "fig3": "geoattn.studies.fig3",
    "fig4": "geoattn.studies.fig4",
    "fig5": "geoattn.studies.fig5",
    "fig6": "geoattn.studies.fig6",
    "fig7": "geoattn.studies.fig7",
    "fig8": "geoattn.studies.fig8",
    "fig9": "geoattn.studies.fig9",
    "lipschitz-growth": "geoattn.studies.lipschitz_growth",
    "mean-field": "geoattn.studies.mean_field",
    "phase-diagram": "geoattn.studies.phase_diagram",
    "section-5-1": "geoattn.studies.section_5_1",
    "smoothness-curvature": "geoattn.studies.smoothness_curvature",
    "spectral-link": "geoattn.studies.spectral_link",
    "table1": "geoattn.studies.table1",
    "token-flow": "geoattn.studies.token_flow",
}
SIZES = ("smoke", "small", "paper")


@dataclass(frozen=True)
class Finding:
    """A claim of a paper and what came out: the mean difference with a 95 % interval over ``trials`` pairs.

    ``verdict`` is ``replicated`` (the interval lies on the claimed side of 0), ``contradicted`` (on the other side) or
    ``not replicated`` (it contains 0, or there are too few trials for one). ``convention`` names the preset under which
    curvature was measured, where the claim is about curvature: a claim whose verdicts differ between presets depends on
    the convention. ``measure`` says in words what the difference is a difference of.
    """

    claim: str
    data: str
    difference: float
    low: float
    high: float
    trials: int
    verdict: Literal["replicated", "not replicated", "contradicted"]
    convention: str | None = None
    measure: str = ""


@dataclass(frozen=True)
class Study:
    """A study. ``trial`` names the trial function as ``module:function``; raise ``version`` when its results change.

    ``sizes`` maps smoke, small and paper to lists of configurations, ``table`` makes a data frame of (configuration,
    result) pairs, ``figure`` a matplotlib figure and ``verdict`` the findings. ``paper`` (ricci, smoothness or
    mean-field), ``place`` (where the paper makes the claim) and ``how`` (a sentence: how it was tested) go to the
    claims ledger.
    """

    name: str
    version: int
    trial: str
    sizes: Callable[[str], list[dict[str, Any]]]
    table: Callable[[list[tuple[dict[str, Any], Any]]], Any]
    figure: Callable[[list[tuple[dict[str, Any], Any]]], Any]
    verdict: Callable[[list[tuple[dict[str, Any], Any]]], list[Finding]]
    paper: str = ""
    place: str = ""
    how: str = ""

    def configs(self, size: str) -> list[dict[str, Any]]:
        """The trials of a size."""
        if size not in SIZES:
            raise GeoattnError(f"size must be one of {', '.join(SIZES)}; got {size!r}.")
        return self.sizes(size)


def find_study(name: str) -> Study:
    """A study by name.

    >>> find_study("table1").name
    'table1'
    """
    if name not in STUDIES:
        raise GeoattnError(f"unknown study {name!r}; expected one of {', '.join(STUDIES)}.")
    return import_module(STUDIES[name]).STUDY


def run_study(
    study: Study,
    size: str,
    out: str | os.PathLike[str],
    *,
    backend: str = "local",
    workers: int | None = None,
    address: str | None = None,
    retry: bool = False,
    progress: Callable[[Status], object] | None = None,
    reuse: Sequence[str | os.PathLike[str]] = (),
) -> list[Finding]:
    """Do all trials, then write NAME.csv, NAME.png and NAME.json (findings) beside them.

    ``out`` is the store: run it again to go on. The table has no times and no paths: the same trials, the same bytes.
    ``backend``, ``workers``, ``address`` and ``retry`` are those of `run_trials`.
    ``reuse`` are stores of other studies with the same trial function: what they have done is not done again.
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


def _take_over(study: Study, store: Store, configs: list[dict[str, Any]], folder: Path) -> None:
    """Copy the results that another study has for these configurations: a trial is a pure function."""
    try:
        about = json.loads((folder / "trials.json").read_text())
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


def interval(values: Float[np.ndarray, " k"]) -> tuple[float, float, float]:
    """Mean and 95 % interval by Student's t; an interval without bounds for fewer than two values.

    >>> import numpy as np
    >>> interval(np.array([1.0, 2.0, 3.0]))
    (2.0, -0.484, 4.484)
    """
    from scipy.stats import t

    mean = float(values.mean())
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def judge(claim: str, data: str, differences: Any, *, convention: str | None = None, measure: str = "") -> Finding:
    """The finding for a claim that the differences, one per seed, are above 0."""
    values = np.asarray(differences, dtype=np.float64)
    mean, low, high = interval(values)
    verdict = "replicated" if low > 0 else "contradicted" if high < 0 else "not replicated"
    return Finding(claim, data, mean, low, high, len(values), verdict, convention, measure)
