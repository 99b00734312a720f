"""Gaussian token clouds in flat space under attention: they stay Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

from geoattn.errors import GeoattnError

__all__ = ["GaussianFlow", "gaussian_flow"]


@dataclass(frozen=True)
class GaussianFlow:
    """Mean and covariance over time; ``blow_up``: the covariance grew beyond 1e12 at the last time."""

    t: Float[np.ndarray, " time"]
    mean: Float[np.ndarray, "time d"]
    covariance: Float[np.ndarray, "time d d"]
    blow_up: bool


def gaussian_flow(mean: Any, covariance: Any, A: Any, V: Any = None, *, until: float, save: int = 101) -> GaussianFlow:
    r"""Law of tokens that attend to each other without normalisation, from a Gaussian start.

    .. math:: \dot x = V \int y e^{\langle Ax, y\rangle} d\mu(y) \Big/ \int e^{\langle Ax, y\rangle} d\mu(y)

    For a Gaussian the average is :math:`m + \Sigma A x`, so the law stays Gaussian and

    .. math:: \dot m = V (I + \Sigma A) m, \qquad \dot\Sigma = V \Sigma A \Sigma + (V \Sigma A \Sigma)^\top

    In one dimension :math:`s(t) = s_0 / (1 - 2 v a s_0 t)`: it blows up at :math:`1 / (2 v a s_0)` for va > 0.
    A is beta D^T of `simulate` with ``norm="none"``. Reference: Castin, Ablin, Carrillo and Peyre 2025.

    >>> flow = gaussian_flow([0.0], [[1.0]], [[-0.5]], until=1.0)
    >>> round(float(flow.covariance[-1, 0, 0]), 8)  # 1 / (1 + 1)
    0.5
    """
    m, s, a = (np.asarray(z, dtype=float) for z in (mean, covariance, A))
    d = len(m) if m.ndim == 1 else 0
    v = np.eye(d) if V is None else np.asarray(V, dtype=float)
    if d == 0 or any(z.shape != (d, d) for z in (s, a, v)):
        raise GeoattnError(
            f"mean (d,), covariance, A and V (d, d) must fit; got {m.shape}, {s.shape}, {a.shape}, {v.shape}."
        )
    if not np.allclose(s, s.T, atol=1e-12) or np.linalg.eigvalsh(s)[0] < 0:
        raise GeoattnError("covariance must be symmetric and positive semidefinite.")

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        m, s = y[:d], y[d:].reshape(d, d)
        pushed = v @ s @ a @ s
        return np.concatenate([v @ (m + s @ a @ m), (pushed + pushed.T).ravel()])

    def size(_: float, y: np.ndarray) -> float:
        return 1e12 - np.abs(y[d:]).max()

    size.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    start = np.concatenate([m, s.ravel()])
    times = np.linspace(0.0, until, save)
    solved = solve_ivp(rate, (0.0, until), start, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-12, events=size)
    blow_up = solved.status == 1
    t, y = solved.t, solved.y
    if blow_up:
        t, y = np.append(t, solved.t_events[0]), np.concatenate([y, solved.y_events[0].T], axis=1)
    elif solved.status != 0:
        raise GeoattnError(f"the covariance cannot be followed beyond t = {solved.t[-1]:.6g}: {solved.message}")
    return GaussianFlow(t, y[:d].T, y[d:].T.reshape(-1, d, d), blow_up)
