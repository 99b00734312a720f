"""The lens of attention sinks: how much goes to the first token and to the heaviest one, and what that explains."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.graph.convention import Convention
from geoattn.profiles.lens import Lens, LensSettings, register_lens
from geoattn.profiles.means import MeanLens, Moments
from geoattn.profiles.pieces import Piece

__all__ = ["SinksLens"]

_EDGES = 32  # of each map, with and without its sink


class SinksLens(MeanLens):
    r"""Mass on the first token and on the heaviest column, and the distance to one with and without that column.

    ``first_token`` is the mean over rows of :math:`A_{i0}`, ``heaviest_token`` the largest mean of a column. Without
    the heaviest token the rows are divided by what remains of them. A head whose ``distance_to_one_without_sink`` is
    far from its ``distance_to_one_with_sink`` is explained by its sink. Both are means over the same 32 edges of a map.
    """

    name = "sinks"

    def __init__(
        self, rule: Convention | str = "markov", *, threads: int | None = None, resamplings: int = 1000, seed: int = 0
    ) -> None:
        super().__init__(resamplings=resamplings, seed=seed)
        self.rule, self.threads = Convention.of(rule), threads

    def measure(self, piece: Piece) -> Iterator[Moments]:
        """Means over maps."""
        weights = piece.attention.double().cpu()
        valid = torch.from_numpy(piece.valid)
        rows = valid.sum(-1).double()
        columns = (weights * valid[..., None]).sum(-2) / rows.clamp_min(1)[..., None]
        columns = torch.where(valid, columns, -1.0)
        first = torch.take_along_dim(columns, valid.int().argmax(-1, keepdim=True), -1)[..., 0]
        heaviest, place = columns.max(-1)
        alive = (rows > 0).double()
        masses = {"first_token": first * alive, "heaviest_token": heaviest * alive}
        yield Moments(alive.numpy(), {name: value.numpy() for name, value in masses.items()})
        large = (rows > 3).double()
        with_sink, without = self._curvatures(weights, valid, place, piece)
        good = np.isfinite(with_sink) & np.isfinite(without) & (large.numpy() > 0)
        yield Moments(
            good.astype(np.float64),
            {
                "distance_to_one_with_sink": np.where(good, 1 - with_sink, 0.0),
                "distance_to_one_without_sink": np.where(good, 1 - without, 0.0),
            },
        )

    def _curvatures(self, weights: Tensor, valid: Tensor, place: Tensor, piece: Piece) -> tuple[np.ndarray, np.ndarray]:
        """Mean curvature (b, h) of edges between other tokens than the sink, with it and without it."""
        b, h, n = valid.shape
        sink = torch.nn.functional.one_hot(place, n).bool()
        rest = valid & ~sink
        left = weights * rest[..., None] * rest[..., None, :]
        sums = left.sum(-1, keepdim=True)
        rest = rest & (sums[..., 0] > 0)
        left = left / sums.clamp_min(torch.finfo(torch.float64).tiny)
        wanted = np.zeros((b, h, n, n), dtype=bool)
        for s in range(b):
            for k in range(h):
                rng = np.random.default_rng([self.seed, piece.layer, piece.first + s, piece.heads.start + k])
                tokens = np.flatnonzero(rest[s, k].numpy())
                if len(tokens) < 2:
                    continue
                pairs = rng.choice(tokens, (2, 2 * _EDGES))
                pairs = pairs[:, pairs[0] != pairs[1]][:, :_EDGES]
                wanted[s, k, pairs[0], pairs[1]] = True
        return self._mean(weights, valid, wanted), self._mean(left, rest, wanted)

    def _mean(self, weights: Tensor, valid: Tensor, wanted: np.ndarray) -> np.ndarray:
        b, h, _ = valid.shape
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the curvature lens says it
            found: Any = ollivier_ricci(weights, self.rule, edges=wanted, mask=valid.numpy(), threads=self.threads)
        place, kappa = found.places(), found.column("kappa")
        good = np.isfinite(kappa)
        cell = place[good, 0] * h + place[good, 1]
        count = np.bincount(cell, minlength=b * h).reshape(b, h)
        total = np.bincount(cell, kappa[good], minlength=b * h).reshape(b, h)
        return np.divide(total, count, out=np.full((b, h), np.nan), where=count > 0)


@register_lens("sinks")
def _make(settings: LensSettings) -> Sequence[Lens]:
    options = {"threads": settings.threads, "resamplings": settings.resamplings, "seed": settings.seed}
    return [SinksLens(settings.conventions[0], **options)]
