"""Eigenvalues of attention maps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse.linalg
from jaxtyping import Complex, Float
from threadpoolctl import threadpool_limits

from geoattn._core.arguments import Count, read_count
from geoattn._version import __version__
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.shortest_paths import default_threads
from geoattn.spectral.contraction import dobrushin_coefficient
from geoattn.spectral.result import Spectrum

__all__ = ["spectrum"]

ALL_UP_TO = 1024  # tokens: beyond it only the extreme eigenvalues, unless asked for
_EXTREME = 6
_VECTORS, _RESTARTS = 40, 40  # of ARPACK, before all eigenvalues are found instead


def spectrum(attention: Any, *, mask: Any = None, count: Count | None = None, threads: Count | None = None) -> Spectrum:
    r"""Eigenvalues of each attention map, as the Markov chain that it is.

    .. math:: A v = \lambda v, \qquad 1 = \lambda_1 \ge |\lambda_2| \ge \dots

    Parameters
    ----------
    attention
        (..., n, n), NumPy or torch, rows sum to one, or a call of a record, as for `ollivier_ricci`.
    mask
        (..., n) bool, True for a real token.
    count
        How many, the largest in modulus first. Default: all of up to 1,024 tokens, six of larger maps.
    threads
        Default: all that the process may use.

    Notes
    -----
    All eigenvalues: LAPACK, O(n^3), one map per thread. Some: ARPACK, O(count n^2) per step, with the residual
    :math:`\max |A v - \lambda v|`; where it does not converge, LAPACK. A causal map is triangular: its eigenvalues are
    its diagonal. Those of a defective map are known to about the square root of rounding only, whatever the residual of
    the trace.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> result = ga.spectrum(np.array([[0.9, 0.1], [0.3, 0.7]]))
    >>> result.eigenvalues.real.round(12), round(float(result.gap), 12)
    (array([1. , 0.6]), 0.4)
    >>> result.stationary.round(12), bool(result.reversible)
    (array([0.75, 0.25]), True)
    """
    weights = read_weights(attention, Convention.of("markov"), mask)
    threads = default_threads() if threads is None else read_count("threads", threads, least=1)
    n, graphs = weights.n, weights.flat.shape[0]
    if count is None:
        count = n if n <= ALL_UP_TO else _EXTREME
    count = min(read_count("count", count, least=1), n)
    everything = count == n or n <= 64
    values = np.full((graphs, count), np.nan, dtype=np.complex128)
    stationary = np.zeros((graphs, n))
    smallest, irreversibility, dobrushin, residual = np.full((4, graphs), np.nan)
    tokens = weights.valid.sum(axis=1)

    def solve(g: int) -> None:
        real = np.flatnonzero(weights.valid[g])
        if len(real) == 0:
            return
        a = weights.chunk(g, g + 1)[0][np.ix_(real, real)]
        found, smallest[g], residual[g] = _all(a) if everything or len(real) <= count + 2 else _some(a, count)
        found = found[np.argsort(-np.abs(found), kind="stable")]
        found = np.concatenate([found[[nearest := int(np.argmin(np.abs(found - 1)))]], np.delete(found, nearest)])
        size = min(count, len(found))
        values[g, :size] = found[:size]
        pi = _stationary(a)
        stationary[g, real] = pi
        flow = pi[:, None] * a
        irreversibility[g] = np.abs(flow - flow.T).max() / flow.max()
        dobrushin[g] = dobrushin_coefficient(a)

    # LAPACK releases the GIL; each map is one task, and threads of its own inside would only stand in the way.
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(solve, range(graphs)):
            pass
    shape = weights.shape
    return Spectrum(
        values.reshape(*shape, count), smallest.reshape(shape), stationary.reshape(*shape, n),
        irreversibility.reshape(shape), dobrushin.reshape(shape), residual.reshape(shape), tokens.reshape(shape),
        {"count": count, "threads": threads, "dtype": weights.dtype, "geoattn": __version__, "numpy": np.__version__},
    )  # fmt: skip


def _is_triangular(a: Float[np.ndarray, "n n"]) -> bool:
    return not np.triu(a, 1).any() or not np.tril(a, -1).any()


def _all(a: Float[np.ndarray, "n n"]) -> tuple[Complex[np.ndarray, " n"], float, float]:
    """All eigenvalues, the smallest real part, the residual."""
    values = np.diagonal(a) if _is_triangular(a) else np.linalg.eigvals(a)
    values = values.astype(np.complex128)
    return values, float(values.real.min()), float(abs(values.sum() - np.trace(a)))


def _some(a: Float[np.ndarray, "n n"], count: int) -> tuple[Complex[np.ndarray, " k"], float, float]:
    """The largest in modulus, the smallest real part, the residual."""
    if _is_triangular(a):
        return _all(a)
    vectors = min(len(a), max(_VECTORS, 2 * count + 1))
    options = {"v0": np.random.default_rng(0).random(len(a)), "maxiter": _RESTARTS, "ncv": vectors}
    try:
        largest: Any = scipy.sparse.linalg.eigs(a, k=count, which="LM", **options)
        smallest: Any = scipy.sparse.linalg.eigs(a, k=2, which="SR", **options)
    except scipy.sparse.linalg.ArpackError:
        return _all(a)
    residual = max(float(np.abs(a @ vectors - vectors * values).max()) for values, vectors in (largest, smallest))
    return largest[0], float(smallest[0].real.min()), residual


def _stationary(a: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    r"""The solution of :math:`\pi = \pi A`, :math:`\sum \pi = 1`, by least squares if several chains are in A.

    A causal chain that cannot stay but in one token ends there.
    """
    if _is_triangular(a):
        leaves = a.sum(axis=1) - np.diagonal(a) > 0
        if np.count_nonzero(~leaves) == 1:
            return (~leaves).astype(np.float64)
    system = a.T - np.eye(len(a))
    system[-1] = 1.0  # the rows of A^T - I depend on each other: the last one makes room for the sum
    right = np.zeros(len(a))
    right[-1] = 1.0
    try:
        pi = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        pi = np.linalg.lstsq(system, right, rcond=None)[0]
    pi = np.maximum(pi, 0.0)
    return pi / pi.sum()
