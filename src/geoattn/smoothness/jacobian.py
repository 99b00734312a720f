"""The derivative of an attention map at given tokens, in closed form, never built."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.norms import NormTangent
from geoattn.smoothness.row_kernel import RowKernel
from geoattn.smoothness.tile_kernel import TileKernel

__all__ = ["Jacobian", "Wrt"]

Wrt = Literal["tokens", "context", "both"]

_WEIGHT_ERROR = 1e-3  # relative error of attention weights, by rounding of the logits, beyond which we refuse


class Jacobian:
    r"""J = Df at tokens x (and context y), applied to moves and transposed, without being built.

    With logits :math:`s_{ij} = \langle q_i, k_j\rangle`, :math:`P = \mathrm{softmax}(s)`, moves dq, dk, dv that follow
    linearly from a move of the tokens, and :math:`ds_{ij} = \langle dq_i, k_j\rangle + \langle q_i, dk_j\rangle`,

    .. math:: do_i = \sum_j P_{ij}\,dv_j + \sum_j P_{ij}\,(ds_{ij} - \overline{ds}_i)\,v_j, \qquad
        \overline{ds}_i = \sum_j P_{ij}\,ds_{ij}

    and for a cotangent g of o, with :math:`D_{ij} = P_{ij}(\langle g_i, v_j\rangle - \sum_l P_{il}\langle g_i,
    v_l\rangle)`:

    .. math:: \bar q_i = \sum_j D_{ij} k_j, \quad \bar k_j = \sum_i D_{ij} q_i, \quad \bar v_j = \sum_i P_{ij} g_i.

    The weights P are made anew for each block, so memory is O(n d) and a product costs O(h n m (r + p)). float64
    tokens go through the `RowKernel`, float32 ones through the `TileKernel`.

    Vectors are (b, s, N): b samples, s of them at once for each sample, N = n d coordinates (plus m c of the context
    when ``wrt="both"``). Padded tokens are no inputs and no outputs: their coordinates are zero. ``value`` is f itself.

    Examples
    --------
    At zero tokens the weights are uniform, and all outputs follow the mean move:

    >>> import torch
    >>> zero = torch.zeros(1, 4, 2, dtype=torch.float64)
    >>> J = Jacobian(AttentionMap.of(torch.eye(2, dtype=torch.float64)), zero)
    >>> move = torch.zeros(1, 1, 8, dtype=torch.float64)
    >>> move[..., 0] = 1.0
    >>> J.apply(move)
    tensor([[[0.2500, 0.0000, 0.2500, 0.0000, 0.2500, 0.0000, 0.2500, 0.0000]]], dtype=torch.float64)
    """

    def __init__(
        self,
        f: AttentionMap,
        tokens: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m c"] | None = None,
        *,
        mask: Bool[Tensor, "b n"] | None = None,
        context_mask: Bool[Tensor, "b m"] | None = None,
        wrt: Wrt = "both",
    ) -> None:
        keys = tokens if context is None else context
        if f.width != tokens.shape[-1]:
            raise GeoattnError(f"A acts on tokens of width {f.width}; got tokens of width {tokens.shape[-1]}.")
        if f.context_width != keys.shape[-1]:
            name = "tokens" if context is None else "context"
            raise GeoattnError(f"A, K and V expect {name} of width {f.context_width}; got {keys.shape[-1]}.")
        if context is not None and f.causal:
            raise GeoattnError("causal attention needs one sequence; got a context. Pass causal=False.")
        self.map = f = f.to(tokens)
        self.mask, self.key_mask = mask, mask if context is None else context_mask
        self.cross = context is not None
        self.x_moves, self.y_moves = not self.cross or wrt != "context", not self.cross or wrt != "tokens"
        self.b, self.n, self.d = tokens.shape
        self.m, self.c = keys.shape[1:]
        self.before = NormTangent(f.norm, tokens, mask) if f.norm and f.norm_place == "before" else None
        x = f.norm(tokens) if f.norm and f.norm_place == "before" else tokens
        y = x if context is None else context
        q = torch.einsum("bnd,hrd->bhnr", x, f.query)
        q = (q if f.bias is None else q + f.bias[:, None, :]).contiguous()
        k = self._repeat(y) if f.key is None else torch.einsum("bmc,hrc->bhmr", y, f.key).contiguous()
        v = self._repeat(y) if f.value is None else torch.einsum("bmc,hpc->bhmp", y, f.value).contiguous()
        _check_logits(q, k)
        _check_size(_norms(f.value) * _norms(f.output), tokens.dtype)
        kernel = RowKernel if tokens.dtype == torch.float64 else TileKernel
        self.kernel = kernel(q, k, v, causal=f.causal, mask=self.mask, key_mask=self.key_mask)
        self.tokens, self.dtype, self.device = tokens, tokens.dtype, tokens.device
        after = f.norm if f.norm_place == "after" else None
        self.after = None if after is None else NormTangent(after, self._around(), mask)

    @cached_property
    def value(self) -> Float[Tensor, "b n e"]:
        """The value f, made when it is asked for."""
        out, f = self._around(), self.map
        return self.real_outputs(f.norm(out) if f.norm and f.norm_place == "after" else out)

    def _around(self) -> Float[Tensor, "b n e"]:
        """The heads joined, with the residual."""
        out = self.joined(self.kernel.value)
        return out + self.tokens if self.map.residual else out

    @property
    def in_size(self) -> int:
        """N: coordinates of a move."""
        return self.x_moves * self.n * self.d + (self.cross and self.y_moves) * self.m * self.c

    def rounding(self) -> float:
        """The size of J below which its products are rounding: that of the terms before they cancel, times eps.

        Attention on one token alone does not follow its queries, and a norm of one coordinate does not follow
        anything: such a J is zero, of which rounding leaves this much.
        """
        f, kernel = self.map, self.kernel
        if self.y_moves:
            size = _norms(f.value) * _norms(f.output)
        else:
            size = float(kernel.v.norm(dim=-1).max() * kernel.k.norm(dim=-1).max()) * _norms(f.query) * _norms(f.output)
        size = size if self.before is None else size * self.before.size()
        size = size + 1.0 if f.residual else size
        size = size if self.after is None else size * self.after.size()
        return 16 * size * torch.finfo(self.dtype).eps

    def real_inputs(self) -> Bool[Tensor, "b N"] | None:
        """True for the coordinates of real tokens; None when all are."""
        if self.mask is None and self.key_mask is None:
            return None
        ones = torch.ones(self.b, 1, self.in_size, dtype=torch.bool, device=self.device)
        h, c = self.split(ones)
        parts = [_real(h, self.mask), _real(c, self.key_mask)]
        return torch.cat([t.flatten(2) for t in parts if t is not None], dim=2)[:, 0]

    def split(self, flat: Tensor) -> tuple[Any, Any]:
        """A flat move as moves (b, s, n, d) of the tokens and (b, s, m, c) of the context; None for no move."""
        at = self.x_moves * self.n * self.d
        h = flat[..., :at].unflatten(-1, (self.n, self.d)) if self.x_moves else None
        c = flat[..., at:].unflatten(-1, (self.m, self.c)) if self.cross and self.y_moves else None
        return h, c

    def apply(self, flat: Float[Tensor, "b s N"]) -> Float[Tensor, "b s M"]:
        """J times a move."""
        f = self.map
        h, c = self.split(flat)
        h, c = _real(h, self.mask), _real(c, self.key_mask)
        x = h if h is None or self.before is None else self.before.apply(h)
        y = c if self.cross else x
        dq = None if x is None else torch.einsum("bsnd,hrd->bhsnr", x, f.query)
        dk = dv = None
        if y is not None:
            dk = self._repeat(y) if f.key is None else torch.einsum("bsmc,hrc->bhsmr", y, f.key)
            dv = self._repeat(y) if f.value is None else torch.einsum("bsmc,hpc->bhsmp", y, f.value)
        out = self.joined(self.kernel.jvp(dq, dk, dv))
        out = out + h if f.residual and h is not None else out
        out = out if self.after is None else self.after.apply(out)
        return self.real_outputs(out).flatten(2)

    def adjoint(self, flat: Float[Tensor, "b s M"]) -> Float[Tensor, "b s N"]:
        """The transpose of J times a cotangent."""
        f = self.map
        g = self.real_outputs(flat.unflatten(-1, (self.n, -1)))
        g = g if self.after is None else self.after.adjoint(g)
        to_out = self._repeat(g) if f.output is None else torch.einsum("bsne,hep->bhsnp", g, f.output)
        dq, dk, dv = self.kernel.vjp(to_out, self.x_moves, self.y_moves)
        x: Any = None if dq is None else torch.einsum("bhsnr,hrd->bsnd", dq, f.query)
        y: Any = None
        if self.y_moves:
            y = dk.sum(1) if f.key is None else torch.einsum("bhsmr,hrc->bsmc", dk, f.key)
            y = y + (dv.sum(1) if f.value is None else torch.einsum("bhsmp,hpc->bsmc", dv, f.value))
        if not self.cross:
            x, y = x + y, None  # both moved
        x = x if x is None or self.before is None else self.before.adjoint(x)
        x = x + g if f.residual and x is not None else x
        parts = (_real(x, self.mask), _real(y, self.key_mask))
        return torch.cat([t.flatten(2) for t in parts if t is not None], dim=2)

    def real_outputs(self, out: Float[Tensor, "b *s n e"]) -> Float[Tensor, "b *s n e"]:
        """Outputs with those of padded tokens set to zero."""
        if self.mask is None:
            return out
        return out.masked_fill(~(self.mask[:, None] if out.ndim == 4 else self.mask)[..., None], 0)

    def _repeat(self, t: Tensor) -> Tensor:
        """The same for each head, without a copy."""
        return t[:, None].expand(t.shape[0], self.map.heads, *t.shape[1:])

    def joined(self, o: Float[Tensor, "b h *k p"]) -> Float[Tensor, "b *k e"]:
        """Heads summed, after their output projection."""
        return o.sum(1) if self.map.output is None else torch.einsum("bh...p,hep->b...e", o, self.map.output)


def _real(t: Any, mask: Bool[Tensor, "b n"] | None) -> Any:
    """Moves (b, s, n, d) with those of padded tokens set to zero."""
    return t if t is None or mask is None else t.masked_fill(~mask[:, None, :, None], 0)


def _norms(w: Float[Tensor, "h p d"] | None) -> float:
    """Sum of the spectral norms of all heads; the identity has norm one."""
    return 1.0 if w is None else float(torch.linalg.matrix_norm(w, 2).sum())


def _check_size(size: float, dtype: torch.dtype) -> None:
    """Squares of the entries of J must neither overflow nor vanish."""
    limit = 1e100 if dtype == torch.float64 else 1e12
    if not (size == 0 or 1 / limit < size < limit):
        raise GeoattnError(
            f"V and W must together have a norm between {1 / limit:g} and {limit:g} in {dtype}; got {size:g}. Scale"
            " them, and the constant of the plain map with them."
        )


def _check_logits(q: Float[Tensor, "b h n r"], k: Float[Tensor, "b h m r"]) -> None:
    largest = float(q.norm(dim=-1).max()) * float(k.norm(dim=-1).max())
    if not largest * torch.finfo(q.dtype).eps < _WEIGHT_ERROR:
        raise GeoattnError(
            f"logits may reach {largest:.3g}, where {q.dtype} cannot tell attention weights apart (relative error above"
            f" {_WEIGHT_ERROR:g}). Scale A or the tokens down"
            + (", or search in float64." if q.dtype != torch.float64 else ".")
        )
