"""What an experiment gives: parameters, what came out, what was expected."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from geoattn._core.display import Displayed
from geoattn._core.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Check", "Experiment"]


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


@dataclass(frozen=True, repr=False)
class Experiment(Displayed):
    """What ran, with which parameters, what came out, and whether it is what was expected.

    ``tokens`` holds final tokens by name, for pictures; ``table`` columns of numbers, for curves; ``notes`` are
    sentences on what came out beyond the checks. The registry fills in ``name``, ``title`` and ``reference``.

    Examples
    --------
    >>> from geoattn.dynamics import run_experiment
    >>> run_experiment("one-token", size="small").passed
    True
    """

    parameters: dict[str, Any]
    checks: tuple[Check, ...]
    tokens: dict[str, Tensor] = field(default_factory=dict)
    table: dict[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    name: str = ""
    title: str = ""
    reference: str = ""

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
