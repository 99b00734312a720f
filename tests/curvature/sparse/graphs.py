"""Sparse graphs for tests: random ones of many kinds, and conventions that reach every part of the solver."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.sparse import csr_array

from geoattn import Convention

#: Every combination of direction, length and measure, with laziness, denominators and the Lin-Lu-Yau limit among them.
CONVENTIONS = [
    Convention(direction=direction, length=length, measure=measure, alpha=alpha, denominator=denominator)
    for k, (direction, length, measure) in enumerate(
        itertools.product(
            ("mean", "max", "min", "product", "directed"),
            ("w", "1/w", "-log w", "1-w", "hop"),
            ("markov", "exponential", "uniform"),
        )
    )
    for alpha, denominator in [[(0.0, "distance"), (0.5, "length"), ("limit", "distance"), (0.3, "distance")][k % 4]]
]


def random_sparse(rng: np.random.Generator, n: int, degree: float, *, kind: str = "weights") -> csr_array:
    """A random matrix of about ``degree`` entries a row, with some self loops: an attention-like or symmetric one.

    kind: ``weights`` (asymmetric, uniform), ``symmetric``, ``ties`` (few distinct weights), ``unit``, ``hub``.
    """
    density = min(1.0, degree / n)
    dense = (rng.random((n, n)) < density) * rng.uniform(0.05, 1.0, (n, n))
    if kind == "hub":
        dense[0] = rng.uniform(0.05, 1.0, n)
        dense[:, 0] = dense[0]
    if kind == "ties":
        dense = np.ceil(dense * 3) / 3
    if kind == "unit":
        dense = (dense > 0).astype(float)
    if kind in ("symmetric", "hub", "unit"):
        dense = np.maximum(dense, dense.T)
    return csr_array(dense)


def as_rows(matrix: csr_array) -> np.ndarray:
    """Dense, each row divided by its sum, a row without entries with all of its mass on itself."""
    dense = matrix.toarray()
    sums = dense.sum(axis=1)
    dense[sums == 0, sums == 0] = 1.0
    for k in np.flatnonzero(sums == 0):
        dense[k] = 0.0
        dense[k, k] = 1.0
    return dense / dense.sum(axis=1, keepdims=True)
