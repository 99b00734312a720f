"""The transport distance with the mobility of attention, between tokens or between densities on the circle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.energy import interaction_energy
from geoattn.dynamics.inputs import read_matrix, read_tokens, read_weights
from geoattn.dynamics.mobility.circle import density_distance, is_density
from geoattn.dynamics.mobility.coupling import Coupling, optimal_coupling
from geoattn.dynamics.mobility.result import MobilityDistance, below, sampled
from geoattn.dynamics.mobility.search import bent_again, refine, search

__all__ = ["energy_bound", "mobility_distance"]


def mobility_distance(
    mu: Any,
    nu: Any,
    D: Any = None,
    *,
    beta: Any = 1.0,
    starts: Any = 8,
    tolerance: Any = 1e-10,
    times: Any = 33,
    points: Any = 64,
    seed: Any = 0,
    normalise: bool = False,
) -> MobilityDistance:
    r"""Distance of two measures on the sphere in the metric under which attention is a gradient flow.

    .. math:: W_{m,2}^2(\mu, \nu) = \inf \int_0^1 \int |v_t|^2 \, m_{\mu_t} \, d\mu_t \, dt, \qquad
              \partial_t \mu + \nabla \cdot (\mu v) = 0, \quad m_\mu(x) = \int e^{\beta \langle x, Dy\rangle} d\mu(y)

    Parameters
    ----------
    mu, nu
        Tokens (n, d) on the unit sphere with masses 1/n, or (tokens, weights). Or densities on the circle: functions of
        the angle, or values at equally spaced angles, as in `circle_mean_field`.
    D, beta
        The matrix of the kernel and a factor. D need not be symmetric.
    starts
        Couplings that the search tries, at most. The action is not convex, so the value is an upper bound of the
        infimum. The best coupling is tried again from random paths; ``agreement`` is the share that ends at one action.
    tolerance
        Relative: modes are added to the path until the action falls by less.
    times
        How many times of the path to give.
    points
        Quantiles that stand for a density, spectrally accurate for smooth ones.

    Returns
    -------
    MobilityDistance
        ``value``, the root of the least action found; ``upper``, the same with the error of the quadrature; ``lower``,
        the larger of two bounds; ``path``, the geodesic, which can be animated.

    Notes
    -----
    For tokens the infimum is over couplings and over curves of the coupled tokens: geodesics of
    :math:`\sum_i w_i m(x_i) |dx_i|^2` on a product of spheres. The coupling is that of W2 first; it is then improved by
    the cost of arcs in the field of the best path so far. A path is a polynomial that is divided by its norm (Ritz'
    method); L-BFGS finds its modes. The result is the same, with the path reversed, when mu and nu change places.

    Lower bounds: :math:`e^{-\beta|D|/2} W_2`, since :math:`m \ge e^{-\beta|D|}`; and for symmetric D
    :math:`|\sqrt{E(\mu)} - \sqrt{E(\nu)}| / (\beta|D|)` with E of `interaction_energy`, since
    :math:`|\frac{d}{dt} E| \le 2 \beta |D| \sqrt{E} \, |\mu'|`. Angles are those on the sphere, :math:`|D|` is the
    spectral norm. O(n^2 d) time for each of some thousand evaluations, and O(n^3) for a coupling.
    Reference: the metric is that of Burger, Kabri, Korolev, Roith and Weigand 2025; bounds and method are derived here.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import mobility_distance
    >>> one, two = torch.eye(2, dtype=torch.float64)[:1], torch.eye(2, dtype=torch.float64)[1:]
    >>> mobility_distance(one, two, 1.0)  # one token, D = I: its mass is e, so the distance is sqrt(e) pi / 2
    MobilityDistance(2.58981, within 0.952736 .. 2.58981, n=1, d=2, 4 starts, 100 % agree)
    """
    beta = read_number("beta", beta)
    starts, times = read_count("starts", starts, least=1), read_count("times", times, least=2)
    tolerance, seed = read_number("tolerance", tolerance, above=0.0), read_count("seed", seed, least=0)
    if is_density(mu) or is_density(nu):
        if not (is_density(mu) and is_density(nu)):
            raise GeoattnError("mu and nu must both be densities on the circle, or both tokens.")
        return density_distance(mu, nu, _kernel(D, beta, 2), points=points, times=times, tolerance=tolerance)
    x, a = _read_measure("mu", mu, normalise)
    y, b = _read_measure("nu", nu, normalise)
    if x.shape[-1] != y.shape[-1]:
        raise GeoattnError(f"mu and nu must have one dimension; got {x.shape[-1]} and {y.shape[-1]}.")
    kernel = _kernel(D, beta, x.shape[-1])
    # one order of the tokens and of the measures: the search then does not depend on the order of the arguments
    first, second = _sorted(x), _sorted(y)
    x, a, y, b = x[first], a[first], y[second], b[second]
    swap = _key(x, a) > _key(y, b)
    ends = ((y, b), (x, a)) if swap else ((x, a), (y, b))
    (x, a), (y, b) = ends
    angles = _angles(x, y)
    plain = optimal_coupling(angles**2, a, b)
    w2 = math.sqrt(float((plain.mass * angles[plain.source, plain.target] ** 2).sum()))
    norm = float(torch.linalg.matrix_norm(kernel, 2))
    lower = max(math.exp(-norm / 2) * w2, energy_bound(x, a, y, b, kernel, norm))
    if w2 == 0.0 or norm == 0.0:
        starts = 1  # the coupling of W2 and its arcs are optimal
    found = search(x, y, kernel, plain, (a, b), starts=starts, seed=seed)
    again = bent_again(found, kernel, repeats=min(2, starts - 1), seed=seed) if found[0].action > 0 else []
    close = [f.action <= found[0].action * (1 + 1e-3) for f in (found[0], *again)]
    found = sorted([*found, *again], key=lambda f: f.action)
    best, error = refine(found, kernel, tolerance)
    value = math.sqrt(best.action)
    path = sampled(best.arcs, best.bend, times, swap)
    coupling = _unsorted(best.coupling, first, second, swap)
    return MobilityDistance(
        value=value, lower=below(lower, value), upper=value + error, path=path, w2=w2, coupling=coupling,
        starts=tuple(math.sqrt(f.action) for f in found), agreement=sum(close) / len(close),
        settings={"n": len(path.weights), "d": x.shape[-1], "beta": beta, "norm": norm, "modes": len(best.bend),
                  "tolerance": tolerance, "seed": seed, "kind": "tokens"},
    )  # fmt: skip


def energy_bound(x: Tensor, a: np.ndarray, y: Tensor, b: np.ndarray, kernel: Tensor, norm: float) -> float:
    """The lower bound by the energies, for a symmetric kernel; 0 for others."""
    if norm == 0.0 or float((kernel - kernel.mT).abs().max()) > 1e-12 * norm:
        return 0.0
    one, two = (float(interaction_energy(z, kernel, weights=w)) for z, w in ((x, a), (y, b)))
    return abs(math.sqrt(one) - math.sqrt(two)) / norm


def _kernel(D: Any, beta: float, d: int) -> Tensor:
    like = torch.empty(0, dtype=torch.float64)
    matrix = read_matrix("D", D, d, like)
    matrix = torch.eye(d, dtype=torch.float64) if matrix is None else matrix
    if matrix.ndim != 2:
        raise GeoattnError(f"D must be one matrix here; got shape {tuple(matrix.shape)}.")
    if beta * float(torch.linalg.matrix_norm(matrix, 2)) > 300:
        raise GeoattnError("the mobility overflows for logits above 300; use a smaller beta.")
    return beta * matrix


def _read_measure(name: str, measure: Any, normalise: bool) -> tuple[Tensor, np.ndarray]:
    """Tokens with positive masses, in float64."""
    pair = isinstance(measure, (tuple, list)) and len(measure) == 2 and np.ndim(measure[1]) == 1
    tokens, weights = measure if pair and np.ndim(measure[0]) == 2 else (measure, None)
    try:
        x = read_tokens(tokens, normalise=normalise).double()
        if x.ndim != 2:
            raise GeoattnError(f"tokens must be one (n, d) array; got shape {tuple(x.shape)}.")
        w = read_weights(weights, tuple(x.shape[:1]), x)
    except GeoattnError as error:
        raise GeoattnError(f"{name}: {error}") from None
    x = x / x.norm(dim=-1, keepdim=True)
    kept = w > 0
    return x[kept], w[kept].numpy() / float(w[kept].sum())


def _angles(x: Tensor, y: Tensor) -> np.ndarray:
    """Angles of all pairs, exact for close and for opposite tokens too."""
    apart, along = (
        torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        torch.cdist(x, -y, compute_mode="donot_use_mm_for_euclid_dist"),
    )
    return (2 * torch.atan2(apart, along)).numpy()


def _sorted(x: Tensor) -> np.ndarray:
    return np.lexsort(x.numpy().T[::-1])


def _key(x: Tensor, a: np.ndarray) -> tuple[int, list[float]]:
    return len(x), [*x.numpy().ravel().tolist(), *a.tolist()]


def _unsorted(coupling: Coupling, first: np.ndarray, second: np.ndarray, swap: bool) -> Coupling:
    source, target = (coupling.target, coupling.source) if swap else (coupling.source, coupling.target)
    return Coupling(first[source], second[target], coupling.mass)
