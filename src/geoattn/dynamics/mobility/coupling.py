"""Which token goes where: optimal couplings of two weighted sets of tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array, vstack

from geoattn._core.errors import GeoattnError

__all__ = ["Coupling", "optimal_coupling"]

_LEAST = 1e-13  # mass below is rounding


class Coupling(NamedTuple):
    """Mass ``mass[k]`` goes from token ``source[k]`` of the first measure to ``target[k]`` of the second."""

    source: Int[np.ndarray, " k"]
    target: Int[np.ndarray, " k"]
    mass: Float[np.ndarray, " k"]


def optimal_coupling(
    cost: Float[np.ndarray, "n m"], mu: Float[np.ndarray, " n"], nu: Float[np.ndarray, " m"]
) -> Coupling:
    """The coupling of least cost: an assignment for equal masses, else a vertex of the transport polytope by HiGHS.

    O(n^3) for equal masses. A vertex has at most n + m - 1 entries.

    Examples
    --------
    >>> optimal_coupling(np.array([[0.0, 1.0], [1.0, 0.0]]), np.full(2, 0.5), np.full(2, 0.5)).target
    array([0, 1])
    """
    n, m = cost.shape
    if n == m and np.ptp(mu) < 1e-14 and np.ptp(nu) < 1e-14:
        source, target = linear_sum_assignment(cost)
        return Coupling(source, target, mu[source].copy())
    rows, columns = np.divmod(np.arange(n * m), m)
    ones, places = np.ones(n * m), np.arange(n * m)
    sums = vstack([coo_array((ones, (rows, places))), coo_array((ones, (columns, places)))])
    done = linprog(cost.ravel(), A_eq=sums.tocsr(), b_eq=np.concatenate([mu, nu]), method="highs-ds")
    if done.status != 0:
        raise GeoattnError(f"no optimal coupling of {n} and {m} tokens was found: {done.message}")
    kept = np.flatnonzero(done.x > _LEAST)
    return Coupling(rows[kept], columns[kept], done.x[kept] / done.x[kept].sum())
