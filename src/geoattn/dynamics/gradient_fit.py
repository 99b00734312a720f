"""The best energy for a flow: a symmetric matrix whose interaction energy explains the velocity of tokens."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

__all__ = ["energy_residual", "fit_energy"]


def fit_energy(
    x: Float[Tensor, "n d"],
    w: Float[Tensor, " n"],
    A: Float[Tensor, "d d"],
    V: Float[Tensor, "d d"],
    used: Tensor,
    *,
    iterations: int = 200,
) -> tuple[Float[Tensor, "d d"], float]:
    r"""(S, c) such that :math:`c \nabla E_S / m` is nearest to the velocity of SA at the tokens ``used``.

    .. math:: \min_{S, c} \sum_i w_i m(x_i) \Big|v_i - c\, m(x_i)^{-1} P^\perp_{x_i} \sum_j w_j
              e^{\langle x_i, S x_j\rangle} S x_j\Big|^2

    with the mass m of the kernel A, the norm of the metric in which SA with V = A climbs :math:`E_A`. All tokens are
    sources. S starts at the symmetric part of A; c has a closed form; L-BFGS finds S.
    """
    target, mass = _one_form(x, w, A, V), _mass(x, w, A)
    weight = (w / mass)[used]
    goal = target[used]
    size = float((weight * goal.square().sum(-1)).sum())
    start = ((A + A.mT) / 2).numpy()
    d = len(start)
    lower = np.tril_indices(d)
    scale = max(1e-3, float(np.abs(start).max()))

    def matrix(z: Tensor) -> Tensor:
        half = torch.zeros(d, d, dtype=x.dtype)
        half[lower] = z
        return half + half.mT - torch.diag(half.diagonal())

    def best(S: Tensor) -> tuple[Tensor, Tensor]:
        found = _one_form(x, w, S, S)[used]
        norm = (weight * found.square().sum(-1)).sum()
        c = (weight * (goal * found).sum(-1)).sum() / norm.clamp_min(1e-300)
        return c, (weight * (goal - c * found).square().sum(-1)).sum()

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(scale * z).requires_grad_()
        _, loss = best(matrix(free))
        (slope,) = torch.autograd.grad(loss, free)
        return float(loss.detach()) / max(size, 1e-300), slope.numpy() * scale / max(size, 1e-300)

    first = start[lower] / scale
    done = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations, "ftol": 1e-14})
    S = matrix(torch.from_numpy(scale * done.x))
    c, _ = best(S)
    return S.detach(), float(c)


def energy_residual(
    x: Float[Tensor, "n d"],
    w: Float[Tensor, " n"],
    A: Float[Tensor, "d d"],
    V: Float[Tensor, "d d"],
    *,
    iterations: int = 200,
) -> float:
    """Share of the squared metric speed that the fitted energy leaves at every second token, unseen by the fit.

    0: the velocity is the gradient of an interaction energy. 1: the fit is no better than no motion; it may be worse on
    tokens that it did not see. NaN for tokens that do not move.
    """
    used = torch.arange(len(x)) % 2 == 0
    goal, mass = _one_form(x, w, A, V), _mass(x, w, A)
    weight = (w / mass)[~used]
    size = float((weight * goal[~used].square().sum(-1)).sum())
    if size <= 1e-28 * float(V.square().sum()):
        return math.nan
    S, c = fit_energy(x, w, A, V, used, iterations=iterations)
    left = goal[~used] - c * _one_form(x, w, S, S)[~used]
    return float((weight * left.square().sum(-1)).sum()) / size


def _mass(x: Tensor, w: Tensor, A: Tensor) -> Tensor:
    return (x @ A @ x.mT).exp() @ w


def _one_form(x: Tensor, w: Tensor, A: Tensor, V: Tensor) -> Tensor:
    """m(x_i) v_i."""
    out = ((x @ A @ x.mT).exp() * w) @ (x @ V.mT)
    return out - (x * out).sum(-1, keepdim=True) * x
