"""The lens of the weights themselves: entropy of rows, variance, weight of a token on itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

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
        weights = piece.attention.double().cpu()
        valid = torch.from_numpy(piece.valid)
        rows = valid.sum(-1).double()
        entropy = -(torch.special.xlogy(weights, weights).sum(-1) * valid).sum(-1)
        own = (weights.diagonal(dim1=-2, dim2=-1) * valid).sum(-1)
        pairs = valid[:, :, :, None] & valid[:, :, None, :]
        call = piece.call
        b, h, n, m = call.shape
        allowed = None if call.stored is None else allowed_entries(call.stored.mask, n, m)
        if allowed is not None:
            shape = (b if allowed.shape[0] > 1 else 1, h if allowed.shape[1] > 1 else 1, n, m)
            allowed = allowed.expand(shape).cpu()
            allowed = allowed[piece.samples] if shape[0] > 1 else allowed
            allowed = allowed[:, piece.heads] if shape[1] > 1 else allowed
            pairs = pairs & allowed
        # A model that makes its maps itself shows no mask, and Swin adds -100: no head gives such entries any weight.
        pairs = pairs & (weights > torch.finfo(torch.float32).tiny).any(1, keepdim=True)
        entries = pairs.sum((-1, -2)).double()
        mean = (weights * pairs).sum((-1, -2)) / entries
        variance = (((weights - mean[..., None, None]) * pairs) ** 2).sum((-1, -2)) / entries
        yield Moments(rows.numpy(), {"row_entropy": entropy.numpy(), "self_weight": own.numpy()})
        alive = (entries > 0).double()
        yield Moments(alive.numpy(), {"variance": torch.nan_to_num(variance, nan=0.0).numpy()})


@register_lens("weights")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [WeightsLens(resamplings=settings.resamplings, seed=settings.seed)]
