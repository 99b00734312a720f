"""The linear transformer of the Ricci paper's Appendix A: its spectrum, its tangent kernel, its PL probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Complex, Float

from geoattn._core.errors import GeoattnError

__all__ = [
    "Assumption",
    "PLProbability",
    "check_assumptions",
    "layer_spectrum",
    "pl_probability",
    "tangent_kernel_values",
]


def layer_spectrum(attention: Any, H: Any, depth: Any) -> Complex[np.ndarray, "n d"]:
    r"""Eigenvalues :math:`(1 + \lambda^A_i \lambda^H_j)^L` of :math:`F = (I + H \otimes A)^L` (equation 9). O(n^3 +
    d^3).

    F is X -> X + A X W_V W_p applied L times with the columns of X stacked, :math:`H = W_p^\top W_V^\top`; n d by n d
    and never built.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import layer_spectrum
    >>> A, H = np.array([[0.9, 0.1], [0.2, 0.8]]), np.diag([0.5, -0.2])
    >>> dense = np.linalg.eigvals(np.linalg.matrix_power(np.eye(4) + np.kron(H, A), 3))
    >>> bool(np.allclose(np.sort(layer_spectrum(A, H, 3).real.ravel()), np.sort(dense.real)))
    True
    """
    a, h = _square(attention, "attention"), _square(H, "H")
    _read_depth(depth)
    return (1 + np.outer(np.linalg.eigvals(a), np.linalg.eigvals(h)).astype(np.complex128)) ** depth


def tangent_kernel_values(attention: Any, H: Any, depth: Any, eta: float = 1.0) -> Float[np.ndarray, "n d"]:
    r"""Eigenvalues :math:`\eta^2 |1 + \lambda^A_i \lambda^H_j|^{2L - 2}` of the tangent kernel (equation 11), under A4.

    The paper writes the power of the number itself, which is that of its modulus where A1 and A2 hold.
    """
    _read_depth(depth)
    base = np.abs(layer_spectrum(attention, H, 1))
    return eta**2 * base ** (2 * depth - 2)


@dataclass(frozen=True)
class PLProbability:
    """p = P[smallest tangent eigenvalue >= mu] over draws, with a Wilson interval."""

    p: float
    lower: float
    upper: float
    draws: int
    mu: float


def pl_probability(
    attention: Float[np.ndarray, "s n n"], H: Float[np.ndarray, "t d d"], depth: Any, mu: float, *, eta: float = 1.0,
    level: float = 0.95,
) -> PLProbability:  # fmt: skip
    r"""The probability :math:`P[\lambda^\varphi_1 \ge \mu]` (equation 12) over all pairs of given maps and weights.

    ``attention`` are maps, ``H`` value-projection products, both drawn from wherever the user takes them: random
    initialisations, or the layers of a model. The interval is for the number of maps or weights, whichever is smaller:
    pairs that share one are not independent.
    """
    if len(attention) == 0 or len(H) == 0:
        raise GeoattnError("pl_probability needs at least one map and one H.")
    low = [tangent_kernel_values(a, h, depth, eta).min() for a in attention for h in H]
    p = float(np.mean(np.asarray(low) >= mu))
    draws = min(len(attention), len(H)) if min(len(attention), len(H)) > 1 else max(len(attention), len(H))
    found = scipy.stats.binomtest(round(p * draws), draws).proportion_ci(level, method="wilson")
    return PLProbability(p, float(found.low), float(found.high), draws, mu)


@dataclass(frozen=True)
class Assumption:
    """One assumption of the paper's Appendix A.1, and whether it holds here. ``holds`` is None when no map can tell."""

    name: str
    says: str
    holds: bool | None
    found: str


def check_assumptions(attention: Any, H: Any = None, *, shared_query_key: bool | None = None) -> tuple[Assumption, ...]:
    r"""Check the assumptions A0 to A5 of the Ricci paper on one map and one :math:`H = W_p^\top W_V^\top`.

    A0 (K = Q) and A5 (a negative eigenvalue) exclude each other: with K = Q the scores are a positive semidefinite
    kernel, and A is similar to a positive semidefinite matrix, so that no eigenvalue is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import check_assumptions
    >>> A, H = np.array([[0.9, 0.1], [0.2, 0.8]]), np.diag([0.5, 0.2])
    >>> {found.name: found.holds for found in check_assumptions(A, H, shared_query_key=True)}
    {'A0': True, 'A1': True, 'A2': True, 'A3': True, 'A4': None, 'A5': False}
    """
    a = _square(attention, "attention")
    values = np.linalg.eigvals(a)
    real = bool(np.abs(values.imag).max() < 1e-9)
    smallest = float(values.real.min())
    positive = bool((a > 0).all())
    invertible = bool(np.abs(values).min() > 1e-12)
    found = [
        Assumption("A0", "keys and queries share a projection, K = Q", shared_query_key,
                   "not told" if shared_query_key is None else "as told"),
        Assumption("A1", "A positive and invertible, eigenvalues real", positive and invertible and real,
                   f"positive: {positive}, smallest modulus {np.abs(values).min():.3g}, largest imaginary part "
                   f"{np.abs(values.imag).max():.3g}"),
    ]  # fmt: skip
    if H is not None:
        h = np.linalg.eigvals(_square(H, "H"))
        largest = float(np.abs(h).max())
        found += [
            Assumption("A2", "eigenvalues of H positive", bool((h.real > 0).all() and np.abs(h.imag).max() < 1e-9),
                       f"{int((h.real <= 0).sum())} of {len(h)} are not positive"),
            Assumption("A3", "largest eigenvalue of H below 1 / |smallest of A|", largest * abs(smallest) < 1,
                       f"product {largest * abs(smallest):.3g}"),
        ]  # fmt: skip
    found += [
        Assumption("A4", "dM/dtheta and M diagonalised by one orthogonal matrix", None,
                   "an assumption on all parameters at once; a map cannot show it"),
        Assumption("A5", "the smallest eigenvalue of A is negative", smallest < -1e-12,
                   f"{smallest:.3g}" + ("; impossible together with A0" if shared_query_key else "")),
    ]  # fmt: skip
    return tuple(found)


def _square(matrix: Any, name: str) -> Float[np.ndarray, "n n"]:
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) == 0:
        raise GeoattnError(f"{name} must be a square matrix; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise GeoattnError(f"{name} must be finite.")
    return array


def _read_depth(depth: Any) -> None:
    if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)) or depth < 1:
        raise GeoattnError(f"depth must be a whole number of at least 1; got {depth!r}.")
