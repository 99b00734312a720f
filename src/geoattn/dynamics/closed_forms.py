"""What is known in closed form, or up to one integral, about the flows: for tests, curves and predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq
from scipy.special import comb, gammaln, iv, ive

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.interaction import SOFTMAX_FLOWS

__all__ = [
    "clustering_time",
    "critical_coupling",
    "equiangular_cosine",
    "equiangular_rate",
    "fastest_mode",
    "first_order_density",
    "four_particles",
    "growth_rate",
    "hemisphere_probability",
    "long_context_cosine",
    "pair_time",
    "uniform_energy",
]


def equiangular_rate(cosine: Any, beta: Any, n: Any, flow: str = "SA") -> Any:
    r"""Rate of the common cosine of n equiangular tokens (Geshkovski et al. 2023, Theorem 6.8), Q = K = V = I.

    .. math:: \dot\gamma = \frac{2 e^{\beta\gamma} (1 - \gamma) ((n-1)\gamma + 1)}{e^\beta + (n-1) e^{\beta\gamma}}
              \ (SA), \qquad \tfrac2n e^{\beta\gamma} (1 - \gamma) ((n-1)\gamma + 1) \ (USA)

    Examples
    --------
    >>> float(equiangular_rate(0.0, 0.0, 2))
    1.0
    """
    common = 2 * (1 - cosine) * ((n - 1) * cosine + 1)
    if read_choice("flow", flow, SOFTMAX_FLOWS) == "SA":
        return common / (np.exp(beta * (1 - cosine)) + n - 1)
    return common * np.exp(beta * cosine) / n


def equiangular_cosine(t: Any, beta: Any, n: Any, flow: str = "SA") -> Float[np.ndarray, " t"]:
    """The cosine of n orthogonal tokens at the times t > 0, by the equation of `equiangular_rate` (error about 1e-11).

    For beta = 0: (e^{2t} - 1) / (e^{2t} + n - 1).

    Examples
    --------
    >>> from geoattn.dynamics import equiangular_cosine
    >>> equiangular_cosine([1.0], 0.0, 2).round(6)  # tanh 1
    array([0.761594])
    """
    times = np.atleast_1d(np.asarray(t, dtype=float))
    n, beta = read_count("n", n, least=2, most=10**18), read_number("beta", beta)
    if beta == 0.0:
        return -np.expm1(-2 * times) / (1 + (n - 1) * np.exp(-2 * times))
    solved = solve_ivp(
        lambda _, g: equiangular_rate(g, beta, n, flow), (0.0, float(times.max())), [0.0], method="LSODA",
        t_eval=np.unique(times), rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    return solved.y[0][np.searchsorted(solved.t, times)]


def clustering_time(beta: Any, n: Any = 32, delta: Any = 1e-3) -> float:
    r"""Time at which n orthogonal tokens under SA have the cosine 1 - delta: the curve of the phase diagram.

    .. math:: t = \int_0^{1-\delta} \frac{e^{\beta(1-\gamma)} + n - 1}{2 (1-\gamma) ((n-1)\gamma + 1)} \, d\gamma

    Uniform tokens in a high dimension are nearly orthogonal, so it is the limit of their clustering time as d grows.

    Examples
    --------
    >>> from geoattn.dynamics import clustering_time
    >>> round(clustering_time(5.0), 5)
    9.54433
    """
    n, beta = read_count("n", n, least=2, most=10**18), read_number("beta", beta)
    delta = read_number("delta", delta, above=0.0)
    if delta >= 1:
        raise GeoattnError(f"delta must lie between 0 and 1; got {delta:g}.")

    def integrand(u: float) -> float:  # u = -log(1 - cosine) spreads out the end
        gap = math.exp(-u)
        return (math.exp(beta * gap) + n - 1) / (2 * ((n - 1) * (1 - gap) + 1))

    value, _ = quad(integrand, 0.0, -math.log(delta), epsabs=1e-12, epsrel=1e-12, limit=500)
    return value


def pair_time(start: Any, end: Any, beta: Any) -> float:
    r"""Time for two tokens under SA to go from the angle ``start`` to the smaller angle ``end``.

    .. math:: t = \int \frac{1 + e^{\beta(1 - \cos\varphi)}}{2 \sin\varphi} \, d\varphi

    Examples
    --------
    >>> round(pair_time(2.0, 0.05, 4.0), 3)
    42.893
    """
    start, end, beta = (read_number(k, v) for k, v in (("start", start), ("end", end), ("beta", beta)))
    if not 0 < end <= start < math.pi:
        raise GeoattnError(f"angles must satisfy 0 < end <= start < pi; got start {start:g}, end {end:g}.")
    value, _ = quad(
        lambda p: (1 + math.exp(beta * (1 - math.cos(p)))) / (2 * math.sin(p)), end, start, epsrel=1e-12, limit=500
    )
    return value


def growth_rate(k: Any, beta: Any, d: Any = 2, flow: str = "SA") -> float:
    r"""Rate at which the harmonics of degree k of a nearly uniform density grow, V = I.

    .. math:: \frac{k (k + d - 2)}{\beta} \hat\lambda_k, \qquad
              \hat\lambda_k = \Gamma(\tfrac d2) (\tfrac2\beta)^{d/2-1} I_{k+d/2-1}(\beta) \ (USA);
              \text{divided by } \hat\lambda_0 \ (SA)

    (Funk-Hecke.) On the circle: k^2 I_k / (beta I_0).

    Examples
    --------
    >>> round(growth_rate(1, 1.0), 6)  # I_1(1) / I_0(1)
    0.44639
    """
    k, d = read_count("k", k, least=0), read_count("d", d, least=2, most=10**18)
    beta, order = read_number("beta", beta, above=0.0), d / 2 - 1
    rate = k * (k + d - 2) / beta * ive(k + order, beta)
    if read_choice("flow", flow, SOFTMAX_FLOWS) == "SA":
        return float(rate / ive(order, beta))
    return float(rate * math.exp(beta + gammaln(d / 2) + order * math.log(2 / beta)))


def fastest_mode(beta: Any, d: Any = 2) -> int:
    """Degree k that grows fastest from the uniform density: the number of clusters of the first metastable state.

    Bruno, Pasqualotto and Agazzi 2024. It grows like sqrt(2 beta).

    Examples
    --------
    >>> [fastest_mode(b) for b in (1.0, 5.0, 25.0)]
    [1, 3, 7]
    """
    most = int(4 * math.sqrt(read_number("beta", beta, above=0.0)) + 10)
    return 1 + int(np.argmax([growth_rate(k, beta, d) for k in range(1, most)]))


def critical_coupling(beta: Any, d: Any = 2) -> float:
    r"""K above which the uniform density is unstable for :math:`dX = K v_{USA} dt + dB`.

    .. math:: K_\# = \frac{\beta^{d/2}}{2^{d/2} \Gamma(d/2) I_{d/2}(\beta)}

    Examples
    --------
    >>> from geoattn.dynamics import critical_coupling
    >>> round(critical_coupling(1.0, 2), 6)  # 1 / (2 I_1(1))
    0.884707
    """
    beta, d = read_number("beta", beta, above=0.0), read_count("d", d, least=2, most=10**18)
    return float(math.exp(d / 2 * math.log(beta / 2) - gammaln(d / 2)) / iv(d / 2, beta))


def hemisphere_probability(n: Any, d: Any) -> float:
    r"""Wendel: probability that n uniform tokens lie in one open hemisphere, where they collapse exponentially.

    .. math:: 2^{-(n-1)} \sum_{k=0}^{d-1} \binom{n-1}{k}

    Examples
    --------
    >>> hemisphere_probability(6, 2)
    0.1875
    """
    n, d = read_count("n", n, least=1, most=10**18), read_count("d", d, least=1, most=10**18)
    return float(sum(comb(n - 1, k, exact=True) for k in range(d)) / 2 ** (n - 1))


def uniform_energy(c: Any, d: Any) -> float:
    r"""Energy :math:`\iint e^{c \langle x, y\rangle}` of the uniform measure: the minimum for D = c I, c > 0.

    .. math:: \Gamma(\tfrac d2) (\tfrac 2c)^{d/2-1} I_{d/2-1}(c)

    Examples
    --------
    >>> round(uniform_energy(1.0, 3), 10)  # sinh 1
    1.1752011936
    """
    c, d = abs(read_number("c", c)), read_count("d", d, least=2, most=10**18)
    if c == 0.0:
        return 1.0
    order = d / 2 - 1
    return float(math.exp(gammaln(d / 2) + order * math.log(2 / c) + c) * ive(order, c))


def first_order_density(d: Any) -> float:
    r"""The number alpha of the density that minimises the energy for D = I + eps M, to first order in eps.

    .. math:: 1 + \varepsilon \alpha (x \cdot M x - \mathrm{tr} M / d), \qquad \alpha = -I_{d/2}(1) / I_{d/2+1}(1)

    Examples
    --------
    >>> from geoattn.dynamics import first_order_density
    >>> round(first_order_density(2), 6)
    -4.163306
    """
    d = read_count("d", d, least=2, most=10**18)
    return float(-ive(d / 2, 1.0) / ive(d / 2 + 1, 1.0))


def four_particles(d1: Any, d2: Any) -> tuple[float, float]:
    r"""(a^2, energy) of the symmetric minimiser (+-a, +-b) of four tokens on the circle for D = diag(d1, d2), both > 0.

    .. math:: d_1 \tanh(d_1 a^2) = d_2 \tanh(d_2 b^2), \quad a^2 + b^2 = 1, \quad
              E = \cosh(d_1 a^2) \cosh(d_2 b^2)

    Examples
    --------
    >>> from geoattn.dynamics import four_particles
    >>> [round(v, 7) for v in four_particles(1.0, 2.0)]
    [0.8237686, 1.4442108]
    """
    d1, d2 = read_number("d1", d1, above=0.0), read_number("d2", d2, above=0.0)

    def balance(s: float) -> float:
        return d1 * math.tanh(d1 * s) - d2 * math.tanh(d2 * (1 - s))

    s = float(brentq(balance, 0.0, 1.0, xtol=1e-15, rtol=1e-14))  # pyright: ignore[reportArgumentType]
    return s, math.cosh(d1 * s) * math.cosh(d2 * (1 - s))


def long_context_cosine(cosine: Any, gamma: Any, n: Any = None) -> float:
    r"""Cosine of two attention outputs of n equiangular tokens at beta = gamma log n; n = None is the limit.

    The limit is 1, :math:`4\rho / (1 + 3\rho)` or :math:`\rho` for gamma below, at or above :math:`1 / (1 - \rho)`: one
    layer merges all tokens, or some of them, or none.

    Examples
    --------
    >>> long_context_cosine(0.5, 2.0)
    0.8
    """
    rho, gamma = read_number("cosine", cosine, least=0.0), read_number("gamma", gamma, least=0.0)
    if rho >= 1:
        raise GeoattnError(f"cosine must lie from 0 to below 1; got {rho:g}.")
    if n is None:
        edge = gamma * (1 - rho)
        if math.isclose(edge, 1.0, rel_tol=1e-12):
            return 4 * rho / (1 + 3 * rho)
        return 1.0 if edge < 1 else rho
    n = read_count("n", n, least=2, most=10**18)
    ratio = n ** (gamma * (1 - rho))  # weight of the token itself over that of another
    own, other = (ratio - 1) / (ratio + n - 1), n / (ratio + n - 1)  # y_i = own x_i + other mean
    mean = (1 + (n - 1) * rho) / n  # <x_i, mean> = |mean|^2
    common = 2 * own * other * mean + other**2 * mean
    return float((own**2 * rho + common) / (own**2 + common))
