"""The density of infinitely many tokens on the 2-sphere, by spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from scipy.special import ive

from geoattn._core.arguments import read_choice, read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.density.mean_field import MeanField, Moment, advance_density
from geoattn.dynamics.interaction import SOFTMAX_FLOWS
from geoattn.dynamics.sphere_harmonics import harmonics

__all__ = ["SphereGrid", "sphere_mean_field"]


class SphereGrid:
    """Gauss-Legendre latitudes times equal longitudes, and the harmonic transform of functions on it.

    Exact for harmonics of degree up to ``degree``; the grid has half as many points again in each direction as these
    need, so that products of two functions are not aliased.
    """

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self.latitudes = 3 * (degree + 1) // 2 + 1
        self.longitudes = 2 * self.latitudes
        z, w = np.polynomial.legendre.leggauss(self.latitudes)
        s = np.sqrt(1 - z**2)
        phi = 2 * np.pi * np.arange(self.longitudes) / self.longitudes
        self.points = np.stack(
            [np.outer(s, np.cos(phi)), np.outer(s, np.sin(phi)), np.outer(z, np.ones_like(phi))], axis=-1
        )
        self.weights = w / 2  # probability of a latitude
        meridian = torch.from_numpy(np.stack([s, np.zeros_like(s), z], -1))
        # (l, m, latitude); the uniform probability is the measure, so the constant 1 has coefficient 1
        self.legendre = np.zeros((degree + 1, degree + 1, self.latitudes))
        for k, (q, c, _) in enumerate(harmonics(meridian, degree + 1)):
            row = (q * c).numpy() * math.sqrt(4 * math.pi)
            row[1:] /= math.sqrt(2)
            self.legendre[k, : k + 1] = row
        self.eigenvalues = -np.arange(degree + 1.0) * np.arange(1.0, degree + 2)  # of the Laplacian

    def analyse(self, f: Float[np.ndarray, "lat lon"]) -> Complex[np.ndarray, "l m"]:
        """Coefficients of f for the functions P_lm(z) e^{im phi}, m >= 0."""
        waves = np.fft.rfft(f, axis=1)[:, : self.degree + 1] / self.longitudes
        return np.einsum("lmi,i,im->lm", self.legendre, self.weights, waves, optimize=True)

    def synthesise(self, c: Complex[np.ndarray, "l m"]) -> Float[np.ndarray, "lat lon"]:
        """The function with these coefficients."""
        waves = np.zeros((self.latitudes, self.longitudes // 2 + 1), dtype=complex)
        waves[:, : self.degree + 1] = np.einsum("lmi,lm->im", self.legendre, c, optimize=True)
        return np.fft.irfft(waves, self.longitudes, axis=1) * self.longitudes

    def scale(self, f: Float[np.ndarray, "lat lon"], by: Float[np.ndarray, " l"]) -> Float[np.ndarray, "lat lon"]:
        """Each degree of f times a number."""
        return self.synthesise(by[:, None] * self.analyse(f))

    def mean(self, f: Float[np.ndarray, "lat lon"]) -> float:
        """Integral against the uniform probability."""
        return float(self.weights @ f.mean(1))


def sphere_mean_field(
    density: Any,
    *,
    beta: Any = 1.0,
    V: Any = 1.0,
    flow: Any = "SA",
    noise: Any = 0.0,
    until: Any = 1.0,
    save: Any = 21,
    degree: Any = 32,
) -> MeanField:
    r"""Density of tokens on the 2-sphere under attention, D = I and V a number c.

    .. math:: \partial_t \rho + \nabla \cdot (\rho \nabla \psi) = \tfrac12 \sigma^2 \Delta \rho, \qquad
              \psi = \tfrac c\beta \log m \ (SA), \quad \tfrac c\beta m \ (USA), \qquad
              m(x) = \int e^{\beta x \cdot y} d\mu(y)

    ``density`` is a function of points (..., 3), not negative; it is divided by its mean. m is a multiplication in
    harmonics (Funk-Hecke), :math:`\nabla\cdot(\rho\nabla\psi) = \tfrac12[\Delta(\rho\psi) + \rho\Delta\psi -
    \psi\Delta\rho]`. Harmonics up to ``degree``: O(degree^3) a step. An error says when the density is no longer smooth
    at that degree.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.dynamics import sphere_mean_field
    >>> flow = sphere_mean_field(lambda x: 1 + 0.1 * x[..., 2], until=0.5, degree=12)
    >>> bool(flow.balance.max() < 1e-8 and abs(flow.mass - 1).max() < 1e-12)
    True
    """
    beta, c = read_number("beta", beta, above=0.0), read_number("V", V)
    flow = read_choice("flow", flow, SOFTMAX_FLOWS)
    noise, end = read_number("noise", noise, least=0.0), read_number("until", until, least=0.0)
    grid = SphereGrid(read_count("degree", degree, least=4))
    if not callable(density):
        raise GeoattnError("density must be a function of points on the sphere, of shape (..., 3).")
    rho = np.asarray(density(grid.points), dtype=float)
    if rho.shape != grid.points.shape[:-1] or not np.isfinite(rho).all() or (rho < 0).any() or rho.sum() <= 0:
        raise GeoattnError("density must give one finite value, not negative, for each point.")
    rho = grid.scale(rho / grid.mean(rho), np.ones(grid.degree + 1))
    degrees = np.arange(grid.degree + 1)
    log_unit = beta + 0.5 * math.log(math.pi / (2 * beta))
    kernel = ive(degrees + 0.5, beta)  # times exp(log_unit): the modified spherical Bessel functions
    if flow == "USA" and log_unit > 700:
        raise GeoattnError(f"USA overflows at beta = {beta:g}; use flow='SA'.")
    unit = math.exp(min(log_unit, 700.0))
    factor = math.nan if noise or c == 0 else 2 * beta / c

    def moment(y: np.ndarray) -> Moment:
        m = grid.scale(y, kernel)
        if (m <= 0).any():
            raise GeoattnError("the density is not resolved: the mass has become negative. Use a larger degree.")
        psi = c / beta * (np.log(m) if flow == "SA" else m * unit)
        bent = grid.scale(psi, grid.eigenvalues)
        spread = grid.scale(y, grid.eigenvalues)
        change = -0.5 * (grid.scale(y * psi, grid.eigenvalues) + y * bent - psi * spread) + 0.5 * noise**2 * spread
        square = np.maximum(0.0, 0.5 * grid.scale(psi * psi, grid.eigenvalues) - psi * bent)  # |grad psi|^2
        mobility = m * unit if flow == "SA" else 1.0
        smooth = grid.scale(change, np.ones(grid.degree + 1))
        energy = grid.mean(m * y) * unit
        return Moment(smooth, energy, factor * grid.mean(square * mobility * y), float(np.sqrt(square.max())))

    def check(t: float, y: np.ndarray) -> None:
        size = np.abs(grid.analyse(y)).max(1)
        if not np.isfinite(y).all() or size[3 * grid.degree // 4 :].max() > 1e-4 * size.max():
            raise GeoattnError(
                f"the density is no longer smooth at degree {grid.degree} at t = {t:.6g}: clusters form. Use a larger"
                " degree=, or stop earlier."
            )

    times = np.linspace(0.0, end, read_count("save", save, least=1) if end else 1)
    stiff = 2.5 / max(1e-30, 0.5 * noise**2 * grid.degree * (grid.degree + 1))
    done = advance_density(
        moment, rho, times, lambda speed: min(0.02, stiff, 1.0 / (grid.degree * max(speed, 1e-12))), check, grid.mean
    )
    about = {"flow": flow, "degree": grid.degree, "noise": noise, "beta": beta, "V": c}
    return MeanField(**done, points=grid.points, settings=about)
