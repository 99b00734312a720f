"""Softmax attention and its derivative in queries, keys and values, by blocks of whole rows: exact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["RowKernel"]

_BLOCK_BYTES = 8 << 20  # of one array (rows in work) x (keys) per sample and head; about four of them exist
_MOST_BYTES = 32 << 20  # of all samples and heads together
_LEAST_ROWS = 32  # fewer rows waste the matrix product


class RowKernel:
    r"""o = P v, P = softmax(q k^T), and its derivative at fixed q (b, h, n, r), k (b, h, m, r) and v (b, h, m, p).

    Weights are made anew for a block of whole rows at a time. The mean of a row is taken within it, so that rows
    that attend to one token alone have derivative zero through their weights, exactly, however large the tokens are.
    ``value`` is o. Moves carry an axis s after the heads: s moves at once; None is no move.
    """

    def __init__(
        self,
        q: Float[Tensor, "b h n r"],
        k: Float[Tensor, "b h m r"],
        v: Float[Tensor, "b h m p"],
        *,
        causal: bool,
        mask: Bool[Tensor, "b n"] | None,
        key_mask: Bool[Tensor, "b m"] | None,
    ) -> None:
        self.q, self.k, self.v = q, k, v
        self.causal, self.mask, self.key_mask = causal, mask, key_mask

    @cached_property
    def value(self) -> Float[Tensor, "b h n p"]:
        """The value o, made when it is asked for."""
        return torch.cat([p @ self.v[:, :, : p.shape[-1]] for _, p in self._blocks(1)], dim=2)

    def jvp(self, dq: Any, dk: Any, dv: Any) -> Float[Tensor, "b h s n p"]:
        r""":math:`do_i = \sum_j P_{ij} dv_j + \sum_j P_{ij} (ds_{ij} - \overline{ds}_i) v_j`, ds = dq.k + q.dk."""
        # ds = <dq, k> + <q, dk> as one product of vectors twice as long
        s = (dk if dq is None else dq).shape[2]
        left = [t for t in (dq, None if dk is None else _spread(self.q, s)) if t is not None]
        right = [t for t in (None if dq is None else _spread(self.k, s), dk) if t is not None]
        left, right = torch.cat(left, dim=-1), torch.cat(right, dim=-1)
        dv = None if dv is None else dv.transpose(2, 3).flatten(3)
        b, h, n, _ = self.q.shape
        out = self.q.new_empty(b, h, s, n, self.v.shape[-1])
        for rows, p in self._blocks(s):
            keys = p.shape[-1]
            ds = _centred(p, left[..., rows, :] @ right[..., :keys, :].transpose(-1, -2))
            out[..., rows, :] = (ds.flatten(2, 3) @ self.v[:, :, :keys]).unflatten(2, (s, -1))
            if dv is not None:
                out[..., rows, :] += (p @ dv[:, :, :keys]).unflatten(-1, (s, -1)).transpose(2, 3)
        return out

    def vjp(self, g: Float[Tensor, "b h s n p"], rows: bool, keys: bool) -> tuple[Any, Any, Any]:
        """Cotangents of q (if ``rows``) and of k and v (if ``keys``), for a cotangent g of o."""
        b, h, s, n, p_width = g.shape
        m, r = self.k.shape[2:]
        dq = g.new_empty(b, h, s, n, r) if rows else None
        # sums over rows are kept transposed: (width x rows) (rows x keys) is the quicker product
        dk = g.new_zeros(b * h * s, r, m) if keys else None
        dv = g.new_zeros(b * h, s * p_width, m) if keys else None
        for block, p in self._blocks(s):
            seen, mine = p.shape[-1], g[..., block, :]
            d = mine.flatten(2, 3) @ self.v[:, :, :seen].transpose(-1, -2)
            d = _centred(p, d.unflatten(2, (s, -1)))
            if dq is not None:
                dq[..., block, :] = (d.flatten(2, 3) @ self.k[:, :, :seen]).unflatten(2, (s, -1))
            if dk is not None and dv is not None:
                q = _spread(self.q[:, :, block], s).transpose(-1, -2)
                dk[..., :seen].baddbmm_(q.flatten(0, 2), d.flatten(0, 2))
                dv[..., :seen].baddbmm_(mine.transpose(-1, -2).flatten(2, 3).flatten(0, 1), p.flatten(0, 1))
        if dk is None or dv is None:
            return dq, None, None
        return dq, dk.view(b, h, s, r, m).transpose(-1, -2), dv.view(b, h, s, p_width, m).transpose(-1, -2)

    def _blocks(self, s: int) -> Iterator[tuple[slice, Float[Tensor, "b h rows keys"]]]:
        """(rows, weights of these rows on the keys that they may see), a few rows at a time."""
        b, h, n, _ = self.q.shape
        room = min(_BLOCK_BYTES, _MOST_BYTES // (b * h)) / (s * self.q.element_size())  # rows * keys of a block
        start = 0
        while start < n:
            # causal blocks see the keys up to their last row: rows (start + rows) = room; half of a square is waste
            rows = (math.sqrt(start**2 + 4 * room) - start) / 2 if self.causal else room / self.k.shape[2]
            rows = min(rows, max(_LEAST_ROWS, n // 16)) if self.causal else rows
            stop = min(n, start + max(int(rows), _LEAST_ROWS // (b * h), 1))
            yield slice(start, stop), self._weights(start, stop)
            start = stop

    def _weights(self, start: int, stop: int) -> Float[Tensor, "b h rows keys"]:
        keys = stop if self.causal else self.k.shape[2]
        logits = self.q[:, :, start:stop] @ self.k[:, :, :keys].transpose(-1, -2)
        if self.causal:
            later = torch.ones(stop - start, stop - start, dtype=torch.bool, device=logits.device).triu(1)
            logits[..., start:].masked_fill_(later, float("-inf"))
        if self.key_mask is not None:
            logits.masked_fill_(~self.key_mask[:, None, None, :keys], float("-inf"))
        weights = torch.softmax(logits, dim=-1)
        if self.mask is not None:  # also where a padded query sees no key and softmax gave NaN
            weights.masked_fill_(~self.mask[:, None, start:stop, None], 0.0)
        return weights


def _centred(p: Float[Tensor, "b h r k"], x: Float[Tensor, "b h s r k"]) -> Float[Tensor, "b h s r k"]:
    """P (x - mean of x under P), in the memory of x."""
    weights = p[:, :, None]
    x.mul_(weights)
    return x.addcmul_(weights, x.sum(-1, keepdim=True), value=-1)


def _spread(t: Float[Tensor, "b h k r"], s: int) -> Float[Tensor, "b h s k r"]:
    return t[:, :, None].expand(-1, -1, s, -1, -1)
