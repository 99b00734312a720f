"""The interaction energy of tokens or of a weighted measure, and its gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.attend import attend
from geoattn.dynamics.drift import tangent
from geoattn.dynamics.inputs import read_tokens
from geoattn.dynamics.interaction import Flow, Interaction, read_interaction
from geoattn.dynamics.variants import push

__all__ = ["energy_gradient", "exp_or_error", "interaction_energy", "log_energy_of", "log_interaction_energy"]


def interaction_energy(
    tokens: Any, D: Any = None, beta: Any = 1.0, weights: Any = None, *, normalise: bool = False
) -> Float[Tensor, "*b"]:
    r"""Energy of tokens on the sphere, or of a measure with atoms at them.

    .. math:: E = \sum_{ij} w_i w_j e^{\beta \langle x_i, D x_j\rangle}

    No factor 1/2 and no 1/beta. ``weights`` are masses that sum to one, 1/n by default; D = None is the identity. Any D
    is allowed; it is the energy of a gradient flow only when D is symmetric. O(n^2 d) time, O(n d) memory.
    An energy above 1e304 is an error: take `log_interaction_energy`.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import interaction_energy
    >>> pair = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> round(interaction_energy(pair).item(), 6)  # cosh(1)
    1.543081
    """
    log_energy = log_interaction_energy(tokens, D, beta, weights, normalise=normalise)
    return exp_or_error(log_energy, "log_interaction_energy")


def log_interaction_energy(
    tokens: Any, D: Any = None, beta: Any = 1.0, weights: Any = None, *, normalise: bool = False
) -> Float[Tensor, "*b"]:
    """The logarithm of `interaction_energy`, for any beta.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import log_interaction_energy
    >>> log_interaction_energy(torch.tensor([[1.0, 0.0]]), beta=1e4)
    tensor(10000.)
    """
    x = read_tokens(tokens, normalise=normalise)
    settings = read_interaction(x, beta=beta, D=D, weights=weights)
    if settings.changing:
        raise GeoattnError("beta and D must not be functions of time here; call them first.")
    return log_energy_of(x.reshape(-1, *x.shape[-2:]), settings).reshape(x.shape[:-2])


def energy_gradient(
    tokens: Any, D: Any = None, beta: Any = 1.0, weights: Any = None, *, normalise: bool = False
) -> Float[Tensor, "*b n d"]:
    r"""Riemannian gradient of `interaction_energy` with respect to each token.

    .. math:: \nabla_i E = \beta w_i P^\perp_{x_i} \sum_j w_j \left( e^{\beta \langle x_i, D x_j\rangle} D x_j
              + e^{\beta \langle x_j, D x_i\rangle} D^\top x_j \right)

    Divide by the mass :math:`w_i` for the gradient of the first variation, the velocity of the Wasserstein flow.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import energy_gradient
    >>> energy_gradient(torch.eye(2, dtype=torch.float64))
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]], dtype=torch.float64)
    """
    x = read_tokens(tokens, normalise=normalise)
    settings = read_interaction(x, beta=beta, D=D, weights=weights)
    flat = x.reshape(-1, *x.shape[-2:])
    w = _log_weights(flat, settings).exp()
    total = torch.zeros_like(flat)
    matrices = [settings.D] * 2 if settings.D is None else [settings.D, settings.D.mT]
    for matrix in matrices:
        out, log_mass = attend(flat, dataclasses.replace(settings, D=matrix, V=matrix), self_term=False)
        total = total + out * exp_or_error(log_mass, "simulate with flow='SA', which needs no energy")[..., None]
    beta_ = settings.beta if settings.beta.ndim == 0 else settings.beta[:, None, None]
    return (beta_ * w[..., None] * tangent(flat, total)).reshape(x.shape)


def log_energy_of(
    x: Float[Tensor, "b n d"], settings: Interaction, log_mass: Float[Tensor, "b n"] | None = None
) -> Float[Tensor, " b"]:
    """Log energy of the flow of the settings, of tokens whose log masses may be known (without a causal mask)."""
    if log_mass is None or settings.causal:
        _, log_mass = push(x, dataclasses.replace(settings, causal=False, flow=_energy_flow(settings)))
    return torch.logsumexp(log_mass + _log_weights(x, settings), dim=-1)


def _energy_flow(settings: Interaction) -> Flow:
    """USA has the masses of SA; its output, which may overflow, is not needed."""
    return "SA" if settings.flow == "USA" else settings.flow


def exp_or_error(logarithm: Tensor, instead: str) -> Tensor:
    """Exponential, or an error where it would be infinite."""
    limit = math.log(torch.finfo(logarithm.dtype).max) - 5
    worst = float(logarithm.amax())
    if worst > limit:
        raise GeoattnError(f"exp({worst:.6g}) overflows {logarithm.dtype}; use {instead}.")
    return logarithm.exp()


def _log_weights(x: Tensor, settings: Interaction) -> Tensor:
    if settings.log_weights is not None:
        return settings.log_weights
    return torch.full(x.shape[:-1], -math.log(x.shape[-2]), dtype=x.dtype, device=x.device)
