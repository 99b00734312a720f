"""The best energy for a flow: a symmetric matrix whose interaction energy explains the velocity of tokens."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from torch import Tensor

__all__ = ["energy_residual", "fit_energy"]


def fit_energy(
    x: Float[Tensor, "n d"],
    w: Float[Tensor, " n"],
    A: Float[Tensor, "d d"],
    V: Float[Tensor, "d d"],
    used: Bool[Tensor, " n"],
    held: Bool[Tensor, " n"] | None = None,
    *,
    iterations: int = 100,
) -> tuple[Float[Tensor, "d d"], float]:
    r"""(S, c) such that :math:`c \nabla E_S / m` is nearest to the velocity of SA at the tokens ``used``.

    .. math:: \min_{S, c} \sum_i w_i m(x_i) \Big|v_i - c\, m(x_i)^{-1} P^\perp_{x_i} \sum_j w_j
              e^{\langle x_i, S x_j\rangle} S x_j\Big|^2

    with the mass m of the kernel A, the norm of the metric in which SA with V = A climbs :math:`E_A`. All tokens are
    sources. S starts at the symmetric part of A; c has a closed form; L-BFGS finds S. Of its iterates, and of no motion
    at all (c = 0), that which is best at the tokens ``held`` is taken; by default at those used.

    The best S lives on the span of all :math:`x_j` and :math:`V x_j`, so it is looked for there: O(n^3) an iteration.
    """
    held = used if held is None else held
    span = torch.linalg.qr(torch.cat([x, x @ V.mT]).mT)[0] if 2 * len(x) < x.shape[1] else torch.eye(x.shape[1])
    span = span.to(x)
    y, small = x @ span, span.mT @ A @ span
    fit = _Fit(y, w, small, span.mT @ V @ span)
    start = ((small + small.mT) / 2).numpy()
    lower = np.tril_indices(len(start))
    scale = max(1e-3, float(np.abs(start).max()))

    def matrix(z: Tensor) -> Tensor:
        half = torch.zeros(len(start), len(start), dtype=x.dtype)
        half[lower] = z
        return half + half.mT - torch.diag(half.diagonal())

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(scale * z).requires_grad_()
        _, loss = fit.best(matrix(free), used)
        (slope,) = torch.autograd.grad(loss, free)
        return float(loss.detach()), slope.numpy() * scale

    chosen, factor, least = matrix(torch.from_numpy(start[lower])), 0.0, fit.loss(torch.zeros(()), fit.goal, held)

    def keep(z: np.ndarray) -> None:
        nonlocal chosen, factor, least
        S = matrix(torch.from_numpy(scale * z))
        c, _ = fit.best(S, used)
        loss = fit.loss(c, fit.found(S), held)
        if math.isfinite(loss) and loss < least:
            chosen, factor, least = S, float(c), loss

    first = start[lower] / scale
    keep(first)
    options = {"maxiter": iterations, "ftol": 1e-14}
    minimize(objective, first, jac=True, method="L-BFGS-B", callback=keep, options=options)
    return span @ chosen @ span.mT, factor


def energy_residual(
    x: Float[Tensor, "n d"],
    w: Float[Tensor, " n"],
    A: Float[Tensor, "d d"],
    V: Float[Tensor, "d d"],
    *,
    iterations: int = 100,
) -> float:
    """Share of the squared metric speed that the fitted energy leaves at tokens that the fit did not see.

    Every second token is fitted; of the others every second one says when to stop, and the last quarter judges. Fewer
    than four tokens: every second one is fitted, the others judge. 0: the velocity is the gradient of an interaction
    energy. 1: no energy is better than no motion. It may be above 1 by chance. NaN for tokens that do not move.
    """
    place = torch.arange(len(x)) % 4
    used = place % 2 == 0
    held, judged = (place == 1, place == 3) if len(x) >= 4 else (used, ~used)
    fit = _Fit(x, w, A, V)
    size = fit.loss(torch.zeros(()), fit.goal, judged)
    if size <= 1e-28 * float(V.square().sum()):
        return math.nan
    S, c = fit_energy(x, w, A, V, used, held, iterations=iterations)
    return fit.loss(torch.tensor(c), fit.found(S), judged) / size


class _Fit:
    """Velocities of SA and those of energies, and their squared distance at some tokens with weights w m."""

    def __init__(self, x: Tensor, w: Tensor, A: Tensor, V: Tensor) -> None:
        self.x, self.w = x, w
        logits = x @ A @ x.mT
        self.log_mass = torch.logsumexp(logits + w.log(), dim=-1, keepdim=True)
        self.log_weight = w.log() + self.log_mass[:, 0]
        self.goal = self._tangent(((logits - self.log_mass).exp() * w) @ (x @ V.mT))

    def found(self, S: Tensor) -> Tensor:
        """Gradient of E_S over m."""
        return self._tangent(((self.x @ S @ self.x.mT - self.log_mass).exp() * self.w) @ (self.x @ S))

    def best(self, S: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(The best factor c, what it leaves relative to no motion) at some tokens."""
        found, weight, goal = self.found(S)[rows], self._weights(rows), self.goal[rows]
        norm = (weight * found.square().sum(-1)).sum()
        c = (weight * (goal * found).sum(-1)).sum() / norm.clamp_min(1e-300)
        size = (weight * goal.square().sum(-1)).sum().clamp_min(1e-300)
        return c, (weight * (goal - c * found).square().sum(-1)).sum() / size

    def loss(self, c: Tensor, found: Tensor, rows: Tensor) -> float:
        """Squared metric speed of v - c found at some tokens."""
        left = self.goal[rows] - c * found[rows]
        return float((self._weights(rows) * left.square().sum(-1)).sum().detach())

    def _weights(self, rows: Tensor) -> Tensor:
        """Weights w m of some tokens over the largest of them."""
        return (self.log_weight[rows] - self.log_weight[rows].max()).exp()

    def _tangent(self, out: Tensor) -> Tensor:
        return out - (self.x * out).sum(-1, keepdim=True) * self.x
