"""What tokens do to each other: the weights of attention and the kind of flow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_choice, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.inputs import read_matrix, read_weights

__all__ = ["FLOWS", "SOFTMAX_FLOWS", "Flow", "Interaction", "read_interaction"]

Flow = Literal["SA", "USA", "sinkhorn", "hardmax", "sigmoid", "L2", "linear"]
FLOWS = ("SA", "USA", "sinkhorn", "hardmax", "sigmoid", "L2", "linear")
SOFTMAX_FLOWS = ("SA", "USA")  # those with the closed forms of softmax attention


@dataclass(frozen=True)
class Interaction:
    r"""Checked settings of a flow.

    .. math:: \dot x_i = P^\perp_{x_i} \frac{1}{Z_i} \sum_j e^{\beta \langle x_i, D x_j\rangle} V x_j

    ``SA`` divides by the partition function :math:`Z_i`, ``USA`` by the number n of tokens (of visible tokens when
    ``causal``); the other flows are in `VARIANTS`. None for D or V is the identity. ``shift`` s makes USA weights
    :math:`e^{\text{logit} - s}`, that is, time runs in units of :math:`e^{-s}`: with s = beta nothing overflows. The
    runs of a batch are one flat axis ``b``; beta, D and V are the same for all runs or have that axis in front.
    """

    beta: Float[Tensor, "..."]
    D: Float[Tensor, "*c d d"] | None = None
    V: Float[Tensor, "*v d d"] | None = None
    flow: Flow = "SA"
    causal: bool = False
    shift: float = 0.0
    log_weights: Float[Tensor, "b n"] | None = None
    changing: tuple[tuple[str, Callable[[float], Any]], ...] = ()

    def at(self, t: float) -> Interaction:
        """The interaction at time t, which is this one unless a weight is a function of time."""
        if not self.changing:
            return self
        new: dict[str, Any] = {}
        for name, function in self.changing:
            value = function(t)
            if name == "beta":
                new[name] = torch.as_tensor(read_number("beta(t)", value)).to(self.beta)
            else:
                d = getattr(self, name).shape[-1]
                new[name] = read_matrix(f"{name}(t)", value, d, getattr(self, name))
        return dataclasses.replace(self, **new, changing=())

    def logits_and_values(
        self, x: Float[Tensor, "b n d"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n d"], Float[Tensor, "b n d"]]:
        """Queries, keys and values: logit_ij = <query_i, key_j>, with beta inside the queries."""
        beta = self.beta if self.beta.ndim == 0 else self.beta[:, None, None]
        keys = x if self.D is None else x @ self.D.mT
        return beta * x, keys, x if self.V is None else x @ self.V.mT

    @functools.cached_property
    def values_are_tokens(self) -> bool:
        """V is a multiple of the identity: a token does not move itself."""
        return _multiple_of_identity(self.V) is not None

    @property
    def isotropic(self) -> bool:
        """D and V are multiples of the identity at all times: the flow commutes with rotations."""
        return not self.changing and self.values_are_tokens and _multiple_of_identity(self.D) is not None

    @property
    def gradient_factor(self) -> Float[Tensor, "..."] | None:
        """The number c with V = c D, D symmetric: the flow climbs (c > 0) or descends the energy. None: no such c."""
        if self.causal or self.changing:
            return None
        if self.D is None:
            c = _multiple_of_identity(self.V)
            return None if c is None or (c == 0).any() else c
        scale = self.D.abs().amax((-2, -1)).clamp_min(1e-300)
        if ((self.D - self.D.mT).abs().amax((-2, -1)) > 1e-12 * scale).any():
            return None
        V = torch.eye(self.D.shape[-1]).to(self.D) if self.V is None else self.V
        c = (V * self.D).sum((-2, -1)) / self.D.square().sum((-2, -1)).clamp_min(1e-300)
        off = (V - c[..., None, None] * self.D).abs().amax((-2, -1))
        return None if (off > 1e-12 * V.abs().amax((-2, -1))).any() or (c == 0).any() else c

    def largest_logit(self) -> float:
        """A bound of |logit| on the sphere: |beta| times the spectral norm of D, over all runs."""
        norm = torch.ones_like(self.beta) if self.D is None else torch.linalg.matrix_norm(self.D, 2)
        return float((self.beta.abs() * norm).max())

    def largest_value(self) -> float:
        """The spectral norm of V, over all runs."""
        return 1.0 if self.V is None else float(torch.linalg.matrix_norm(self.V, 2).max())

    def in_dimension(self, k: int) -> Interaction:
        """The same isotropic interaction in dimension k: its matrices are numbers times the identity."""
        new: dict[str, Any] = {}
        for name in ("D", "V"):
            c = _multiple_of_identity(getattr(self, name))
            assert c is not None
            if getattr(self, name) is not None:
                new[name] = c[..., None, None] * torch.eye(k).to(self.beta)
        return dataclasses.replace(self, **new)


def _multiple_of_identity(matrix: Tensor | None) -> Tensor | None:
    """The number c of a matrix c I, for each run; None for any other matrix."""
    if matrix is None:
        return torch.ones((), dtype=torch.float64)
    c = matrix[..., 0, 0]
    same = (matrix == c[..., None, None] * torch.eye(matrix.shape[-1]).to(matrix)).all()
    return c if bool(same) else None


def read_interaction(
    x: Float[Tensor, "*b n d"],
    *,
    beta: Any = 1.0,
    D: Any = None,
    V: Any = None,
    flow: Any = "SA",
    causal: bool = False,
    shift: Any = 0.0,
    weights: Any = None,
) -> Interaction:
    """Check the settings for tokens x. beta, D and V may be functions of time, or have the axes of the batch."""
    batch, d = tuple(x.shape[:-2]), x.shape[-1]
    changing = tuple((k, f) for k, f in (("beta", beta), ("D", D), ("V", V)) if callable(f))
    beta, D, V = (f(0.0) if callable(f) else f for f in (beta, D, V))
    matrices = {}
    for name, matrix in (("D", D), ("V", V)):
        m = read_matrix(name, matrix, d, x)
        if m is None and name in dict(changing):
            m = torch.eye(d).to(x)
        matrices[name] = m if m is None or m.ndim == 2 else _flat(name, m, batch, (d, d))
    b = _read_beta(beta, batch, x)
    log_w = None
    if weights is not None:
        w = read_weights(weights, tuple(x.shape[:-1]), x).reshape(-1, x.shape[-2])
        log_w = w.log().clamp_min(-1e4)  # exp of it is 0, and finite sums with it stay finite
    spelt = {name.lower(): name for name in FLOWS}
    chosen: Any = read_choice("flow", spelt.get(flow.lower(), flow) if isinstance(flow, str) else flow, FLOWS)
    if causal and chosen == "sinkhorn":
        raise GeoattnError(
            "flow 'sinkhorn' has no causal version: a doubly stochastic matrix without entries above its diagonal is"
            " the identity. Use another flow, or causal=False."
        )
    return Interaction(
        b,
        **matrices,
        flow=chosen,
        causal=bool(causal),
        shift=read_number("shift", shift),
        log_weights=log_w,
        changing=changing,
    )


def _read_beta(beta: Any, batch: tuple[int, ...], x: Tensor) -> Tensor:
    if isinstance(beta, (Tensor, np.ndarray, list, tuple)) and np.ndim(beta) > 0:
        values = torch.as_tensor(np.asarray(beta), dtype=x.dtype, device=x.device)
        if not values.isfinite().all():
            raise GeoattnError("beta must be finite.")
        return _flat("beta", values, batch, ())
    return torch.tensor(read_number("beta", beta), dtype=x.dtype, device=x.device)


def _flat(name: str, m: Tensor, batch: tuple[int, ...], core: tuple[int, ...]) -> Tensor:
    """The axes of the batch in front of m as one flat axis."""
    try:
        return m.expand((*batch, *core)).reshape(-1, *core)
    except RuntimeError:
        shape = tuple(m.shape)
        raise GeoattnError(f"{name} of shape {shape} does not fit tokens with the batch axes {batch}.") from None
