"""The lens of sink mass: how much attention goes to the first token and to the heaviest one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from geoattn.profiles.lens import Lens, LensSettings, register_lens
from geoattn.profiles.means import MeanLens, Moments
from geoattn.profiles.pieces import Piece

__all__ = ["SinkMassLens"]


class SinkMassLens(MeanLens):
    r"""``first_token`` is the mean over rows of :math:`A_{i0}`, ``heaviest_token`` the largest mean of a column.

    The lens ``sinks`` also measures what such a token does to the curvature, which takes longer.
    """

    name = "sink_mass"

    def measure(self, piece: Piece) -> Moments:
        """Means over maps."""
        valid = torch.from_numpy(piece.valid)
        rows = valid.sum(-1).double()
        columns = (piece.attention.cpu() * valid[..., None]).sum(-2, dtype=torch.float64)
        columns = torch.where(valid, columns / rows.clamp_min(1)[..., None], 0.0)
        first = torch.take_along_dim(columns, valid.int().argmax(-1, keepdim=True), -1)[..., 0]
        masses = {"first_token": first.numpy(), "heaviest_token": columns.amax(-1).numpy()}
        return Moments((rows > 0).double().numpy(), masses)


@register_lens("sink_mass")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [SinkMassLens(resamplings=settings.resamplings, seed=settings.seed)]
