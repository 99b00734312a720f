"""Kinds of attention as flows: one entry each, with what it weighs, its metric and its energy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.attend import attend
from geoattn.dynamics.interaction import Interaction
from geoattn.dynamics.sinkhorn_scaling import doubly_stochastic

__all__ = ["VARIANTS", "Variant", "has_energy", "push"]

_BLOCK_ENTRIES = 1 << 21  # attention weights in work at once
_LARGEST_EXPONENT = 700.0  # of float64; float32 ends at 88
_TIED = 1e-12  # logits of a row as near to the largest, relative to the scale of the logits, share the row

Pushed = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Variant:
    r"""A kind of attention.

    ``push`` gives (:math:`\sum_j A_{ij} V x_j`, log masses) of tokens; the energy of a measure is the mean of the
    masses. The flow with V = c D and symmetric D climbs that energy, c > 0, in ``metric``: ``mobility`` is the metric
    :math:`\sum_i w_i m_i |dx_i|^2`, ``W2`` the plain one. ``energy`` says when: for every symmetric D, only for
    multiples of the identity, or never. ``causal``: whether a causal version is defined.
    """

    name: str
    about: str
    reference: str
    push: Callable[[Tensor, Interaction, str, bool], Pushed]
    metric: Literal["mobility", "W2"] | None
    energy: Literal["symmetric", "isotropic", "never"]
    causal: bool = True


def push(
    x: Float[Tensor, "b n d"], settings: Interaction, *, engine: str = "auto", self_term: bool = True
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
    """(Attention output before projection, log mass) of the flow of the settings; see `attend` for ``self_term``."""
    return VARIANTS[settings.flow].push(x, settings, engine, self_term)


def has_energy(settings: Interaction) -> bool:
    """Whether the flow is the gradient flow of its energy."""
    kind = VARIANTS[settings.flow].energy
    if kind == "never" or (kind == "isotropic" and not settings.isotropic):
        return False
    return settings.gradient_factor is not None


def _softmax(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    return attend(x, settings, engine=engine, self_term=self_term)


def _unnormalised(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    out, log_mass = attend(x, settings, engine=engine, self_term=self_term)
    exponent = log_mass - settings.shift
    limit = _LARGEST_EXPONENT if x.dtype == torch.float64 else 80.0
    worst = float(exponent.detach().amax())
    if worst > limit:
        raise GeoattnError(
            f"USA overflows: a token has the mass exp({worst:.4g}). Measure time in units of exp(-shift): pass shift="
            f"{math.ceil(worst):d} or so, or use flow='SA'."
        )
    return out * exponent.exp()[..., None], log_mass


def _l2(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    """Softmax attention by the symmetric part of D, with keys that weigh exp(-beta <y, Dy> / 2)."""
    if settings.D is not None:
        settings = dataclasses.replace(settings, D=(settings.D + settings.D.mT) / 2)
    _, key, _ = settings.logits_and_values(x)
    penalty = 0.5 * _per_run(settings.beta, 2) * (x * key).sum(-1)
    weighed = dataclasses.replace(settings, flow="SA", log_weights=_log_weights(x, settings) - penalty)
    out, log_mass = attend(x, weighed, engine=engine, self_term=self_term)
    return out, log_mass - penalty


def _linear(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    """By second moments of the tokens, in O(n d^2)."""
    query, key, value = settings.logits_and_values(x)
    if settings.causal:
        return _rows(x, settings, lambda s: s, lambda s: (0.5 * s.square()).clamp_min(1e-300).log(), self_term)
    w = _log_weights(x, settings).exp()[..., None]
    out = query @ ((w * key).mT @ value)
    half = 0.5 * ((query @ ((w * key).mT @ key)) * query).sum(-1)
    return out, half.clamp_min(1e-300).log()


def _sigmoid(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    def log_softplus(s: Tensor) -> Tensor:
        return torch.nn.functional.softplus(s - settings.shift, threshold=40.0).clamp_min(1e-300).log()

    return _rows(x, settings, lambda s: (s - settings.shift).sigmoid(), log_softplus, self_term)


def _hardmax(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    """All weight on the keys with the largest logit; tied ones share it by their masses."""
    query, key, value = settings.logits_and_values(x)
    log_w = _log_weights(x, settings)
    size = float(query.norm(dim=-1).amax() * key.norm(dim=-1).amax())
    outs = []
    for start in _blocks(x):
        logits = query[:, start] @ key.mT
        if settings.causal:
            logits = logits.masked_fill(_later(start, logits), -math.inf)
        best = logits >= logits.amax(-1, keepdim=True) - _TIED * max(size, 1e-300)
        weights = best * log_w[:, None, :].exp()
        outs.append((weights / weights.sum(-1, keepdim=True)) @ value)
    return torch.cat(outs, dim=1), torch.full_like(x[..., 0], math.nan)


def _sinkhorn(x: Tensor, settings: Interaction, engine: str, self_term: bool) -> Pushed:
    query, key, value = settings.logits_and_values(x)
    attention, log_energy = doubly_stochastic(query @ key.mT, _log_weights(x, settings))
    if not self_term and settings.values_are_tokens:
        attention = attention - torch.diag_embed(attention.diagonal(dim1=-2, dim2=-1))
    return attention @ value, log_energy[:, None].expand(x.shape[:-1])


def _rows(
    x: Tensor,
    settings: Interaction,
    weigh: Callable[[Tensor], Tensor],
    log_energy: Callable[[Tensor], Tensor],
    self_term: bool,
) -> Pushed:
    """Flows whose weights are a function of the logit alone, some rows at a time."""
    query, key, value = settings.logits_and_values(x)
    log_w = _log_weights(x, settings)
    drop = not self_term and settings.values_are_tokens
    outs, masses = [], []
    for start in _blocks(x):
        logits = query[:, start] @ key.mT
        shares = log_w[:, None, :].expand(logits.shape)
        if settings.causal:
            shares = shares.masked_fill(_later(start, logits), -math.inf).log_softmax(-1)
        weights = weigh(logits) * shares.exp()
        if drop:
            keep = torch.ones_like(weights[0]).diagonal_scatter(
                torch.zeros(weights.shape[1], dtype=x.dtype, device=x.device), start.start
            )
            weights = weights * keep
        outs.append(weights @ value)
        masses.append(torch.logsumexp(log_energy(logits) + shares, dim=-1))
    return torch.cat(outs, dim=1), torch.cat(masses, dim=1)


def _blocks(x: Tensor) -> list[slice]:
    b, n, _ = x.shape
    rows = max(1, min(n, _BLOCK_ENTRIES // (b * n)))
    return [slice(k, min(n, k + rows)) for k in range(0, n, rows)]


def _later(start: slice, logits: Tensor) -> Tensor:
    return torch.ones_like(logits[0], dtype=torch.bool).triu(start.start + 1)


def _log_weights(x: Tensor, settings: Interaction) -> Tensor:
    if settings.log_weights is not None:
        return settings.log_weights
    return torch.full(x.shape[:-1], -math.log(x.shape[-2]), dtype=x.dtype, device=x.device)


def _per_run(beta: Tensor, axes: int) -> Tensor:
    return beta if beta.ndim == 0 else beta.reshape(-1, *[1] * (axes - 1))


#: The kinds of attention of `simulate`, by name. A new one is an entry here; tests/dynamics/test_variants.py runs all.
VARIANTS = {
    kind.name: kind
    for kind in (
        Variant(
            "SA", "softmax: weights exp(logit) over their sum", "Geshkovski et al. 2023, arXiv 2312.10794", _softmax,
            "mobility", "symmetric",
        ),
        Variant(
            "USA", "softmax without its denominator: exp(logit - shift) over the number of tokens",
            "Geshkovski et al. 2023, arXiv 2312.10794", _unnormalised, "W2", "symmetric",
        ),
        Variant(
            "sinkhorn", "exp(logit) scaled to rows and columns of the masses of the tokens",
            "Sander, Ablin, Blondel and Peyre 2021, arXiv 2110.11773", _sinkhorn, "W2", "symmetric", causal=False,
        ),
        Variant(
            "hardmax", "all weight on the largest logit, the limit of SA at large beta",
            "Alcalde, Fantuzzi and Zuazua 2024, arXiv 2407.01602", _hardmax, None, "never",
        ),
        Variant(
            "sigmoid", "the logistic function of logit - shift, over the number of tokens",
            "Castin, Ablin, Carrillo and Peyre 2025, arXiv 2501.18322", _sigmoid, "W2", "symmetric",
        ),
        Variant(
            "L2", "softmax of -beta <x - y, D (x - y)> / 2", "Kim, Papamakarios and Mnih 2020, arXiv 2006.04710", _l2,
            "mobility", "isotropic",
        ),
        Variant(
            "linear", "the logit itself, over the number of tokens",
            "Katharopoulos, Vyas, Pappas and Fleuret 2020, arXiv 2006.16236", _linear, "W2", "symmetric",
        ),
    )
}  # fmt: skip
