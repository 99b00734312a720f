"""Entropy of attention rows, and the Lott-Villani inequality where it is a theorem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.spectral.inequalities import Inequality

__all__ = ["gaussian_entropy_inequality", "row_entropy"]


def row_entropy(attention: Any, *, mask: Any = None, normalised: bool = False) -> Float[np.ndarray, "... n"]:
    r""":math:`-\sum_j A_{ij} \log A_{ij}` of each row, in nats; NaN for padding. Normalised: over the log of the real
    tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import row_entropy
    >>> row_entropy(np.array([[0.5, 0.5], [0.0, 1.0]]), normalised=True)
    array([1., 0.])
    """
    weights = read_weights(attention, Convention.of("markov"), mask)
    rows = np.concatenate([weights.chunk(g, g + 1) for g in range(weights.flat.shape[0])])
    positive = np.where(rows > 0, rows, 1.0)
    entropy = -(rows * np.log(positive)).sum(axis=-1)
    if normalised:
        entropy = entropy / np.log(np.maximum(weights.valid.sum(axis=1), 2))[:, None]
    entropy = np.where(weights.valid, np.abs(entropy), np.nan)
    return entropy.reshape(*weights.shape, weights.n)


def gaussian_entropy_inequality(first: tuple[Any, Any], second: tuple[Any, Any], k: Any, at: Any) -> Inequality:
    r"""Equation 3 on :math:`(\mathbb R, e^{-k x^2 / 2} dx)`, which has Ricci curvature k (Bakry-Emery), between two
    Gaussians.

    .. math:: S(\mu_\lambda) \ge (1 - \lambda) S(\mu_0) + \lambda S(\mu_1) + k \tfrac{\lambda (1 - \lambda)}2
    W_2^2(\mu_0, \mu_1)

    S is minus the relative entropy. The W2 geodesic is linear in (mean, standard deviation), and
    :math:`W_2^2 = \Delta m^2 + \Delta s^2`; equality when the standard deviations agree. This is Lott-Villani on a
    smooth space. On a graph the inequality is not even defined as written: a discrete space has no W2 geodesics.
    geoattn therefore states it here only.

    Examples
    --------
    >>> from geoattn.spectral import gaussian_entropy_inequality
    >>> same = gaussian_entropy_inequality((0.0, 1.0), (3.0, 1.0), k=0.7, at=0.25)
    >>> same.theorem, abs(same.slack) < 1e-12
    (True, True)
    """
    (m0, s0), (m1, s1) = (tuple(map(float, pair)) for pair in (first, second))
    if not (s0 > 0 and s1 > 0 and k > 0 and 0 <= at <= 1):
        raise GeoattnError("standard deviations and k must be positive, and 0 <= at <= 1.")

    def entropy(m: float, s: float) -> float:
        # minus the integral of rho log(rho / reference), reference = exp(-k x^2 / 2)
        return 0.5 * math.log(2 * math.pi * math.e * s * s) - k * (m * m + s * s) / 2

    middle = entropy((1 - at) * m0 + at * m1, (1 - at) * s0 + at * s1)
    distance = (m1 - m0) ** 2 + (s1 - s0) ** 2
    chord = (1 - at) * entropy(m0, s0) + at * entropy(m1, s1) + k * at * (1 - at) / 2 * distance
    return Inequality(
        "Lott-Villani on the weighted line", "(1 - t) S_0 + t S_1 + k t (1 - t) W2^2 / 2 <= S_t",
        ("a smooth weighted space of curvature at least k", "a W2 geodesic"), (), chord, middle, "Lott, Villani 2009",
    )  # fmt: skip
