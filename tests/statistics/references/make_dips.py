"""Records dips.json: dips of `samples`, p-values and critical values, by the package diptest (here 0.12.0) from PyPI.

Run in an environment with diptest and SciPy: python -m tests.statistics.references.make_dips
"""

from __future__ import annotations

import json
from pathlib import Path

import diptest
import numpy as np
from scipy.optimize import brentq

from tests.statistics.references.samples import samples


def critical(n: int, level: float) -> float:
    """The dip at which the tabulated p-value is 1 - level; found on a sample that is stretched until it dips so."""
    left, right = np.linspace(0, 1, n // 2), np.linspace(0, 1, n - n // 2)

    def sample(gap: float) -> np.ndarray:
        return np.concatenate([left, 1 + gap + right])

    def excess(gap: float) -> float:
        return diptest.diptest(sample(gap))[1] - (1 - level)

    return float(diptest.dipstat(sample(brentq(excess, 0.01, 3.0))))


if __name__ == "__main__":
    record = {
        "diptest": diptest.__version__,
        "dips": {name: float(diptest.dipstat(x)) for name, x in samples().items()},
        "critical": {
            f"{n} {level}": critical(n, level)
            for n in (20, 50, 100, 200, 1000, 10000)
            for level in (0.5, 0.9, 0.95, 0.99)
        },
    }
    Path(__file__).with_name("dips.json").write_text(json.dumps(record, indent=1) + "\n")
