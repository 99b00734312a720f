"""The lens of the Markov chain: eigenvalues, contraction, irreversibility."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from geoattn.profiles.lens import Lens, LensSettings, register_lens
from geoattn.profiles.means import MeanLens, Moments
from geoattn.profiles.pieces import Piece
from geoattn.spectral.eigenvalues import spectrum

__all__ = ["SpectrumLens"]

_ALL_UP_TO = 256  # tokens: of larger maps only the extreme eigenvalues are found


class SpectrumLens(MeanLens):
    """Second eigenvalue (modulus), smallest real part, Dobrushin coefficient, irreversibility; see `spectrum`.

    Of maps of more than 256 tokens only these two eigenvalues are found.
    """

    name = "spectrum"

    def __init__(self, *, threads: int | None = None, resamplings: int = 1000, seed: int = 0) -> None:
        super().__init__(resamplings=resamplings, seed=seed)
        self.threads = threads

    def measure(self, piece: Piece) -> Moments:
        """Means over maps of two tokens and more."""
        b, h, n = piece.valid.shape
        alive = piece.valid.sum(-1) > 1
        names = ("second_eigenvalue", "smallest_eigenvalue", "dobrushin", "irreversibility")
        totals = {name: np.zeros((b, h)) for name in names}
        if alive.any():
            maps = piece.attention.reshape(b * h, n, n)[torch.from_numpy(alive.reshape(-1)).to(piece.attention.device)]
            count = None if n <= _ALL_UP_TO else 2
            found = spectrum(maps, mask=piece.valid[alive], count=count, threads=self.threads)
            values = (found.second, found.smallest_real, found.dobrushin, found.irreversibility)
            for name, value in zip(names, values, strict=True):
                totals[name][alive] = value
        return Moments(alive.astype(np.float64), totals)


@register_lens("spectrum")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [SpectrumLens(threads=settings.threads, resamplings=settings.resamplings, seed=settings.seed)]
