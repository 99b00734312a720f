"""The velocity of tokens on the sphere under attention."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_choice
from geoattn.dynamics.attend import ENGINES
from geoattn.dynamics.inputs import read_tokens
from geoattn.dynamics.interaction import read_interaction
from geoattn.dynamics.variants import push

__all__ = ["tangent", "velocity"]


def velocity(
    tokens: Any,
    *,
    beta: Any = 1.0,
    D: Any = None,
    V: Any = None,
    flow: str = "SA",
    causal: bool = False,
    weights: Any = None,
    shift: float = 0.0,
    engine: str = "auto",
    normalise: bool = False,
) -> Float[Tensor, "*b n d"]:
    r"""Velocity of each token on the sphere.

    .. math:: v_i = P^\perp_{x_i} \frac{1}{Z_i} \sum_j e^{\beta \langle x_i, D x_j\rangle} V x_j,
              \qquad P^\perp_x y = y - \langle x, y\rangle x

    ``SA``: :math:`Z_i` is the sum of the exponentials. ``USA``: :math:`Z_i = n`, or the number of visible tokens when
    causal; see `simulate` for ``shift`` and `VARIANTS` for the other flows. ``weights`` are masses of the tokens, 1/n
    each by default.

    Cost: O(n^2 d) time and O(n d) memory by the fused attention of torch (``fused``) or by blocks of rows (``blocks``).
    On the circle and on the 2-sphere ``harmonic`` sums K modes or K^2 spherical harmonics, K about 9 sqrt(beta) + 15:
    O(n K) and O(n K^2) time, to rounding. ``auto`` takes the fastest that is exact.
    Reference: Geshkovski et al., A mathematical perspective on transformers, 2023, equations SA and USA.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import velocity
    >>> velocity(torch.eye(2, dtype=torch.float64), beta=0.0)
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]], dtype=torch.float64)
    """
    x = read_tokens(tokens, normalise=normalise)
    settings = read_interaction(x, beta=beta, D=D, V=V, flow=flow, causal=causal, shift=shift, weights=weights).at(0.0)
    read_choice("engine", engine, ENGINES)
    flat = x.reshape(-1, *x.shape[-2:])
    field, _ = push(flat, settings, engine=engine, self_term=False)
    return tangent(flat, field).reshape(x.shape)


def tangent(x: Float[Tensor, "*b n d"], y: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
    """The part of y that is tangent to the sphere at x: y - <x, y> x."""
    return y - (x * y).sum(-1, keepdim=True) * x
