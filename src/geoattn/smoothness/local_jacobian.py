"""The derivative of self-attention in the moves of some tokens only: its columns at these tokens."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.smoothness.jacobian import Jacobian
from geoattn.smoothness.tile_kernel import TileKernel

__all__ = ["LocalJacobian"]


class LocalJacobian:
    r"""J of one sequence where only the tokens at ``places`` move; all outputs follow.

    A token moves as a query, which changes its own output, and as a key and value, which changes the outputs of all
    that attend to it. With t of n tokens a product takes about t / n of the time of one with J. Vectors are (1, s, t d)
    and (1, s, n e).

    Examples
    --------
    The columns of the third of four tokens:

    >>> import torch
    >>> from geoattn.smoothness.attention_map import AttentionMap
    >>> J = Jacobian(AttentionMap.of(torch.eye(2)), torch.randn(1, 4, 2))
    >>> some = LocalJacobian(J, torch.tensor([2]))
    >>> move = torch.zeros(1, 1, 8)
    >>> move[0, 0, 4:6] = torch.tensor([1.0, 2.0])
    >>> torch.allclose(some.apply(move[..., 4:6]), J.apply(move), atol=1e-6)
    True
    """

    def __init__(self, whole: Jacobian, places: Int[Tensor, " t"]) -> None:
        if whole.cross or whole.b != 1 or not isinstance(whole.kernel, TileKernel):
            raise GeoattnError("some tokens can be moved alone in float32 self-attention of one sequence only.")
        self.whole, self.places = whole, places
        self.queries, self.keys = whole.kernel.of_queries(places), whole.kernel.of_keys(places)
        self.before: Any = None
        if whole.before is not None:
            self.before = copy.copy(whole.before)
            self.before.root, self.before.unit = whole.before.root[:, places], whole.before.unit[:, places]

    def apply(self, flat: Float[Tensor, "1 s L"]) -> Float[Tensor, "1 s M"]:
        """J times a move of these tokens."""
        f = self.whole.map
        h = flat.unflatten(-1, (len(self.places), -1))
        x = h if self.before is None else self.before.apply(h)
        dq = torch.einsum("bsnd,hrd->bhsnr", x, f.query)
        dk = self._repeat(x) if f.key is None else torch.einsum("bsmc,hrc->bhsmr", x, f.key)
        dv = self._repeat(x) if f.value is None else torch.einsum("bsmc,hpc->bhsmp", x, f.value)
        o = self.keys.jvp(None, dk, dv)
        o[..., self.places, :] += self.queries.jvp(dq, None, None)
        out = self.whole.joined(o)
        if f.residual:
            out[:, :, self.places] += h
        out = out if self.whole.after is None else self.whole.after.apply(out)
        return self.whole.real_outputs(out).flatten(2)

    def adjoint(self, flat: Float[Tensor, "1 s M"]) -> Float[Tensor, "1 s L"]:
        """The transpose of J times a cotangent, at these tokens."""
        f = self.whole.map
        g = self.whole.real_outputs(flat.unflatten(-1, (self.whole.n, -1)))
        g = g if self.whole.after is None else self.whole.after.adjoint(g)
        to_out = self._repeat(g) if f.output is None else torch.einsum("bsne,hep->bhsnp", g, f.output)
        dq, _, _ = self.queries.vjp(to_out[..., self.places, :], True, False)
        _, dk, dv = self.keys.vjp(to_out, False, True)
        x = torch.einsum("bhsnr,hrd->bsnd", dq, f.query)
        x = x + (dk.sum(1) if f.key is None else torch.einsum("bhsmr,hrc->bsmc", dk, f.key))
        x = x + (dv.sum(1) if f.value is None else torch.einsum("bhsmp,hpc->bsmc", dv, f.value))
        x = x if self.before is None else self.before.adjoint(x)
        x = x + g[:, :, self.places] if f.residual else x
        return x.flatten(2)

    def _repeat(self, t: Tensor) -> Tensor:
        """The same for each head, without a copy."""
        return t[:, None].expand(t.shape[0], self.whole.map.heads, *t.shape[1:])
