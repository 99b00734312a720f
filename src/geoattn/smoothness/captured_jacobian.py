"""The derivative of the heads of a captured attention call at its tokens, never built."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn.smoothness.projections import Projections
from geoattn.smoothness.row_kernel import RowKernel

__all__ = ["CapturedJacobian"]


class CapturedJacobian:
    """The derivative of the heads of a call at its tokens, never built; an `Operator`.

    ``heads="each"``: b h maps, one per sample and head, in the order of (sample, head). ``heads="sum"``: b maps, the
    heads through the output projection, or side by side without one. Products cost O(h n^2 (r + p)) a vector.
    """

    def __init__(self, p: Projections, heads: Literal["each", "sum"]) -> None:
        self.p, self.each = p, heads == "each"
        self.b, self.h, self.n, _ = p.q.shape
        self.width = p.query.shape[-1]
        self.kernel = RowKernel(p.q, p.k, p.v, causal=p.causal, mask=p.mask, key_mask=p.mask)
        self.maps = self.b * self.h if self.each else self.b
        self.in_size = self.n * self.width

    def value(self) -> Float[Tensor, "m M"]:
        """The map itself, with the biases of the values and without that of the output projection."""
        return self._read(self.kernel.value[:, :, None])[:, 0]

    def real_inputs(self) -> Bool[Tensor, "m N"] | None:
        """True for the coordinates of real tokens; None when all are."""
        if self.p.mask is None:
            return None
        real = self.p.mask[:, :, None].expand(-1, -1, self.width).flatten(1)
        return real.repeat_interleave(self.h, 0) if self.each else real

    def rounding(self) -> float:
        """As in `Jacobian`: what rounding leaves of a derivative that is zero."""
        size = torch.linalg.matrix_norm(self.p.value, 2)
        size = size if self.p.output is None else size * torch.linalg.matrix_norm(self.p.output, 2)
        return 16 * float(size.sum()) * torch.finfo(torch.float64).eps

    def apply(self, flat: Float[Tensor, "m s N"]) -> Float[Tensor, "m s M"]:
        """J times moves."""
        p, s = self.p, flat.shape[1]
        if self.each:
            x = self._real(flat.view(self.b, self.h, s, self.n, -1))
            q, k, v = (torch.einsum("bhsnd,hrd->bhsnr", x, w) for w in (p.query, p.key, p.value))
        else:
            x = self._real(flat.view(self.b, 1, s, self.n, -1))[:, 0]
            q, k, v = (torch.einsum("bsnd,hrd->bhsnr", x, w) for w in (p.query, p.key, p.value))
        return self._read(self.kernel.jvp(_turn(p.turn_query, q), _turn(p.turn_key, k), v))

    def adjoint(self, flat: Float[Tensor, "m s M"]) -> Float[Tensor, "m s N"]:
        """The transpose of J times cotangents."""
        p, s = self.p, flat.shape[1]
        if self.each:
            g = self._real(flat.view(self.b, self.h, s, self.n, -1))
            g = g if p.output is None else torch.einsum("bhsne,hep->bhsnp", g, p.output)
        else:
            g = self._real(flat.view(self.b, 1, s, self.n, -1))[:, 0]
            if p.output is None:
                g = g.unflatten(-1, (self.h, -1)).permute(0, 3, 1, 2, 4)
            else:
                g = torch.einsum("bsne,hep->bhsnp", g, p.output)
        q, k, v = self.kernel.vjp(g.contiguous(), True, True)
        parts = zip((_back(p.turn_query, q), _back(p.turn_key, k), v), (p.query, p.key, p.value), strict=True)
        form = "bhsnr,hrd->bhsnd" if self.each else "bhsnr,hrd->bsnd"
        x = sum(torch.einsum(form, t, w) for t, w in parts)
        assert isinstance(x, Tensor)
        if self.each:
            return self._real(x).flatten(0, 1).flatten(2)
        return self._real(x[:, None])[:, 0].flatten(2)

    def _read(self, out: Float[Tensor, "b h s n p"]) -> Float[Tensor, "m s M"]:
        """Outputs of the heads through the output projection, flat."""
        w = self.p.output
        if self.each:
            out = out if w is None else torch.einsum("bhsnp,hep->bhsne", out, w)
            return self._real(out).flatten(0, 1).flatten(2)
        joined = out.permute(0, 2, 3, 1, 4).flatten(3) if w is None else torch.einsum("bhsnp,hep->bsne", out, w)
        return self._real(joined[:, None])[:, 0].flatten(2)

    def _real(self, t: Tensor) -> Tensor:
        """(b, h, s, n, .) with zeros at padded tokens."""
        return t if self.p.mask is None else t.masked_fill(~self.p.mask[:, None, None, :, None], 0.0)


def _turn(turn: Tensor | None, t: Tensor) -> Tensor:
    return t if turn is None else torch.einsum("bhnrk,bhsnk->bhsnr", turn, t)


def _back(turn: Tensor | None, t: Tensor) -> Tensor:
    return t if turn is None else torch.einsum("bhnrk,bhsnr->bhsnk", turn, t)
