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
        """(b,) sums over the rows of the maps (b, n, n) of one head, and over pairs; head by head to save memory."""
        weights = weights.double()
        entropy = -(torch.special.xlogy(weights, weights).sum(-1) * valid).sum(-1)
        own = (weights.diagonal(dim1=-2, dim2=-1) * valid).sum(-1)
        pairs = pairs & valid[:, :, None] & valid[:, None, :]
        entries = pairs.sum((-1, -2)).double()
        mean = (weights * pairs).sum((-1, -2)) / entries
        variance = (((weights - mean[:, None, None]) * pairs) ** 2).sum((-1, -2)) / entries
        return entropy, own, entries, variance


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
