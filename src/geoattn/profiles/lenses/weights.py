"""The lens of the weights themselves: entropy of rows, variance, weight of a token on itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from geoattn.attention.masks import allowed_entries
from geoattn.profiles.lens import Lens, LensSettings, register_lens
from geoattn.profiles.means import MeanLens, Moments
from geoattn.profiles.pieces import Piece

__all__ = ["WeightsLens"]

_ROWS = 256  # of a map, at a time


class WeightsLens(MeanLens):
    r"""Row entropy :math:`-\sum_j A_{ij} \log A_{ij}` (nats), weight on the token itself, variance of the map.

    The variance is the population variance over the entries that the mask allows between tokens of the graph.
    """

    name = "weights"

    def measure(self, piece: Piece) -> Iterator[Moments]:
        """Means over rows, and the variance as a mean over maps."""
        valid = torch.from_numpy(piece.valid)
        rows = valid.sum(-1).double()
        pairs = _allowed_pairs(piece)
        parts = [self._of_head(piece.attention[:, k].cpu(), valid[:, k], pairs[:, min(k, pairs.shape[1] - 1)])
                 for k in range(valid.shape[1])]  # fmt: skip
        entropy, own, entries, variance = (torch.stack(part, 1).numpy() for part in zip(*parts, strict=True))
        yield Moments(rows.numpy(), {"row_entropy": entropy, "self_weight": own})
        yield Moments((entries > 0).astype(np.float64), {"variance": np.nan_to_num(variance, nan=0.0)})

    @staticmethod
    def _of_head(weights: Tensor, valid: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(b,) sums over the rows of the maps (b, n, n) of one head, and over pairs.

        Rows come in blocks, so that what is computed on the way stays small. Squares are taken around 1 / n, near which
        the mean lies, so that their difference does not cancel.
        """
        b, n, _ = weights.shape
        centre = 1.0 / n
        entropy, own, entries, total, square = torch.zeros(5, b, dtype=torch.float64)
        for start in range(0, n, _ROWS):
            rows = slice(start, start + _ROWS)
            block, real = weights[:, rows].double(), valid[:, rows]
            entropy -= (torch.special.xlogy(block, block).sum(-1) * real).sum(-1)
            own += (block.diagonal(offset=start, dim1=-2, dim2=-1) * real).sum(-1)
            inside = pairs[:, rows] & real[:, :, None] & valid[:, None, :]
            entries += inside.sum((-1, -2))
            off = (block - centre).mul_(inside)
            total += off.sum((-1, -2))
            square += off.square_().sum((-1, -2))
        return entropy, own, entries, (square - total**2 / entries).clamp_min(0.0) / entries


def _allowed_pairs(piece: Piece) -> Tensor:
    """(b, h or 1, n, n) True where the mask lets a token see another, as far as the call shows it."""
    call = piece.call
    b, h, n, m = call.shape
    # A model that makes its maps itself shows no mask, and Swin adds -100: no head gives such entries any weight.
    pairs = (piece.attention > torch.finfo(torch.float32).tiny).any(1, keepdim=True).cpu()
    allowed = None if call.stored is None else allowed_entries(call.stored.mask, n, m)
    if allowed is not None:
        shape = (b if allowed.shape[0] > 1 else 1, h if allowed.shape[1] > 1 else 1, n, m)
        allowed = allowed.expand(shape).cpu()
        allowed = allowed[piece.samples] if shape[0] > 1 else allowed
        allowed = allowed[:, piece.heads] if shape[1] > 1 else allowed
        pairs = pairs & allowed
    return pairs


@register_lens("weights")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [WeightsLens(resamplings=settings.resamplings, seed=settings.seed)]
