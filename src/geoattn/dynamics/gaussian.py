"""Gaussian token clouds in flat space under attention: they stay Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

from geoattn._core.arguments import read_choice
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

__all__ = ["GaussianFlow", "gaussian_flow"]


@dataclass(frozen=True, repr=False)
class GaussianFlow(Displayed):
    """Mean and covariance over time; ``blow_up``: the covariance grew beyond 1e12 at the last time.

    Examples
    --------
    >>> from geoattn.dynamics import gaussian_flow
    >>> flow = gaussian_flow([0.0], [[1.0]], [[-0.5]], until=1.0, save=3)
    >>> flow.covariance.shape
    (3, 1, 1)
    """

    t: Float[np.ndarray, " time"]
    mean: Float[np.ndarray, "time d"]
    covariance: Float[np.ndarray, "time d d"]
    blow_up: bool


def gaussian_flow(
    mean: Any, covariance: Any, A: Any, V: Any = None, *, until: float, save: int = 101, flow: str = "SA"
) -> GaussianFlow:
    r"""Law of tokens that attend to each other without normalisation, from a Gaussian start.

    .. math:: \dot x = V \int y e^{\langle Ax, y\rangle} d\mu(y) \Big/ \int e^{\langle Ax, y\rangle} d\mu(y)

    For a Gaussian the average is :math:`m + \Sigma A x`, so the law stays Gaussian and

    .. math:: \dot m = V (I + \Sigma A) m, \qquad \dot\Sigma = V \Sigma A \Sigma + (V \Sigma A \Sigma)^\top

    In one dimension :math:`s(t) = s_0 / (1 - 2 v a s_0 t)`: it blows up at :math:`1 / (2 v a s_0)` for va > 0.
    A is beta D^T of `simulate` with ``norm="none"``. Other kinds of attention are affine on Gaussians too, V times

    * ``L2`` (A symmetric): :math:`(I + \Sigma A)^{-1}(m + \Sigma A x)`,
    * ``linear``: :math:`(\Sigma + m m^\top) A x`, for every law, not only for Gaussians,
    * ``sinkhorn``: :math:`m + C(x - m)`, :math:`C \Sigma = \Sigma A \Sigma^{1/2} \big((R + \tfrac14)^{1/2} + \tfrac12
      \big)^{-1} \Sigma^{1/2}`, :math:`R = \Sigma^{1/2} A^\top \Sigma A \Sigma^{1/2}`, by the entropic coupling of a
      Gaussian with itself.

    Reference: Castin, Ablin, Carrillo and Peyre 2025, arXiv 2501.18322, states that these attentions keep Gaussians;
    the formulas are derived here.

    Examples
    --------
    >>> from geoattn.dynamics import gaussian_flow
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

    kind = read_choice("flow", flow, ("SA", "L2", "linear", "sinkhorn"))
    if kind == "L2" and not np.allclose(a, a.T, atol=1e-12):
        raise GeoattnError("A must be symmetric for flow 'L2', whose logit is -<x - y, A (x - y)> / 2.")

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        m, s = y[:d], y[d:].reshape(d, d)
        centre, spread = _affine(kind, m, s, a)
        pushed = v @ spread
        return np.concatenate([v @ centre, (pushed + pushed.T).ravel()])

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


def _affine(kind: str, m: np.ndarray, s: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Attention of a token at the mean, covariance of attention and token) for a Gaussian."""
    if kind == "SA":
        return m + s @ a @ m, s @ a @ s
    if kind == "L2":
        inner = np.linalg.inv(np.eye(len(m)) + s @ a)
        return inner @ (m + s @ a @ m), inner @ s @ a @ s
    if kind == "linear":
        moment = s + np.outer(m, m)
        return moment @ a @ m, moment @ a @ s
    root = _power(s, lambda z: np.sqrt(z))
    middle = _power(root @ a.T @ s @ a @ root, lambda z: 1 / (np.sqrt(z + 0.25) + 0.5))
    return m, s @ a @ root @ middle @ root


def _power(matrix: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A function of a symmetric positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * function(np.maximum(values, 0.0))) @ vectors.T
