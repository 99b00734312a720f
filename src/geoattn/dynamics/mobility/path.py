"""Paths of weighted tokens on the sphere, and their action in the mobility metric."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import Legendre
from scipy.optimize import minimize
from torch import Tensor

__all__ = ["Arcs", "action", "great_arcs", "path_at", "quadrature", "shorten", "waves_at"]

_BLOCK_ENTRIES = 1 << 22  # kernel entries in work at once


class Arcs:
    """Arcs of great circles from x in the directions u by the given angles: where a path starts to be bent.

    ``angles`` beyond pi, or below zero, go the long way round. All weights are positive.
    """

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        u: Float[Tensor, "n d"],
        angles: Float[Tensor, " n"],
        weights: Float[Tensor, " n"],
    ) -> None:
        self.x, self.u, self.angles, self.weights = x, u, angles, weights


def great_arcs(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n d"],
    weights: Float[Tensor, " n"],
    long: Tensor | None = None,
    seed: int = 0,
) -> Arcs:
    """The arcs from x to y, the long way round where ``long``; the plane between antipodes is random."""
    cosine = (x * y).sum(-1)
    rest = y - cosine[:, None] * x
    size = rest.norm(dim=-1)
    draw = torch.Generator().manual_seed(seed)
    other = torch.randn(x.shape, generator=draw, dtype=x.dtype)
    other = other - (x * other).sum(-1, keepdim=True) * x
    straight = size > 1e-12
    u = torch.where(straight[:, None], rest / size.clamp_min(1e-300)[:, None], other / other.norm(dim=-1, keepdim=True))
    angles = 2 * torch.atan2((x - y).norm(dim=-1), (x + y).norm(dim=-1))
    if long is not None:
        angles = torch.where(long, angles - 2 * math.pi, angles)
    return Arcs(x, u, angles, weights)


def waves_at(t: np.ndarray, modes: int) -> tuple[Tensor, Tensor]:
    """Integrated Legendre polynomials, zero at both ends, and their orthonormal derivatives: (time, mode)."""
    values, slopes = [], []
    for k in range(1, modes + 1):
        slope = Legendre.basis(k, domain=[0.0, 1.0]) * math.sqrt(2 * k + 1)
        values.append(slope.integ(lbnd=0.0)(t))
        slopes.append(slope(t))
    shape = (len(t), modes)
    both = (np.reshape(np.stack(z, -1), shape) if modes else np.empty(shape) for z in (values, slopes))
    first, second = (torch.from_numpy(z) for z in both)
    return first, second


@functools.lru_cache(maxsize=64)
def quadrature(nodes: int, modes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gauss-Legendre times and weights on [0, 1], and the modes and their derivatives at these times."""
    z, weights = np.polynomial.legendre.leggauss(nodes)
    times = (z + 1) / 2
    return torch.from_numpy(times), torch.from_numpy(weights / 2), *waves_at(times, modes)


def path_at(
    arcs: Arcs, bend: Float[Tensor, "k n d"], waves: Float[Tensor, "t k"], slopes: Float[Tensor, "t k"], t: Tensor
) -> tuple[Float[Tensor, "t n d"], Float[Tensor, "t n d"]]:
    r"""(Tokens, velocities) at times t of the path :math:`p / |p|`, p the arc plus modes across it."""
    a = arcs.angles[None, :, None]
    turned = a * t[:, None, None]
    cosine, sine = turned.cos(), turned.sin()
    arc, along = cosine * arcs.x + sine * arcs.u, a * (cosine * arcs.u - sine * arcs.x)
    root = arcs.weights.sqrt()[:, None]  # modes in units of the metric: a well conditioned problem
    b = torch.einsum("tk,knd->tnd", waves, bend) / root
    db = torch.einsum("tk,knd->tnd", slopes, bend) / root
    out, turn = (b * arc).sum(-1, keepdim=True), (b * along).sum(-1, keepdim=True)
    p = arc + b - out * arc  # across the arc, so that |p| >= 1: a path cannot hide a jump at the origin
    dp = along + db - ((db * arc).sum(-1, keepdim=True) + turn) * arc - out * along
    norm = p.norm(dim=-1, keepdim=True)
    x = p / norm
    return x, (dp - (x * dp).sum(-1, keepdim=True) * x) / norm


def action(
    arcs: Arcs, bend: Float[Tensor, "k n d"], D: Float[Tensor, "d d"], nodes: int
) -> tuple[float, Float[Tensor, "k n d"], Float[Tensor, " n"]]:
    r"""Action of a path by Gauss-Legendre quadrature, and its derivatives by the modes and by the angles of the arcs.

    .. math:: A = \int_0^1 \sum_i w_i \, m(x_i) |\dot x_i|^2 \, dt, \qquad m(x) = \sum_j w_j e^{\langle x, D x_j\rangle}
    """
    times, weights, waves, slopes = quadrature(nodes, len(bend))
    free, angles = bend.detach().requires_grad_(), arcs.angles.detach().requires_grad_()
    moving = Arcs(arcs.x, arcs.u, angles, arcs.weights)
    n = arcs.x.shape[0]
    together, total = max(1, _BLOCK_ENTRIES // (n * n)), 0.0
    grad_bend, grad_angles = torch.zeros_like(free), torch.zeros_like(angles)
    for start in range(0, nodes, together):
        part = slice(start, start + together)
        x, v = path_at(moving, free, waves[part], slopes[part], times[part])
        mass = (x @ D @ x.mT).exp() @ arcs.weights
        each = (arcs.weights * mass * v.square().sum(-1)).sum(-1)
        value = (weights[part] * each).sum()
        total += float(value.detach())
        one, two = torch.autograd.grad(value, [free, angles], allow_unused=True)
        grad_bend = grad_bend if one is None else grad_bend + one
        grad_angles = grad_angles if two is None else grad_angles + two
    return total, grad_bend, grad_angles


def shorten(
    arcs: Arcs,
    bend: Float[Tensor, "k n d"],
    D: Float[Tensor, "d d"],
    nodes: int,
    *,
    turn: Callable[[float], tuple[Tensor, Tensor]] | None = None,
    iterations: int = 300,
) -> tuple[float, Float[Tensor, "k n d"], float]:
    """Least action over the modes by L-BFGS: (action, modes, turn).

    ``turn`` maps a number to the angles of the arcs and their derivatives, when the ends of the path may slide along
    themselves, as those of a density on the circle do; the number is then found too, from 0.
    """
    shape, scale = bend.shape, max(action(arcs, bend, D, nodes)[0], 1e-300)

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        here, slope = arcs, None
        if turn is not None:
            angles, slope = turn(float(z[0]))
            here = Arcs(arcs.x, arcs.u, angles, arcs.weights)
        modes = torch.from_numpy(z[turn is not None :]).reshape(shape)
        value, by_bend, by_angle = action(here, modes * math.sqrt(scale), D, nodes)
        gradient = by_bend.numpy().ravel() / math.sqrt(scale)
        if slope is not None:
            gradient = np.concatenate([[float((by_angle * slope).sum()) / scale], gradient])
        return value / scale, gradient

    start = (bend / math.sqrt(scale)).numpy().ravel()
    start = start if turn is None else np.concatenate([[0.0], start])
    options = {"maxiter": iterations, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20}
    done = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    modes = torch.from_numpy(done.x[turn is not None :]).reshape(shape) * math.sqrt(scale)
    return float(done.fun) * scale, modes, float(done.x[0]) if turn is not None else 0.0
