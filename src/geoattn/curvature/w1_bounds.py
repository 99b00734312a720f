"""Certified bounds of W1 by 1-Lipschitz functions and by plans; `curvature_bounds` says by which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from geoattn.curvature.excess import Excess, MetricGraph
from geoattn.curvature.transport import Status

__all__ = ["Kernels", "w1_bounds"]

# Epsilon of the kernel exp(-d / epsilon) as a share of the mean distance. Measured on softmax attention of 17
# to 197 tokens: smaller shares need more steps for the same width.
_SHARE = 0.05
_TINY = 1e-290  # stands for sums of the kernel that underflow; capping a potential keeps it 1-Lipschitz
_POTENTIAL_RANGE = 700.0  # > -log(_TINY): no potential exceeds this many epsilon
_MET = 1e-9  # of kappa: bounds this close need no more work


@dataclass(frozen=True)
class Kernels:
    """What all pairs of a graph share. ``costs``: distances, the largest one where there is no path."""

    costs: Float[np.ndarray, "n n"]
    kernel: Float[np.ndarray, "n n"]
    weighted: Float[np.ndarray, "n n"]  # kernel * costs
    leave: Float[np.ndarray, " n"]  # distance to the nearest other token
    arrive: Float[np.ndarray, " n"]  # from the nearest other token
    epsilon: float
    largest: float
    directed: bool

    @classmethod
    def of(cls, metric: MetricGraph) -> Kernels:
        """O(n^2)."""
        d = metric.distances
        finite = d[np.isfinite(d)]
        largest = float(finite.max())
        epsilon = _SHARE * float(finite.sum()) / max(1, len(finite) - len(d))
        epsilon = epsilon if epsilon > 0 else 1.0
        costs = d if len(finite) == d.size else np.where(np.isfinite(d), d, largest)
        kernel = np.divide(d, -epsilon)
        with np.errstate(under="ignore"):
            np.exp(kernel, out=kernel)
        others = np.where(np.eye(len(d), dtype=bool), largest, costs)
        leave, arrive, directed = others.min(axis=1), others.min(axis=0), metric.graphs.convention.directed
        np.multiply(kernel, costs, out=others)
        return cls(costs, kernel, others, leave, arrive, epsilon, largest, directed)


def w1_bounds(problem: Excess, kernels: Kernels, steps: int) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
    """Lower and upper bound of W1 of each pair, with room for rounding."""
    s, t, costs, epsilon = problem.surplus, problem.deficit, kernels.costs, kernels.epsilon
    n = len(costs)
    # A sum of n products is off by at most n eps times the sum of their sizes; distances are sums of up to n
    # lengths; measures are off by n eps of their whole mass, because their rows were scaled to one. 8 covers
    # the handful of such sums in a row.
    slack = 8 * (n + 16) * np.finfo(np.float64).eps * (1.0 + np.maximum(s.sum(axis=1), t.sum(axis=1)))
    difference = s - t
    from_s, from_t = s @ costs, t @ costs  # sum_a s_a d(a, k)
    to_k = from_s - from_t
    from_k = difference @ costs.T if kernels.directed else to_k
    low = np.maximum(to_k.max(axis=1), -from_k.min(axis=1))  # f = d(., k) and f = -d(k, .)
    low = np.maximum(low, np.maximum(s @ kernels.leave, t @ kernels.arrive)) - slack * kernels.largest

    missing = t.sum(axis=1)
    high = (from_s * t).sum(axis=1) / np.where(missing > 0, missing, 1.0)
    high += slack * kernels.largest
    # not where the first bounds meet (all distances equal) or there is no value
    wide = (problem.status == Status.SOLVED) & (high - low > _MET * problem.denominator)
    if steps and wide.any():
        s, t, slack = (s, t, slack) if wide.all() else (s[wide], t[wide], slack[wide])
        soft_low, soft_high = _kernel_bounds(s, t, kernels, steps)
        low[wide] = np.maximum(low[wide], soft_low - slack * (kernels.largest + _POTENTIAL_RANGE * epsilon))
        high[wide] = np.minimum(high[wide], soft_high + slack * kernels.largest)
    return np.maximum(low, 0.0), high


def _kernel_bounds(
    s: Float[np.ndarray, "e n"], t: Float[np.ndarray, "e n"], kernels: Kernels, steps: int
) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
    """The bounds of the soft potentials and of the cut plan, before rounding is allowed for."""
    K, costs, epsilon = kernels.kernel, kernels.costs, kernels.epsilon
    u, v, to_t, to_s = s, t, t, s
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for _ in range(steps):
            to_t = np.maximum(v @ K.T, _TINY)
            u = s / to_t
            to_s = np.maximum(u @ K, _TINY)
            v = t / to_s
        difference = s - t
        low = epsilon * np.maximum(
            -(difference * np.log(to_t)).sum(axis=1),  # f = -epsilon log K v
            (difference * np.log(to_s)).sum(axis=1),  # f = epsilon log K^T u
        )
        # the columns of diag(u) K diag(v) are right; rows that are too large are scaled down
        to_t = v @ K.T
        u = u * np.minimum(1.0, s / np.maximum(u * to_t, _TINY))
        left = np.maximum(s - u * to_t, 0.0)
        missing = np.maximum(t - v * (u @ K), 0.0)
        total = missing.sum(axis=1)
        rest = ((left @ costs) * missing).sum(axis=1) / np.where(total > 0, total, 1.0)
        # surplus left over with nothing missing is rounding; it counts at the largest distance
        rest = np.where(total > 0, rest, left.sum(axis=1) * kernels.largest)
        high = (u * (v @ kernels.weighted.T)).sum(axis=1) + rest
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, np.inf)
