"""The real eigenpair of A that decides how far tokens can be driven."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float

__all__ = ["Configuration", "eigenpair", "gamma_of"]

Configuration = Literal["half", "opposite"]


def gamma_of(A: Float[np.ndarray, "d d"]) -> tuple[float, Float[np.ndarray, " d"], Configuration] | None:
    r"""(gamma, unit eigenvector u, configuration) with :math:`\gamma = \max(-\gamma_\delta, \gamma_1 / 8)`.

    :math:`\gamma_1 \ge \dots \ge \gamma_\delta` are the real eigenvalues of A; None when there is none. u belongs to
    the one that attains the maximum: ``"half"`` for :math:`\gamma_1` (tokens at Ru and Ru/2), ``"opposite"`` for
    :math:`\gamma_\delta` (tokens at -Ru and Ru). Ties go to "opposite". O(d^3).

    Examples
    --------
    >>> import numpy as np
    >>> gamma_of(np.diag([-1.0, 4.0]))
    (1.0, array([1., 0.]), 'opposite')
    >>> gamma_of(np.array([[0.0, -1.0], [1.0, 0.0]])) is None
    True
    """
    pairs = [pair for pair in (eigenpair(A, "opposite"), eigenpair(A, "half")) if pair is not None]
    return max(pairs, key=lambda pair: pair[0]) if pairs else None


def eigenpair(
    A: Float[np.ndarray, "d d"], configuration: Configuration
) -> tuple[float, Float[np.ndarray, " d"], Configuration] | None:
    r"""(gamma, u, configuration) of one of the two: :math:`\gamma_1/8` or :math:`-\gamma_\delta`, of any sign."""
    if np.array_equal(A, A.T):
        values, vectors = np.linalg.eigh(A)
    else:
        values, vectors = np.linalg.eig(A)
        real = np.imag(values) == 0  # LAPACK gives complex ones in exact pairs
        values, vectors = np.real(values[real]), np.real(vectors[:, real])
    if len(values) == 0:
        return None
    at = int(values.argmax() if configuration == "half" else values.argmin())
    u = vectors[:, at] / np.linalg.norm(vectors[:, at])
    u = u * np.sign(u[np.abs(u).argmax()])  # one of the two signs, the same on every machine
    gamma = float(values[at]) / 8 if configuration == "half" else 0.0 - float(values[at])
    return gamma, u, configuration
