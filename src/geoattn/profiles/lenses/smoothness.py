"""The lens of smoothness: local Lipschitz constants of heads and layers, at the first samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.selection import Layers
from geoattn.profiles.batches import Batch
from geoattn.profiles.lens import Lens, LensSettings, Row, register_lens
from geoattn.profiles.means import Means, Moments, mean_rows
from geoattn.profiles.model_constants import SmoothnessPass, first_samples
from geoattn.profiles.pieces import Piece
from geoattn.smoothness.result import Convergence

__all__ = ["SmoothnessLens", "SmoothnessState"]


@dataclass(eq=False)
class SmoothnessState:
    """Means over heads and over the layer as a whole, worst moves (h, n) by sample, and how many did not converge."""

    heads: Means
    layer: Means
    moves: dict[int, np.ndarray] = field(default_factory=dict)
    failed: int = 0


class SmoothnessLens(Lens):
    """Local constants from a pass of its own in float64, with gradients, over the first samples of a profile.

    All tokens of a sample take part, special ones too: the map is a map of all of them. Constants of the layer as a
    whole are rows of the lens ``smoothness-layer``.
    """

    name = "smoothness"
    own_pass = True

    def __init__(
        self, model: nn.Module, layers: Layers = None, *, samples: int = 16, resamplings: int = 1000, seed: int = 0
    ) -> None:
        self._pass = SmoothnessPass(model, layers, seed=seed)
        self._samples, self._resamplings, self._seed = samples, resamplings, seed

    def see(self, piece: Piece) -> Any:
        """Not called: the lens makes a pass of its own."""
        raise GeoattnError("the smoothness lens sees batches, not pieces of attention.")

    def see_batch(self, batch: Batch, first: int) -> Iterator[tuple[tuple[str, int], SmoothnessState]]:
        """States of the layers that can be measured."""
        left = self._samples - first
        if left <= 0:
            return
        some = first_samples(batch, left)
        numbers = first + np.arange(some.size)
        for place, found in self._pass(some):
            key = next(name for name, number in self._pass.places.items() if number == place)
            h = found.heads.shape[1]
            state = SmoothnessState(
                Means(h, self._resamplings, self._seed),
                Means(1, self._resamplings, self._seed),
                dict(zip(map(int, numbers), found.moves, strict=True)),
                int((found.status != Convergence.CONVERGED).sum()),
            )
            heads = {"local_constant": found.heads, "bound": found.bound, "ratio": found.ratio}
            state.heads.add(numbers, slice(0, h), _moments(heads))
            state.heads.add(numbers, slice(0, h), _moments({"r2_gamma": found.r2_gamma}))
            ratio = found.whole / found.whole_bound
            whole = {"local_constant": found.whole, "bound": found.whole_bound, "ratio": ratio}
            state.layer.add(numbers, slice(0, 1), _moments({name: value[:, None] for name, value in whole.items()}))
            yield key, state

    def merge(self, one: SmoothnessState, other: SmoothnessState) -> SmoothnessState:
        """Both together."""
        one.heads.merge(other.heads)
        one.layer.merge(other.layer)
        one.moves |= other.moves
        one.failed += other.failed
        return one

    def rows(self, states: Sequence[SmoothnessState], heads: slice, level: float) -> Iterator[Row]:
        """Means with intervals, of heads, and of whole layers where all heads are asked for."""
        yield from mean_rows([state.heads for state in states], heads, level)
        if heads == slice(None):
            yield from mean_rows([state.layer for state in states], heads, level, lens="smoothness-layer")

    def resampled(self, state: SmoothnessState) -> dict[str, np.ndarray]:
        """Totals and counts (2, r) of the heads of the layer, by statistic."""
        return {name: state.heads.estimate(name)[1].sum(axis=1) for name in state.heads.statistics}

    def notes(self, states: Sequence[SmoothnessState]) -> list[str]:
        """What was left out."""
        notes = [f"smoothness: {reason}" for reason in self._pass.skipped.values()]
        if failed := sum(state.failed for state in states):
            notes.append(f"smoothness: {failed} local constants of heads did not converge and are left out")
        return notes


def _moments(values: dict[str, np.ndarray]) -> Moments:
    """Sums over what has all its values: one that did not converge counts nowhere."""
    good = np.all([np.isfinite(value) for value in values.values()], axis=0)
    return Moments(good.astype(np.float64), {name: np.where(good, v, 0.0) for name, v in values.items()})


@register_lens("smoothness")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [
        SmoothnessLens(
            settings.model, settings.layers, samples=settings.smoothness_samples, resamplings=settings.resamplings,
            seed=settings.seed,
        )
    ]  # fmt: skip
