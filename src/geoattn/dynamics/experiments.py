"""Experiments with known outcomes, as presets: parameters, what came out, what was expected."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from geoattn.curvature.result import write_atomically
from geoattn.dynamics.inputs import read_choice, read_whole
from geoattn.dynamics.progress import Progress, in_parts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIGURES", "Check", "Experiment", "experiment_names", "experiment_titles", "run_experiment"]

#: Figures of the code of Burger, Kabri, Korolev, Roith and Weigand 2025 -> experiments.
FIGURES = {
    "fig1": "one-token", "fig2": "split", "fig2b": "split-picture", "fig3": "repulsion", "fig4": "four-tokens",
    "fig5": "density", "fig6": "negative", "fig7": "indefinite",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One number that an experiment must reproduce: lowest <= found <= highest."""

    what: str
    found: float | int
    lowest: float | int
    highest: float | int

    @property
    def passed(self) -> bool:
        """Whether the number is within the bounds; NaN is not."""
        return self.lowest <= self.found <= self.highest

    @staticmethod
    def near(what: str, found: float | int, expected: float | int, within: float | int) -> Check:
        """A number that must be ``expected`` up to ``within``."""
        return Check(what, found, expected - within, expected + within)

    @staticmethod
    def least(what: str, found: float | int, lowest: float | int) -> Check:
        """A number that must be at least ``lowest``."""
        return Check(what, found, lowest, math.inf)


@dataclass(frozen=True)
class Experiment:
    """What ran, with which parameters, what came out, and whether it is what was expected.

    ``tokens`` holds final tokens by name, for pictures; ``table`` columns of numbers, for curves; ``notes`` are
    sentences on what came out beyond the checks.
    """

    name: str
    title: str
    parameters: dict[str, Any]
    checks: tuple[Check, ...]
    tokens: dict[str, Tensor] = field(default_factory=dict)
    table: dict[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def to_pandas(self) -> pd.DataFrame:
        """One row per check."""
        import pandas as pd

        rows = [(c.what, c.found, c.lowest, c.highest, c.passed) for c in self.checks]
        return pd.DataFrame(rows, columns=pd.Index(["what", "found", "lowest", "highest", "passed"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens and columns as a compressed .npz; ``header`` in it is JSON with parameters and checks."""
        checks = [{**vars(check), "passed": check.passed} for check in self.checks]
        header = json.dumps({"name": self.name, "parameters": self.parameters, "checks": checks, "notes": self.notes})
        arrays = {f"tokens:{name}": value.numpy() for name, value in self.tokens.items()}
        arrays |= {f"table:{name}": np.asarray(value) for name, value in self.table.items()}
        content: dict[str, Any] = {"header": np.array(header), **arrays}
        write_atomically(path, lambda file: np.savez_compressed(file, **content))


def _catalogue() -> dict[str, Callable[..., Experiment]]:
    from geoattn.dynamics import extremal_experiments as extremal
    from geoattn.dynamics import long_time_experiments as long_time
    from geoattn.dynamics.metastable_experiment import metastable

    return {
        "one-token": extremal.one_token,
        "split": extremal.split,
        "split-picture": extremal.split_picture,
        "repulsion": extremal.repulsion,
        "four-tokens": extremal.four_tokens,
        "density": extremal.density,
        "negative": extremal.negative,
        "indefinite": extremal.indefinite,
        "phase-diagram": long_time.phase,
        "staircase": long_time.staircase,
        "causal": long_time.causal,
        "long-context": long_time.long_context,
        "metastable": metastable,
    }


def experiment_names() -> tuple[str, ...]:
    """The names that `run_experiment` knows.

    >>> experiment_names()[:3]
    ('one-token', 'split', 'split-picture')
    """
    return tuple(_catalogue())


def experiment_titles() -> dict[str, str]:
    """What each experiment shows, in a sentence.

    >>> experiment_titles()["causal"]
    'With a causal mask ...'
    """
    return {name: (function.__doc__ or "").splitlines()[0] for name, function in _catalogue().items()}


def run_experiment(name: Any, *, size: Any = "paper", seed: Any = 42, progress: Progress | None = None) -> Experiment:
    """Run a preset at the published parameters (``paper``), or with fewer runs and steps (``small``).

    ``name`` is one of `experiment_names`, or one of `FIGURES` (fig1 to fig7). ``progress`` is called with how much is
    done and the total, now and then and at the end.

    >>> result = run_experiment("one-token", size="small")
    >>> result.passed
    True
    """
    catalogue = _catalogue()
    chosen = catalogue[read_choice("experiment", FIGURES.get(str(name), name), tuple(catalogue))]
    small = read_choice("size", size, ("paper", "small")) == "small"
    (tell,) = in_parts(progress, (1.0,))
    done = chosen(small=small, seed=read_whole("seed", seed, least=0), progress=tell)
    tell(1, 1)
    return done
