"""The density of infinitely many tokens on the circle: the continuity equation, spectral or by finite volumes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.density.circle_field import CircleField
from geoattn.dynamics.density.mean_field import MeanField, Moment, advance_density
from geoattn.dynamics.interaction import read_interaction

__all__ = ["circle_distance", "circle_mean_field", "circle_quantiles", "read_density", "sample_circle"]

_TAIL = 1e-5  # share of the highest third of the modes above which a spectral density is not resolved


def circle_mean_field(
    density: Any,
    *,
    beta: Any = 1.0,
    D: Any = None,
    V: Any = None,
    flow: str = "SA",
    shift: Any = 0.0,
    noise: Any = 0.0,
    until: Any = 1.0,
    save: Any = 51,
    method: Any = "spectral",
    points: Any = 256,
) -> MeanField:
    r"""Density of tokens on the circle under attention.

    .. math:: \partial_t \rho + \partial_\theta (\rho v) = \tfrac12 \sigma^2 \partial_\theta^2 \rho, \qquad
              v(x) = \tau(x) \cdot \frac{\int e^{\beta x \cdot D y} V y \, d\mu(y)}{\int e^{\beta x \cdot D y} d\mu(y)}

    with the tangent :math:`\tau`, for SA; ``flow`` and ``shift`` are those of `simulate`, whose other flows have other
    weights. Under hardmax a positive density attends to :math:`D^\top x / |D^\top x|`. ``density`` is a function of the
    angle, or values at equally spaced angles from 0 on, not negative; it is divided by its mean. D and V may be any
    2 x 2 matrices.

    ``spectral``: Fourier modes with the upper third removed, error beyond all orders while the density is smooth; an
    error says when it is not any more. ``finite-volume``: second order upwind with a limiter, positive
    and conservative, for densities that concentrate. O(points^2) a step.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.dynamics import circle_mean_field
    >>> flow = circle_mean_field(lambda a: 1 + 0.1 * np.cos(a), beta=1.0, until=1.0)
    >>> bool(flow.balance.max() < 1e-9 and abs(flow.mass - 1).max() < 1e-12)
    True
    """
    method = read_choice("method", method, ("spectral", "finite-volume"))
    noise, end = read_number("noise", noise, least=0.0), read_number("until", until, least=0.0)
    rho, angles = read_density(density, points)
    x = np.stack([np.cos(angles), np.sin(angles)], -1)
    settings = read_interaction(torch.from_numpy(x), beta=beta, D=D, V=V, flow=flow, shift=shift)
    if settings.beta.ndim or settings.changing:
        raise GeoattnError("the mean field takes one beta, one D and one V that do not change in time.")
    field_ = CircleField(settings, x)
    spacing = 2 * math.pi / len(rho)
    times = np.linspace(0.0, end, read_count("save", save, least=1) if end else 1)
    if method == "spectral":
        moment, scale = _spectral(field_, len(rho), noise), 0.5 * spacing
        stiff = 2.5 / max(1e-30, 0.5 * noise**2 * (len(rho) / 3) ** 2)
    else:
        moment, scale = _finite_volume(field_, angles, spacing, noise), 0.4 * spacing
        stiff = 0.5 * spacing**2 / max(1e-30, noise**2)

    def check(t: float, y: np.ndarray) -> None:
        if not np.isfinite(y).all():
            raise GeoattnError(f"the density is not finite at t = {t:.6g}; use more points or 'finite-volume'.")
        if method == "spectral":
            modes = np.abs(np.fft.rfft(y))
            if modes[len(y) // 4 : len(y) // 3 + 1].max() > _TAIL * modes.max():
                raise GeoattnError(
                    f"the density is no longer smooth on {len(y)} points at t = {t:.6g}: it concentrates. Use more"
                    " points, method='finite-volume', or stop earlier."
                )

    done = advance_density(
        moment, rho, times, lambda speed: min(0.02, stiff, scale / max(speed, 1e-12)), check, lambda y: float(y.mean())
    )
    about = {"flow": settings.flow, "method": method, "points": len(rho), "noise": noise, "beta": float(settings.beta)}
    return MeanField(**done, points=x, settings=about)


def _spectral(field_: CircleField, n: int, noise: float) -> Callable[[np.ndarray], Moment]:
    k = np.arange(n // 2 + 1)
    keep = k <= n // 3

    def moment(rho: np.ndarray) -> Moment:
        v, mass = field_.velocity(rho, field_.kernel)
        flux = np.fft.rfft(rho * v)
        change = np.fft.irfft(keep * (-1j * k * flux - 0.5 * noise**2 * k**2 * np.fft.rfft(rho)), n)
        energy, rate = field_.totals(rho, v, mass, noise)
        return Moment(change, energy, rate, float(np.abs(v).max()))

    return moment


def _finite_volume(
    field_: CircleField, angles: np.ndarray, spacing: float, noise: float
) -> Callable[[np.ndarray], Moment]:
    edges = angles + spacing / 2
    kernel = field_.at(np.stack([np.cos(edges), np.sin(edges)], -1))

    def moment(rho: np.ndarray) -> Moment:
        v, _ = field_.velocity(rho, kernel)
        left, right = rho - np.roll(rho, 1), np.roll(rho, -1) - rho
        slope = np.where(left * right > 0, np.sign(left) * np.minimum(np.abs(left), np.abs(right)), 0.0)
        behind, ahead = rho + slope / 2, np.roll(rho - slope / 2, -1)
        flux = np.where(v > 0, v * behind, v * ahead) - 0.5 * noise**2 * right / spacing
        inside, mass = field_.velocity(rho, field_.kernel)
        energy, rate = field_.totals(rho, inside, mass, noise)
        return Moment(-(flux - np.roll(flux, 1)) / spacing, energy, rate, float(np.abs(v).max()))

    return moment


def read_density(density: Any, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """(Density of mean one, its equally spaced angles) of a function of the angle or of values there."""
    n = read_count("points", points, least=16)
    if callable(density):
        angles = 2 * math.pi * np.arange(n) / n
        rho = np.asarray(density(angles), dtype=float)
    else:
        rho = np.array(density, dtype=float)
        angles = 2 * math.pi * np.arange(len(rho)) / max(1, len(rho))
    if rho.ndim != 1 or len(rho) < 16 or not np.isfinite(rho).all() or (rho < 0).any() or rho.sum() <= 0:
        raise GeoattnError(
            "density must be a function of the angle or at least 16 finite values, not negative; got shape"
            f" {rho.shape}."
        )
    return rho / rho.mean(), angles


def circle_quantiles(
    density: Float[np.ndarray, " m"], levels: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Angles below which the shares ``levels`` of a density lie, counted from the angle 0, and their derivatives.

    A level beyond one goes on round the circle. The cumulative distribution is the integral of the trigonometric
    interpolant of the values, inverted by Newton's method.

    Examples
    --------
    >>> circle_quantiles(np.ones(16), np.array([0.25, 1.25]))[0] / np.pi
    array([0.5, 2.5])
    """
    rounds = np.floor(levels)
    shares = levels - rounds
    modes = np.fft.rfft(density) / len(density)
    k = np.arange(1, min(len(modes), len(density) // 2))
    c = modes[1 : len(k) + 1]
    fine = np.linspace(0, 2 * np.pi, 4 * len(density) + 1)

    def cumulative(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        below, here = np.empty_like(a), np.empty_like(a)
        for start in range(0, len(a), 8192):
            part = a[start : start + 8192]
            waves = np.exp(1j * np.outer(part, k))
            below[start : start + 8192] = (part + 2 * (((waves - 1) / (1j * k)) @ c).real) / (2 * np.pi)
            here[start : start + 8192] = 1 + 2 * (waves @ c).real
        return below, here

    a = np.interp(shares, np.maximum.accumulate(cumulative(fine)[0]), fine)
    here = np.ones_like(a)
    for _ in range(5):
        below, here = cumulative(a)
        a = a - np.clip((below - shares) * 2 * np.pi / np.maximum(here, 1e-3), -0.1, 0.1)
    return a + 2 * np.pi * rounds, 2 * np.pi / np.maximum(here, 1e-3)


def sample_circle(density: Any, n: Any, *, seed: Any = None) -> Float[torch.Tensor, "n 2"]:
    """Tokens on the circle with a density given at equally spaced angles: its quantiles, or random by ``seed``.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.dynamics import sample_circle
    >>> sample_circle(np.ones(64), 4)[0]
    tensor([0.7071, 0.7071], dtype=torch.float64)
    """
    rho, _ = read_density(density, 256)
    n = read_count("n", n, least=1)
    levels = (np.arange(n) + 0.5) / n if seed is None else np.sort(np.random.default_rng(seed).random(n))
    a, _ = circle_quantiles(rho, levels)
    return torch.from_numpy(np.stack([np.cos(a), np.sin(a)], -1))


def circle_distance(tokens: Any, density: Any) -> float:
    r"""Transport distance W1 on the circle between tokens and a density at equally spaced angles.

    :math:`\min_c \int |F - G - c|`, F and G the cumulative distributions: c is their median difference.

    Examples
    --------
    >>> round(circle_distance(sample_circle(np.ones(64), 100), np.ones(64)), 4)  # pi / 200
    0.0157
    """
    rho, _ = read_density(density, 256)
    x = np.asarray(tokens, dtype=float)
    spots = np.sort(np.mod(np.arctan2(x[:, 1], x[:, 0]), 2 * np.pi))
    grid = np.linspace(0, 2 * np.pi, 1 << 15, endpoint=False)
    modes = np.fft.rfft(rho) / len(rho)
    k = np.arange(1, len(rho) // 2)
    smooth = np.zeros(len(grid) // 2 + 1, dtype=complex)
    smooth[k] = modes[k] / (1j * k)
    wave = np.fft.irfft(smooth, len(grid)) * len(grid)
    F = (grid + wave - wave[0]) / (2 * np.pi)
    G = np.searchsorted(spots, grid, side="right") / len(spots)
    gap = F - G
    return float(np.abs(gap - np.median(gap)).mean() * 2 * np.pi)
