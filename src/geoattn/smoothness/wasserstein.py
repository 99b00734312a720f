"""Measures on tokens, and the exact Wasserstein-2 distance between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.smoothness.inputs import read_tensor, read_tokens

__all__ = ["TokenMeasure", "wasserstein2"]

_MASS = 1e-9  # how far from one, or from each other, sums of weights may be


@dataclass(frozen=True, eq=False, repr=False)
class TokenMeasure(Displayed):
    r"""A probability measure :math:`\sum_i w_i \delta_{x_i}`; with positions, :math:`\sum_i w_i \delta_{(s_i, x_i)}`.

    `TokenMeasure.of` makes one. Positions, in [0, 1], are the extra coordinate of masked attention.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import TokenMeasure
    >>> mu = TokenMeasure.of(np.array([[0.0], [2.0]]), np.array([0.75, 0.25]), positions=np.array([0.5, 1.0]))
    >>> mu.points.shape, float(mu.weights @ mu.points[:, 0]), mu.positions
    ((2, 1), 0.5, array([0.5, 1. ]))
    """

    points: Float[np.ndarray, "n d"]
    weights: Float[np.ndarray, " n"]
    positions: Float[np.ndarray, " n"] | None = None

    @staticmethod
    def of(points: Any, weights: Any = None, positions: Any = None) -> TokenMeasure:
        """Checked: points (n, d), weights (n,) that sum to one (default: equal), positions (n,) in [0, 1].

        Examples
        --------
        >>> import numpy as np
        >>> TokenMeasure.of(np.eye(2)).weights
        array([0.5, 0.5])
        """
        x = read_tokens(points, None, "points")[0]
        if x.shape[0] != 1:
            raise GeoattnError(f"points of a measure must have shape (n, d); got {tuple(x.shape)}.")
        n = x.shape[1]
        w = np.full(n, 1.0 / n) if weights is None else read_tensor(weights, "weights").cpu().numpy()
        if w.shape != (n,) or not (w >= 0).all() or not abs(w.sum() - 1) <= _MASS:
            raise GeoattnError(
                f"weights must be {n} numbers that are not negative and sum to one; got shape {w.shape}."
            )
        s = None if positions is None else read_tensor(positions, "positions").cpu().numpy()
        if s is not None and (s.shape != (n,) or not ((s >= 0) & (s <= 1)).all()):
            raise GeoattnError(f"positions must be {n} numbers in [0, 1]; got shape {s.shape}.")
        return TokenMeasure(x[0].cpu().numpy(), w / w.sum(), s)


def wasserstein2(
    mu: TokenMeasure, nu: TokenMeasure, *, positions: Literal["coupled", "free", "ignored"] = "coupled"
) -> float:
    r"""Exact :math:`W_2(\mu, \nu) = (\min_\pi \int |x - y|^2\,d\pi)^{1/2}`.

    Equal weights and as many points: an assignment problem (SciPy), O(n^3). Else: a linear program (HiGHS), which is
    for some hundred points.

    Parameters
    ----------
    positions
        What to do with them when both measures have them. ``"coupled"``: mass moves between equal positions alone,
        :math:`(\int W_2(\mu_s, \nu_s)^2\,d\theta(s))^{1/2}`; both must have the same marginal :math:`\theta`.
        ``"free"``: they are one more coordinate. ``"ignored"``: they are not there.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.smoothness import TokenMeasure, wasserstein2
    >>> wasserstein2(TokenMeasure.of(np.zeros((2, 1))), TokenMeasure.of(np.array([[3.0], [4.0]])))
    3.5355339059327378
    """
    if mu.points.shape[1] != nu.points.shape[1]:
        raise GeoattnError(
            f"measures must live in the same dimension; got {mu.points.shape[1]} and {nu.points.shape[1]}."
        )
    if (mu.positions is None) != (nu.positions is None):
        raise GeoattnError("one measure has positions and the other has not.")
    if mu.positions is None or nu.positions is None or positions == "ignored":
        return float(np.sqrt(_cost(mu.points, nu.points, mu.weights, nu.weights)))
    if positions == "free":
        x, y = (np.column_stack([p, s]) for p, s in ((mu.points, mu.positions), (nu.points, nu.positions)))
        return float(np.sqrt(_cost(x, y, mu.weights, nu.weights)))
    total = 0.0
    for s in np.union1d(mu.positions, nu.positions):
        here, there = mu.positions == s, nu.positions == s
        mass, other = mu.weights[here].sum(), nu.weights[there].sum()
        if abs(mass - other) > _MASS:
            raise GeoattnError(
                f"coupled positions need the same mass at each; got {mass:.9g} and {other:.9g} at position {s:g}."
                " Use positions='free'."
            )
        if mass > 0:
            a, b = mu.weights[here] / mass, nu.weights[there] / other
            total += mass * _cost(mu.points[here], nu.points[there], a, b)
    return float(np.sqrt(total))


def _cost(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"], a: Float[np.ndarray, " n"], b: Float[np.ndarray, " m"]
) -> float:
    """Least mean squared distance of a plan with marginals a and b."""
    x, a, y, b = x[a > 0], a[a > 0], y[b > 0], b[b > 0]
    costs = cdist(x, y, "sqeuclidean")
    n, m = costs.shape
    if n == m and np.allclose(a, 1 / n, rtol=1e-12) and np.allclose(b, 1 / n, rtol=1e-12):
        rows, columns = linear_sum_assignment(costs)
        return float(costs[rows, columns].mean())
    if n == 1 or m == 1:
        return float(a @ costs @ b)
    scale = float(costs.max())
    if scale == 0:
        return 0.0
    sums = sparse.vstack([sparse.kron(sparse.eye(n), np.ones((1, m))), sparse.kron(np.ones((1, n)), sparse.eye(m))])
    found = linprog(costs.ravel() / scale, A_eq=sums.tocsr()[:-1], b_eq=np.concatenate([a, b])[:-1], method="highs")
    if found.status != 0:
        raise GeoattnError(f"the transport problem was not solved: {found.message}")
    return float(found.fun) * scale
