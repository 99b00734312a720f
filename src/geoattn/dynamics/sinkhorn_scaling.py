"""Doubly stochastic attention: the scaling of Sinkhorn, to convergence."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = ["doubly_stochastic"]

_ITERATIONS = 20_000
_CLOSE = 4.0  # roundings of the largest potential: a change below is none


def doubly_stochastic(
    logits: Float[Tensor, "b n n"], log_weights: Float[Tensor, "b n"]
) -> tuple[Float[Tensor, "b n n"], Float[Tensor, " b"]]:
    r"""(:math:`A_{ij} = e^{u_i + s_{ij} + v_j} w_j` with rows of sum 1 and :math:`\sum_i w_i A_{ij} = w_j`, energy).

    The energy is given by its logarithm, :math:`\max_\pi \langle s, \pi\rangle - \mathrm{KL}(\pi | w \otimes w)` over
    couplings of w with itself, equal to :math:`-\sum_i w_i (u_i + v_i)`. Without the constraint on the marginals the
    maximum is the log of the interaction energy, so this one is at most that. For symmetric logits u = v, by averaged
    steps; else rows and columns in turn. O(n^2) time an iteration.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[[1.0, 0.0], [2.0, 0.0]]], dtype=torch.float64)
    >>> A, _ = doubly_stochastic(logits, torch.tensor([[0.5, 0.5]], dtype=torch.float64).log())
    >>> A.sum(1)
    tensor([[1., 1.]], dtype=torch.float64)
    """
    w = log_weights.exp()
    symmetric = bool((logits - logits.mT).abs().amax() <= 1e-12 * logits.abs().amax().clamp_min(1e-300))
    with torch.no_grad():
        u = torch.zeros_like(log_weights).to(logits)
        v = u
        tiny = _CLOSE * torch.finfo(logits.dtype).eps
        for _ in range(_ITERATIONS):
            before = u
            new = -torch.logsumexp(logits + (v + log_weights)[:, None, :], dim=-1)
            if symmetric:
                u = v = (u + new) / 2
            else:
                u = new
                v = -torch.logsumexp(logits + (u + log_weights)[:, :, None], dim=1)
            if bool(((u - before).abs() <= tiny * (1 + u.abs())).all()):
                break
        else:
            raise GeoattnError(
                f"the scaling to a doubly stochastic matrix does not converge in {_ITERATIONS} iterations, as for very"
                " large beta; use a smaller beta or flow='SA'."
            )
    attention = (logits + (v + log_weights)[:, None, :]).softmax(-1)
    # by the envelope theorem the potentials are constants for the derivative by the logits
    coupling = attention.detach() * w[:, :, None]
    value = (coupling * (logits - logits.detach())).sum((-2, -1)) - (w * (u + v)).sum(-1)
    return attention, value
