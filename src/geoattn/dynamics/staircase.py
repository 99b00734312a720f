"""Metastability on the circle: the energy climbs by steps that take exponentially long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp
from scipy.special import logsumexp

from geoattn._core.arguments import read_choice, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.interaction import SOFTMAX_FLOWS

__all__ = ["Staircase", "energy_staircase"]

_AT_REST = 1e-13  # pull over the weights of attention that make it: below is rounding


@dataclass(frozen=True)
class Staircase:
    r"""The mergers of tokens on the circle.

    ``log_t`` is the logarithm of the time of each merger (of time in units of :math:`e^{-\beta}` for USA), ``plateau``
    the energy over :math:`e^\beta` halfway in time to each merger, and at the end: the sum of the squared
    masses of clusters that are far apart. ``masses`` are those of the clusters before each merger and at the end.
    """

    log_t: Float[np.ndarray, " mergers"]
    plateau: Float[np.ndarray, " stages"]
    masses: tuple[tuple[float, ...], ...]
    beta: float
    flow: str

    @property
    def heights(self) -> Float[np.ndarray, " stages"]:
        """What far clusters with these masses give: the sum of squares."""
        return np.array([sum(m * m for m in stage) for stage in self.masses])


def energy_staircase(
    angles: Any, beta: Any, *, weights: Any = None, flow: Any = "USA", glue: Any = 1e-3, arc: Any = "half"
) -> Staircase:
    r"""Follow tokens on the circle from merger to merger, V = D = I, at any beta.

    .. math:: \dot\theta_i = -\frac{1}{Z_i} \sum_j w_j e^{\beta \cos(\theta_i - \theta_j)} \sin(\theta_i - \theta_j)

    A pair at the angle g moves at the rate :math:`e^{-\beta(1 - \cos g)}`; the path is followed by its length and time
    by its logarithm, so no step is wasted and nothing overflows. Tokens closer than ``glue`` become one of their joint
    mass. Angles lie in an open half circle, where all tokens merge; with ``arc="whole"`` anywhere, and tokens
    that rest, as evenly spaced ones do, are an error. Reference: Geshkovski et al., Dynamic
    metastability in the self-attention model, 2024.

    Examples
    --------
    >>> steps = energy_staircase([0.0, 0.3, 1.0], 400.0)
    >>> steps.plateau.round(4)  # 3/9, 5/9, 9/9
    array([0.3333, 0.5556, 1.    ])
    >>> len(energy_staircase([0.0, 1.0, 3.0, 5.0], 9.0, flow="SA", arc="whole").log_t)
    3
    """
    theta = np.asarray(angles, dtype=float)
    beta, glue = read_number("beta", beta, above=0.0), read_number("glue", glue, above=0.0)
    flow = read_choice("flow", flow, SOFTMAX_FLOWS)
    whole = read_choice("arc", arc, ("half", "whole")) == "whole"
    if theta.ndim != 1 or len(theta) < 2 or not np.isfinite(theta).all():
        raise GeoattnError("angles must be at least two finite numbers.")
    if whole:
        theta = np.mod(theta, 2 * math.pi)
    elif np.ptp(theta) >= math.pi:
        raise GeoattnError("angles must be in an open half circle, where all tokens merge; or pass arc='whole'.")
    w = np.full(len(theta), 1 / len(theta)) if weights is None else np.asarray(weights, dtype=float)
    if w.shape != theta.shape or (w <= 0).any() or abs(w.sum() - 1) > 1e-9:
        raise GeoattnError("weights must be positive, one per angle, with sum one.")
    order = np.argsort(theta)
    theta, w = _glue(theta[order], w[order], glue)
    log_t, plateau, masses, elapsed = [], [], [], -math.inf
    while len(theta) > 1:
        path = _to_merger(theta, w, beta, flow, glue)
        masses.append(tuple(w))
        plateau.append(_energy(path.halfway, w, beta))
        elapsed = float(np.logaddexp(elapsed, path.log_length))
        log_t.append(elapsed)
        theta, w = _glue(path.end, w, glue * (1 + 1e-6))
    masses.append(tuple(w))
    plateau.append(_energy(theta, w, beta))
    return Staircase(np.array(log_t), np.array(plateau), tuple(masses), beta, flow)


def _gaps(theta: np.ndarray) -> np.ndarray:
    """From each token to the next, and from the last around the circle to the first."""
    return np.diff(theta, append=theta[0] + 2 * math.pi)


def _glue(theta: np.ndarray, w: np.ndarray, glue: float) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours closer than ``glue`` as one, at their centre of mass."""
    widest = int(np.argmax(_gaps(theta)))  # count from there on: no pair is then the last and the first
    if widest < len(theta) - 1:
        theta = np.concatenate([theta[widest + 1 :], theta[: widest + 1] + 2 * math.pi])
        w = np.roll(w, -widest - 1)
    group = np.concatenate([[0], np.cumsum(np.diff(theta) > glue)])
    mass = np.bincount(group, w)
    return np.bincount(group, w * theta) / mass, mass


def _energy(theta: np.ndarray, w: np.ndarray, beta: float) -> float:
    """Energy over e^beta."""
    exponent = beta * (np.cos(theta[:, None] - theta[None, :]) - 1)
    return float(np.exp(logsumexp(exponent, b=np.outer(w, w))))


@dataclass(frozen=True)
class _Path:
    """Tokens halfway in time and at the next merger, and the logarithm of how long it takes."""

    halfway: np.ndarray
    end: np.ndarray
    log_length: float


def _to_merger(theta: np.ndarray, w: np.ndarray, beta: float, flow: str, glue: float) -> _Path:
    """Integrate over the length of the path: speeds differ by any power of ten, lengths do not."""
    n = len(theta)
    others = ~np.eye(n, dtype=bool)

    def motion(x: np.ndarray) -> tuple[np.ndarray, float]:
        """(Direction of the tokens, log of their speed)."""
        apart = x[:, None] - x[None, :]
        exponent = beta * (np.cos(apart) - 1)
        top = float(exponent[others].max())
        weight = w * np.exp(np.minimum(exponent - top, 0.0))
        pull = -(weight * np.sin(apart)).sum(1)
        if np.abs(pull).max() <= _AT_REST * weight.max():
            raise GeoattnError(f"{n} tokens at beta = {beta:g} rest where they are, evenly spaced or so; move one.")
        if flow == "SA":
            pull = pull / (w * np.exp(exponent)).sum(1)
        size = float(np.linalg.norm(pull))
        return pull / size, top + math.log(size)

    unit = -motion(theta)[1]

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        direction, log_speed = motion(state[:-1])
        return np.append(direction, math.exp(min(50.0, -log_speed - unit)))  # larger only in trial steps too far

    def meet(_: float, state: np.ndarray) -> float:
        return float(_gaps(state[:-1]).min() - glue)

    meet.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    done = solve_ivp(
        rate, (0.0, math.pi * n), np.append(theta, 0.0), method="DOP853", rtol=1e-8, atol=1e-10, events=meet,
        dense_output=True, max_step=float(_gaps(theta).min()) / 4,
    )  # fmt: skip
    if done.status != 1 or done.sol is None:
        raise GeoattnError(f"tokens at beta = {beta:g} did not merge; please give a larger glue=.")
    end = float(done.t[-1])
    along = np.linspace(0.0, end, 2001)
    states = done.sol(along)
    half = int(np.searchsorted(states[-1], states[-1, -1] / 2))
    return _Path(states[:-1, half], states[:-1, -1], unit + math.log(states[-1, -1]))
