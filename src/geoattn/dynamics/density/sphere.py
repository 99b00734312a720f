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
from geoattn.dynamics.density.circle_field import pair_energy
from geoattn.dynamics.density.mean_field import MeanField, Moment, advance_density
from geoattn.dynamics.interaction import FLOWS
from geoattn.dynamics.sphere_harmonics import harmonics

__all__ = ["SphereGrid", "sphere_mean_field"]

_SCALINGS = 2000  # steps of the scaling of sinkhorn


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
    shift: Any = 0.0,
    noise: Any = 0.0,
    until: Any = 1.0,
    save: Any = 21,
    degree: Any = 32,
) -> MeanField:
    r"""Density of tokens on the 2-sphere under attention, D = I and V a number c.

    .. math:: \partial_t \rho + \nabla \cdot (\rho \nabla \psi) = \tfrac12 \sigma^2 \Delta \rho, \qquad
              \psi = \tfrac c\beta \log m \ (SA), \quad \tfrac c\beta m \ (USA), \qquad
              m(x) = \int e^{\beta x \cdot y} d\mu(y)

    The other flows of `simulate`: ``sigmoid`` and ``linear`` have m with softplus(logit - shift) and logit^2 / 2 in
    place of the exponential and move as USA does; ``sinkhorn`` has :math:`\psi = -\tfrac c\beta u` with the potential
    u of its scaling; ``L2`` is SA, and under ``hardmax`` tokens stay, as D = I.

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
    kind, shift = read_choice("flow", flow, FLOWS), read_number("shift", shift)
    noise, end = read_number("noise", noise, least=0.0), read_number("until", until, least=0.0)
    grid = SphereGrid(read_count("degree", degree, least=4))
    if not callable(density):
        raise GeoattnError("density must be a function of points on the sphere, of shape (..., 3).")
    rho = np.asarray(density(grid.points), dtype=float)
    if rho.shape != grid.points.shape[:-1] or not np.isfinite(rho).all() or (rho < 0).any() or rho.sum() <= 0:
        raise GeoattnError("density must give one finite value, not negative, for each point.")
    rho = grid.scale(rho / grid.mean(rho), np.ones(grid.degree + 1))
    potential = _Potential(grid, kind, beta, c, shift)
    factor = math.nan if noise or c == 0 else 2 * beta / c

    def moment(y: np.ndarray) -> Moment:
        psi, energy, mobility = potential(y)
        bent = grid.scale(psi, grid.eigenvalues)
        spread = grid.scale(y, grid.eigenvalues)
        change = -0.5 * (grid.scale(y * psi, grid.eigenvalues) + y * bent - psi * spread) + 0.5 * noise**2 * spread
        square = np.maximum(0.0, 0.5 * grid.scale(psi * psi, grid.eigenvalues) - psi * bent)  # |grad psi|^2
        smooth = grid.scale(change, np.ones(grid.degree + 1))
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
    about = {"flow": kind, "degree": grid.degree, "noise": noise, "beta": beta, "V": c}
    return MeanField(**done, points=grid.points, settings=about)


class _Potential:
    """The function whose gradient is the velocity, the energy, and the mobility, of a density on a grid."""

    def __init__(self, grid: SphereGrid, flow: str, beta: float, c: float, shift: float) -> None:
        self.grid, self.flow, self.factor = grid, flow, c / beta
        degrees = np.arange(grid.degree + 1)
        if flow in ("sigmoid", "linear"):
            t, w = np.polynomial.legendre.leggauss(4 * grid.degree + 64)
            shares = pair_energy(flow, beta * t, shift) * w / 2
            self.kernel, self.unit = np.polynomial.legendre.legvander(t, grid.degree).T @ shares, 1.0
            return
        # the modified spherical Bessel functions, times exp(-log_unit)
        log_unit = beta + 0.5 * math.log(math.pi / (2 * beta)) - (shift if flow == "USA" else 0.0)
        self.kernel = ive(degrees + 0.5, beta)
        if flow == "USA" and log_unit > 700:
            raise GeoattnError(f"USA overflows at beta = {beta:g}; use flow='SA', or shift=.")
        self.log_unit, self.unit = log_unit, math.exp(min(log_unit, 700.0))

    def __call__(self, y: np.ndarray) -> tuple[np.ndarray, float, Any]:
        """(Potential, energy, mobility)."""
        if self.flow == "hardmax":
            return np.zeros_like(y), math.nan, 1.0
        if self.flow == "sinkhorn":
            u = self._scaling(y)
            return -self.factor * u, -2 * self.grid.mean(u * y), 1.0
        m = self.mass(y)
        energy = self.grid.mean(m * y) * self.unit
        if self.flow in ("SA", "L2"):
            return self.factor * np.log(m), energy, m * self.unit
        return self.factor * m * self.unit, energy, 1.0

    def mass(self, y: np.ndarray) -> np.ndarray:
        """The kernel applied to a density, over the unit."""
        m = self.grid.scale(y, self.kernel)
        if self.flow not in ("sigmoid", "linear") and (m <= 0).any():
            raise GeoattnError("the density is not resolved: the mass has become negative. Use a larger degree.")
        return m

    def _scaling(self, y: np.ndarray) -> np.ndarray:
        """The potential u with exp(u(x) + beta x.z + u(z)) dmu(z) of mass one for every x, by averaged steps."""
        u = np.zeros_like(y)
        for _ in range(_SCALINGS):
            new = -np.log(self.mass(y * np.exp(u - u.max()))) - u.max() - self.log_unit
            u, before = (u + new) / 2, u
            if np.abs(u - before).max() <= 1e-14 * (1 + np.abs(u).max()):
                return u
        raise GeoattnError(f"the scaling to doubly stochastic attention does not converge in {_SCALINGS} iterations.")
