"""The measure of least energy for a positive definite D: a convex problem, solved to a duality gap."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize, nnls
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.inputs import read_symmetric

__all__ = ["CircleDensity", "Minimiser", "circle_density", "minimise_positive"]


@dataclass(frozen=True, repr=False)
class Minimiser(Displayed):
    """Atoms in the eigenbasis of D with all their reflections; ``lower`` bounds the least energy from below.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import minimise_positive
    >>> found = minimise_positive(torch.tensor([1.0, 2.0], dtype=torch.float64))
    >>> bool(found.lower > 1)
    True
    """

    atoms: Float[Tensor, "m d"]
    weights: Float[Tensor, " m"]
    energy: float
    lower: float
    rounds: int
    why: str


def minimise_positive(
    eigenvalues: Float[Tensor, " d"], *, tolerance: float = 1e-8, rounds: int = 60, seed: int = 0
) -> Minimiser:
    r"""Least :math:`\iint e^{x \cdot D y}` for D = diag(eigenvalues) > 0, over all measures on the sphere.

    The minimiser is unique, so it is invariant under :math:`x_k \to -x_k`; averaged over these reflections the kernel
    is :math:`\prod_k \cosh(\lambda_k x_k y_k)` on the positive orthant. Fully corrective Frank-Wolfe: the best weights
    of the atoms so far (a non-negative least squares problem, solved exactly), then new atoms at the minima of the
    potential m. Certificate: :math:`(\min m)^2 / E(\mu) \le E_{\min} \le E(\mu)` by Cauchy-Schwarz for the positive
    definite kernel; min m over the sphere is found by local searches from many starts.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import minimise_positive
    >>> found = minimise_positive(torch.tensor([1.0, 1.0], dtype=torch.float64))
    >>> round(found.lower, 4)  # the uniform measure: I_0(1)
    1.2661
    """
    scale = np.asarray(eigenvalues, dtype=float)
    d = len(scale)
    rng = np.random.default_rng(seed)
    atoms = _start(d, rng)
    weights, energy, lower, used = np.empty(0), np.inf, -np.inf, 0
    while True:
        used += 1
        weights = _best_weights(_kernel(atoms, atoms, scale))
        atoms, weights = atoms[weights > 0], weights[weights > 0]
        energy = float(weights @ _kernel(atoms, atoms, scale) @ weights)
        found, lowest = _minima(atoms, weights, scale, rng)
        lower = max(lower, lowest**2 / energy)
        if energy - lower <= tolerance * energy:
            break
        if used == rounds:
            raise GeoattnError(
                f"the gap {energy - lower:.3g} of the least energy is above the tolerance after {rounds} rounds; pass a"
                " larger tolerance=."
            )
        atoms = np.concatenate([atoms, found])
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=d))) if d <= 10 else rng.choice((1.0, -1.0), (1024, d))
    full = (atoms[:, None, :] * signs).reshape(-1, d)
    masses = np.repeat(weights / len(signs), len(signs))
    keep, inverse = np.unique(full.round(12) + 0.0, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), masses, minlength=len(keep))
    keep = keep / np.linalg.norm(keep, axis=1, keepdims=True)
    why = f"minimum of m over the sphere by local searches, {used} rounds"
    return Minimiser(torch.from_numpy(keep), torch.from_numpy(total / total.sum()), energy, float(lower), used, why)


def _start(d: int, rng: np.random.Generator) -> np.ndarray:
    """Points of the positive orthant: the axes, the centre, and an even or a random spread."""
    if d == 2:
        angle = np.linspace(0, np.pi / 2, 65)
        return np.stack([np.cos(angle), np.sin(angle)], -1)
    spread = np.abs(rng.standard_normal((300 if d == 3 else 100 * d, d)))
    points = np.concatenate([np.eye(d), np.ones((1, d)), spread])
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _kernel(x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.prod(np.cosh(scale * x[:, None, :] * y[None, :, :]), axis=-1)


def _best_weights(kernel: np.ndarray) -> np.ndarray:
    """Least w K w with w >= 0 and sum one.

    By homogeneity: the minimiser of w K w + (sum w - 1)^2 is a multiple of it, and that is a least squares problem.
    """
    values, vectors = np.linalg.eigh(kernel)
    keep = values > 1e-15 * values[-1]
    root = np.sqrt(values[keep])[:, None] * vectors[:, keep].T
    matrix = np.concatenate([root, np.ones((1, len(kernel)))])
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    w, _ = nnls(matrix, target, maxiter=100 * len(kernel))
    return w / w.sum()


def _minima(
    atoms: np.ndarray, weights: np.ndarray, scale: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Local minima of the potential over the orthant, and the lowest value."""
    d = len(scale)

    def potential(y: np.ndarray) -> tuple[float, np.ndarray]:
        norm = np.linalg.norm(y)
        x = y / norm
        arguments = scale * x * atoms
        terms = weights * np.prod(np.cosh(arguments), axis=-1)
        gradient = (terms[:, None] * np.tanh(arguments) * atoms * scale).sum(0)
        return float(terms.sum()), (gradient - (gradient @ x) * x) / norm

    crowd = np.abs(rng.standard_normal((2000, d)))
    crowd /= np.linalg.norm(crowd, axis=1, keepdims=True)
    crowd = np.concatenate([crowd, np.eye(d)])
    order = np.argsort(_kernel(crowd, atoms, scale) @ weights)
    starts = np.concatenate([crowd[order[:8]], crowd[rng.choice(len(crowd), 8, replace=False)]])
    found, lowest = [*crowd[order[: 25 * d]]], np.inf  # low points too: in many dimensions there are many minima
    for start in starts:
        result = minimize(potential, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12})
        x = np.abs(result.x) / np.linalg.norm(result.x)
        found.append(x)
        lowest = min(lowest, float(result.fun))
    return np.array(found), lowest


