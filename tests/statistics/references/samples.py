"""Samples without a random generator, the same everywhere."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def samples() -> dict[str, np.ndarray]:
    """Normal, uniform, two modes, heavy tail, of several sizes; from the fractional parts of k times a root."""

    def uniform(n: int, root: float) -> np.ndarray:
        return (np.arange(1, n + 1) * root + 0.3 * np.sin(np.arange(n) ** 2)) % 1.0

    found = {}
    for n in (5, 12, 60, 500, 3000):
        u = uniform(n, np.sqrt(2))
        found[f"uniform {n}"] = u
        found[f"normal {n}"] = ndtri(0.001 + 0.998 * u)
        found[f"cauchy {n}"] = np.tan(np.pi * (0.498 * (2 * u - 1)))
        found[f"ties {n}"] = np.round(4 * ndtri(0.001 + 0.998 * u))
        found[f"two modes {n}"] = ndtri(0.001 + 0.998 * uniform(n, np.sqrt(3))) + 3.0 * (np.arange(n) % 3 == 0)
    return found
