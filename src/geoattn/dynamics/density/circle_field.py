"""The velocity, the mobility and the energy of a density on the circle, for every kind of attention."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import expit

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.interaction import Interaction
from geoattn.dynamics.sinkhorn_scaling import doubly_stochastic
from geoattn.dynamics.variants import VARIANTS, has_energy

__all__ = ["CircleField", "Kernel", "pair_energy", "pair_weight"]

_LARGEST_EXPONENT = 700.0


def pair_weight(flow: str, logit: Float[np.ndarray, "..."], shift: float) -> Float[np.ndarray, "..."]:
    """The weight of a pair in a flow whose weights are functions of the logit: the derivative of `pair_energy`."""
    if flow == "sigmoid":
        return expit(logit - shift)
    return logit if flow == "linear" else np.exp(logit - shift)


def pair_energy(flow: str, logit: Float[np.ndarray, "..."], shift: float) -> Float[np.ndarray, "..."]:
    """What a pair adds to the energy."""
    if flow == "sigmoid":
        return np.logaddexp(0.0, logit - shift)
    return 0.5 * logit**2 if flow == "linear" else np.exp(logit - shift)


class Kernel(NamedTuple):
    """What targets see of the points of a density: weights and energies (target, point), over the number of points."""

    targets: Float[np.ndarray, "t 2"]
    weights: Float[np.ndarray, "t n"]
    energies: Float[np.ndarray, "t n"]


class CircleField:
    """Velocity, mobility and energy of a density at equally spaced points x, by the kernel at all pairs of points.

    ``SA`` and ``L2`` divide by the mass; ``sinkhorn`` finds its scaling for each density; under ``hardmax`` a token
    attends to the direction of D^T x, as a positive density is everywhere.
    """

    def __init__(self, settings: Interaction, x: Float[np.ndarray, "n 2"]) -> None:
        self.settings, self.x, self.flow = settings, x, settings.flow
        self.D = np.eye(2) if settings.D is None else settings.D.numpy()
        self.V = np.eye(2) if settings.V is None else settings.V.numpy()
        self.beta, self.shift = float(settings.beta), settings.shift
        factor = settings.gradient_factor if has_energy(settings) else None
        self.factor = math.nan if factor is None else 2 * self.beta / float(factor)
        self.normalised = self.flow in ("SA", "L2")
        largest = settings.largest_logit()
        if self.flow == "L2":
            self.D, largest = (self.D + self.D.T) / 2, 4 * largest
        # normalised flows are computed relative to the largest logit; the others have their own shift
        self.top = largest if self.normalised else self.shift
        if self.flow == "USA" and largest - self.shift > _LARGEST_EXPONENT:
            raise GeoattnError(f"USA overflows at a logit of {largest:.4g}; use flow='SA', or shift=.")
        self.kernel = self.at(x)

    def at(self, targets: Float[np.ndarray, "t 2"]) -> Kernel:
        """The kernel at targets."""
        logits = self._logits(targets)
        weights, energies = (f(self.flow, logits, self.top) / len(self.x) for f in (pair_weight, pair_energy))
        return Kernel(targets, weights, energies)

    def velocity(self, rho: Float[np.ndarray, " n"], kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
        """(Velocity along the tangent, mass, whose mean is the energy) at the targets; the mass is NaN without one."""
        values = self.x @ self.V.T
        if self.flow == "hardmax":
            keys = kernel.targets @ self.D
            size = np.linalg.norm(keys, axis=1, keepdims=True)
            if (size < 1e-12 * max(1.0, float(np.abs(self.D).max()))).any():
                raise GeoattnError("D^T x vanishes at a point of the circle: all logits are tied there under hardmax.")
            out, mass = keys / size @ self.V.T, np.full(len(kernel.targets), math.nan)
        elif self.flow == "sinkhorn":
            out, mass = self._scaled(rho, kernel.targets, values)
        else:
            out, mass = kernel.weights @ (rho[:, None] * values), kernel.energies @ rho
            out = out / mass[:, None] if self.normalised else out
        tangent = np.stack([-kernel.targets[:, 1], kernel.targets[:, 0]], -1)
        return (out * tangent).sum(-1), mass

    def totals(self, rho: np.ndarray, v: np.ndarray, mass: np.ndarray, noise: float) -> tuple[float, float]:
        """(Energy, rate of the energy by the dissipation identity)."""
        scale = math.exp(min(_LARGEST_EXPONENT, self.top)) if self.normalised else 1.0
        mobility = mass * scale if VARIANTS[self.flow].metric == "mobility" else 1.0
        rate = math.nan if noise else self.factor * float((v**2 * mobility * rho).mean())
        return float((mass * rho).mean()) * scale, rate

    def _logits(self, targets: np.ndarray) -> np.ndarray:
        if self.flow != "L2":
            return self.beta * targets @ self.D @ self.x.T
        own, other = (np.einsum("ia,ab,ib->i", z, self.D, z) for z in (targets, self.x))
        return self.beta * (targets @ self.D @ self.x.T - (own[:, None] + other[None, :]) / 2)

    def _scaled(self, rho: np.ndarray, targets: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Doubly stochastic attention; targets that are no points of the density take part without mass."""
        same = targets is self.x
        points = self.x if same else np.concatenate([self.x, targets])
        log_w = np.full(len(points), -1e4)
        log_w[: len(rho)] = np.log(np.maximum(rho, 1e-300) / rho.sum())
        logits = torch.from_numpy(self.beta * points @ self.D @ points.T)
        attention, value = doubly_stochastic(logits[None], torch.from_numpy(log_w)[None])
        rows = attention[0].numpy() if same else attention[0].numpy()[len(rho) :]
        return rows[:, : len(rho)] @ values, np.full(len(targets), float(value[0]))
