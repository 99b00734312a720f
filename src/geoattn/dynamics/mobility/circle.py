"""The mobility distance of densities on the circle, by their quantiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from geoattn._core.arguments import read_count
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.density.circle import circle_quantiles, read_density
from geoattn.dynamics.mobility.path import Arcs, action, shorten
from geoattn.dynamics.mobility.result import MobilityDistance, below, sampled

__all__ = ["density_distance", "is_density"]

_LEAST = 1e-3  # of the mean: below, the quantiles are not smooth


def is_density(measure: Any) -> bool:
    """A function of the angle, or one row of values."""
    return callable(measure) or (not isinstance(measure, tuple) and np.ndim(measure) == 1)


def density_distance(
    mu: Any, nu: Any, kernel: Tensor, *, points: Any, times: int, tolerance: float
) -> MobilityDistance:
    r"""`mobility_distance` of two smooth positive densities on the circle.

    A density is the image of the uniform levels s in [0, 1) under its quantile function. A path of densities moves the
    quantile at s of mu to that at s + a of nu; the turn a is found with the path. Sums over equally spaced levels are
    spectrally accurate. The error is that between ``points`` and half as many levels.
    """
    points = read_count("points", points, least=8)
    rho, _ = read_density(mu, 256)
    eta, _ = read_density(nu, 256)
    for name, density in (("mu", rho), ("nu", eta)):
        if density.min() < _LEAST:
            raise GeoattnError(
                f"{name}: the density must be at least {_LEAST:g} of its mean everywhere, so that its quantiles are"
                f" smooth; the least value is {density.min():.3g}. Use tokens: sample_circle gives them."
            )
    swap = (len(rho), rho.tolist()) > (len(eta), eta.tolist())
    if swap:
        rho, eta = eta, rho
    fine, rough = (_distance(rho, eta, kernel, count, tolerance) for count in (points, max(4, points // 2)))
    (value, w2, arcs, bend, found), other = fine, rough[0]
    norm = float(torch.linalg.matrix_norm(kernel, 2))
    lower = below(math.exp(-norm / 2) * w2, value)
    near = [f <= value * (1 + 1e-3) for f in found]
    return MobilityDistance(
        value=value, lower=lower, upper=value + abs(value - other), path=sampled(arcs, bend, times, swap), w2=w2,
        coupling=None, starts=found, agreement=sum(near) / len(near),
        settings={"n": points, "d": 2, "norm": norm, "modes": len(bend), "tolerance": tolerance, "kind": "density"},
    )  # fmt: skip


def _distance(
    rho: np.ndarray, eta: np.ndarray, kernel: Tensor, points: int, tolerance: float
) -> tuple[float, float, Arcs, Tensor, tuple[float, ...]]:
    levels = (np.arange(points) + 0.5) / points
    here, _ = circle_quantiles(rho, levels)

    def gap(turn: float) -> float:
        return float(np.mean((circle_quantiles(eta, levels + turn)[0] - here) ** 2))

    plain = minimize_scalar(gap, bounds=(-1.0, 1.0), method="bounded", options={"xatol": 1e-12})
    turn = float(plain.x)  # pyright: ignore[reportAttributeAccessIssue]
    w2 = math.sqrt(max(0.0, gap(turn)))
    x = torch.from_numpy(np.stack([np.cos(here), np.sin(here)], -1))
    u = torch.from_numpy(np.stack([-np.sin(here), np.cos(here)], -1))
    weights = torch.full((points,), 1.0 / points, dtype=torch.float64)

    def angles(start: float, more: float) -> tuple[Tensor, Tensor]:
        there, slope = circle_quantiles(eta, levels + start + more)
        return torch.from_numpy(there - here), torch.from_numpy(slope)

    if w2 < 1e-9:
        arcs = Arcs(x, u, torch.zeros(points, dtype=torch.float64), weights)
        return 0.0, 0.0, arcs, torch.zeros(0, points, 2, dtype=torch.float64), (0.0,)
    best: tuple[float, Arcs, Tensor] | None = None
    ends = []
    for start in (turn, turn + 0.5, turn - 0.5):
        bend, before, modes, done = torch.zeros(4, points, 2, dtype=torch.float64), math.inf, 4, start
        arcs = Arcs(x, u, angles(done, 0.0)[0], weights)
        while True:
            value, bend, more = shorten(arcs, bend, kernel, 2 * modes, turn=lambda z, s=done: angles(s, z))
            done += more
            arcs = Arcs(x, u, angles(done, 0.0)[0], weights)
            worse = best is not None and value > best[0] * (1 - 1e-6)
            if before - value <= tolerance * value or modes >= 24 or worse:
                break
            before, modes = value, modes + 4
            bend = torch.cat([bend, torch.zeros(4, points, 2, dtype=torch.float64)])
        value, _, _ = action(arcs, bend, kernel, 6 * modes)
        ends.append(math.sqrt(value))
        if best is None or value < best[0] * (1 - 1e-6):
            best = value, arcs, bend
    assert best is not None
    return math.sqrt(best[0]), w2, best[1], best[2], tuple(ends)
