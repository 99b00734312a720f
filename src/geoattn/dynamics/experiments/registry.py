"""The experiments with known outcomes, by name: each registers once, in the file that runs it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from geoattn._core.arguments import read_choice, read_count
from geoattn._core.errors import GeoattnError
from geoattn._core.progress import Progress, in_parts
from geoattn.dynamics.experiments.outcome import Experiment

__all__ = [
    "FIGURES",
    "REGISTRY",
    "Entry",
    "experiment_names",
    "experiment_titles",
    "experiments",
    "register",
    "run_experiment",
]

#: Figures of the code of Burger, Kabri, Korolev, Roith and Weigand 2025 -> experiments.
FIGURES = {
    "fig1": "one-token", "fig2": "split", "fig2b": "split-picture", "fig3": "repulsion", "fig4": "four-tokens",
    "fig5": "density", "fig6": "negative", "fig7": "indefinite",
}  # fmt: skip


@runtime_checkable
class Runner(Protocol):
    """The contract of an experiment: the published size or a small one, a seed, and how far it is."""

    def __call__(self, *, small: bool, seed: int, progress: Progress) -> Experiment: ...


@dataclass(frozen=True)
class Entry:
    """A named experiment.

    ``shows`` is a sentence; ``reference`` the work whose outcome it reproduces; ``source`` says what of the outcome is
    stated there and what is derived here.
    """

    name: str
    shows: str
    reference: str
    source: str
    run: Runner


#: Name -> experiment, in the order in which they register. `experiments` fills it.
REGISTRY: dict[str, Entry] = {}


def register(name: str, *, reference: str, source: str) -> Callable[[Runner], Runner]:
    """Enter a function in the registry. The first line of its docstring says what it shows."""

    def enter(run: Runner) -> Runner:
        if name in REGISTRY:
            raise GeoattnError(f"two experiments have the name {name!r}.")
        shows = (run.__doc__ or "").strip().splitlines()
        if not shows:
            raise GeoattnError(f"the experiment {name!r} needs a docstring: its first line says what it shows.")
        REGISTRY[name] = Entry(name, shows[0], reference, source, run)
        return run

    return enter


@functools.cache
def _load() -> None:
    """Import each file of this folder once; a new file needs no entry elsewhere."""
    package = importlib.import_module("geoattn.dynamics.experiments")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def experiments() -> dict[str, Entry]:
    """All experiments by name.

    Examples
    --------
    >>> experiments()["causal"].reference
    'Karagodin, Polyanskiy and Rigollet 2024, arXiv 2411.04990'
    """
    _load()
    return REGISTRY


def experiment_names() -> tuple[str, ...]:
    """The names that `run_experiment` knows.

    Examples
    --------
    >>> from geoattn.dynamics import experiment_names
    >>> experiment_names()[:3]
    ('one-token', 'split', 'split-picture')
    """
    return tuple(experiments())


def experiment_titles() -> dict[str, str]:
    """What each experiment shows, in a sentence.

    Examples
    --------
    >>> experiment_titles()["causal"]
    'With a causal mask ...'
    """
    return {name: entry.shows for name, entry in experiments().items()}


def run_experiment(name: Any, *, size: Any = "paper", seed: Any = 42, progress: Progress | None = None) -> Experiment:
    """Run a preset at the published parameters (``paper``), or with fewer runs and steps (``small``).

    ``name`` is one of `experiment_names`, or one of `FIGURES` (fig1 to fig7). ``progress`` is called with how much is
    done and the total, now and then and at the end.

    Examples
    --------
    >>> from geoattn.dynamics import run_experiment
    >>> result = run_experiment("one-token", size="small")
    >>> result.passed
    True
    """
    known = experiments()
    entry = known[read_choice("experiment", FIGURES.get(str(name), name), tuple(known))]
    small = read_choice("size", size, ("paper", "small")) == "small"
    (tell,) = in_parts(progress, (1.0,))
    done = entry.run(small=small, seed=read_count("seed", seed, least=0), progress=tell)
    tell(1, 1)
    return dataclasses.replace(done, name=entry.name, title=entry.shows, reference=entry.reference)