@dataclass(frozen=True, repr=False)
class CircleDensity(Displayed):
    """Weights at equally spaced angles; ``energy - gap`` <= the least energy on this grid.

    Examples
    --------
    >>> from geoattn.dynamics import circle_density
    >>> density = circle_density([[1.0, 0.0], [0.0, 1.1]])
    >>> round(density.mode(2), 3)
    0.198
    """

    angles: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    energy: float
    gap: float
    iterations: int

    def mode(self, k: int) -> float:
        r"""Coefficient :math:`a_k` of the density :math:`1 + \sum_k a_k \cos k\varphi` relative to uniform."""
        return float(2 * self.weights @ np.cos(k * self.angles))


def circle_density(
    D: Any, beta: Any = 1.0, *, points: Any = 256, rate: Any = None, iterations: Any = 10_000, tolerance: Any = 1e-8
) -> CircleDensity:
    r"""Density on the circle of least energy for a positive definite 2 x 2 matrix, by mirror descent.

    Exponentiated gradient :math:`w \leftarrow w e^{-\eta g} / Z`, :math:`g = 2Kw`, which stays positive and smooth, so
    the result is a density where the atoms of `minimise_positive` are a quadrature of it. Stops at the duality gap
    :math:`g \cdot w - \min g \le` tolerance, or after ``iterations``. O(points^2) an iteration.

    Examples
    --------
    >>> from geoattn.dynamics import circle_density
    >>> circle_density([[1.0, 0.0], [0.0, 1.1]]).mode(2) / 0.1
    1.9848
    """
    matrix = read_symmetric("D", D).numpy() * read_number("beta", beta)
    if matrix.shape != (2, 2) or np.linalg.eigvalsh(matrix)[0] <= 0:
        raise GeoattnError("D must be a positive definite 2 x 2 matrix, or the problem is not convex.")
    n = read_count("points", points, least=8)
    angles = 2 * np.pi * np.arange(n) / n
    x = np.stack([np.cos(angles), np.sin(angles)], -1)
    kernel = np.exp(x @ matrix @ x.T)
    if rate is None:  # a mode of the density with the eigenvalue l of the kernel shrinks by 1 - 2 rate l / n
        rate = n / (2 * np.linalg.eigvalsh(kernel)[-2])
    rate = read_number("rate", rate, above=0.0)
    w = np.full(n, 1.0 / n)
    g, used, most = 2 * kernel @ w, 0, read_count("iterations", iterations, least=1)
    while used < most:
        used += 1
        w = w * np.exp(-rate * (g - g.min()))
        w /= w.sum()
        g = 2 * kernel @ w
        if g @ w - g.min() <= tolerance:
            break
    if not np.isfinite(w).all():
        raise GeoattnError(f"mirror descent with the rate {rate:g} diverges; leave rate= to its default.")
    return CircleDensity(angles, w, float(g @ w / 2), float(g @ w - g.min()), used)
