"""Where a search for the worst move may begin: the worst move of the first tokens of a long causal sequence."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.lanczos import largest_singular

__all__ = ["prefix_start"]

_PART = 8  # of the tokens: its steps cost a 64th of those of the whole
_LEAST = 2048  # tokens


def prefix_start(
    f: AttentionMap, x: Float[Tensor, "1 n d"], *, tolerance: float, seed: int
) -> Callable[[], Float[Tensor, " N"]] | None:
    """A function that gives a move of all tokens: the worst move of the first eighth of them, and no move of the rest.

    Early tokens of causal attention are seen by most others, so the worst move mostly is a move of theirs. None where
    that is not so or not worth it: without a mask, for few tokens, with a norm or a residual.
    """
    n = x.shape[1]
    if not f.causal or n < _LEAST or x.shape[0] > 1 or f.norm is not None or f.residual:
        return None

    def begin() -> Float[Tensor, " N"]:
        some = x[:, : n // _PART]
        J = Jacobian(f, some)
        draw = torch.Generator().manual_seed(seed + 1)

        def fresh() -> Tensor:
            return torch.randn(1, J.in_size, generator=draw, dtype=torch.float64).to(some)

        found = largest_singular(
            lambda v: J.apply(v[None])[0], lambda u: J.adjoint(u[None])[0], fresh, tolerance=10 * tolerance, steps=40
        )
        whole = torch.zeros(x.numel(), dtype=x.dtype, device=x.device)
        whole[: J.in_size] = found.right[0]
        return whole

    return begin
