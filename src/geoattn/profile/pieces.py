"""The maps of one attention call, piece by piece, as the lenses take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from geoattn.capture.call import Call

__all__ = ["Piece", "pieces"]

_PIECE_BYTES = 64 << 20  # of the maps of a piece in their own precision


@dataclass(frozen=True, eq=False)
class Piece:
    """Maps of some samples and heads: ``attention`` (b, h, n, n), ``valid`` (b, h, n), True for tokens of the graph.

    ``samples`` and ``heads`` say which of the call they are.
    """

    attention: Tensor
    valid: Bool[np.ndarray, "b h n"]
    samples: slice
    heads: slice


def pieces(call: Call, content: Bool[Tensor, "b n"] | None) -> Iterator[Piece]:
    """Pieces that keep memory small: whole samples if they fit, else groups of heads.

    With ``content`` given, the other tokens leave the graph and each row is divided by what remains of it: the weights
    given that attention goes to content. A row that gives nothing to content is a token outside the graph.
    """
    b, h, n, m = call.shape
    per_map = n * m * 4
    step = max(1, _PIECE_BYTES // (per_map * h))
    heads = h if step > 1 or per_map * h <= _PIECE_BYTES else max(1, _PIECE_BYTES // per_map)
    valid = call.valid.cpu() if content is None else call.valid.cpu() & content
    for first in range(0, b, step):
        samples = slice(first, min(b, first + step))
        for head in range(0, h, heads):
            some = slice(head, min(h, head + heads))
            attention = call.attention(sample=samples, head=some).detach()
            keep = valid[samples][:, None].expand(-1, some.stop - some.start, -1)
            if content is not None:
                attention, keep = _given_content(attention, keep.to(attention.device))
            yield Piece(attention, keep.cpu().numpy(), samples, some)


def _given_content(attention: Tensor, keep: Bool[Tensor, "b h n"]) -> tuple[Tensor, Bool[Tensor, "b h n"]]:
    weights = attention.double() * keep[:, :, None, :] * keep[:, :, :, None]
    sums = weights.sum(-1, keepdim=True)
    alive = keep & (sums[..., 0] > 0)
    if not torch.equal(alive, keep):  # a token without a row cannot be a column either; once is enough in practice
        return _given_content(attention, alive)
    return weights / sums.clamp_min(torch.finfo(torch.float64).tiny), keep
