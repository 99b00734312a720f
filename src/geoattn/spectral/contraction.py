"""The Dobrushin coefficient of an attention map: how much one step of its Markov chain brings measures together."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

__all__ = ["dobrushin_coefficient"]

_HEAVY = 32  # columns from which a bound on the overlap of two rows is found
_BLOCK = 256  # rows whose bounds are in memory at once
_FULL = 256  # pairs of rows whose overlap is found at once


def dobrushin_coefficient(a: Float[np.ndarray, "n n"]) -> float:
    r"""The largest total variation between two rows, :math:`1 - \min_{ij} \sum_k \min(A_{ik}, A_{jk})`.

    The overlap of two rows is at least their overlap in some columns. So pairs that share more in the 32 heaviest
    columns than the smallest overlap found so far need no further look, and the others are taken by rising bound. The
    value is exact. Cost: :math:`O(n^2)` times 32 where most pairs share a heavy column or some pair shares nothing, as
    in attention of trained models; at most :math:`O(n^3)`.
    """
    n = len(a)
    if n < 2:
        return 0.0
    sums = a.sum(axis=1)
    least, row = np.inf, 0
    for _ in range(4):  # a row far from the last one, a few times: a good start
        distance = cdist(a[row : row + 1], a, "cityblock")[0]
        overlap = (sums[row] + sums - distance) / 2
        row = int(overlap.argmin())
        least = min(least, float(overlap[row]))
    heavy = np.ascontiguousarray(a[:, np.argpartition(-a.sum(axis=0), min(_HEAVY, n) - 1)[:_HEAVY]])
    shares = heavy.sum(axis=1)
    for first in range(0, n, _BLOCK):
        if least <= 0:
            break
        rows = slice(first, first + _BLOCK)
        bound = (shares[rows, None] + shares[first:] - cdist(heavy[rows], heavy[first:], "cityblock")) / 2
        x, y = np.nonzero(np.triu(bound < least, 1))
        if len(x) > bound.size // 8:  # the bound says little: all pairs at once
            distance = cdist(a[rows], a[first:], "cityblock")
            overlaps = (sums[rows, None] + sums[first:] - distance) / 2
            least = min(least, float(overlaps[np.triu_indices(len(overlaps), 1, overlaps.shape[1])].min()))
            continue
        order = np.argsort(bound[x, y])
        x, y = x[order], y[order]
        for start in range(0, len(x), _FULL):
            if bound[x[start], y[start]] >= least:
                break
            some = slice(start, start + _FULL)
            overlaps = np.minimum(a[x[some] + first], a[y[some] + first]).sum(axis=1)
            least = min(least, float(overlaps.min()))
    return float(min(1.0, max(0.0, 1.0 - least)))
