"""The lens of smoothness: local Lipschitz constants of heads and layers, at the first samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from geoattn.profiles.batches import Batch
from geoattn.profiles.lens import Lens, LensSettings, Row, register_lens
from geoattn.profiles.means import Means, mean_rows
from geoattn.profiles.own_pass import OwnPassLens, finite_moments
from geoattn.smoothness.layer_smoothness import LayerSmoothness
from geoattn.smoothness.result import Convergence

__all__ = ["SmoothnessLens", "SmoothnessState"]


@dataclass(eq=False)
class SmoothnessState:
    """Means over heads and over the layer as a whole, worst moves (h, n) by sample, and how many did not converge."""

    heads: Means
    layer: Means
    moves: dict[int, np.ndarray] = field(default_factory=dict)
    failed: int = 0


class SmoothnessLens(OwnPassLens):
    """Local constants from a pass of its own in float64, with gradients, over the first samples of a profile.

    All tokens of a sample take part, special ones too: the map is a map of all of them. Constants of the layer as a
    whole are rows of the lens ``smoothness-layer``.
    """

    name = "smoothness"

    def look(self, batch: Batch) -> Iterator[tuple[int, LayerSmoothness]]:
        """Constants and bounds of the layers."""
        return self._pass(batch)

    def state(self, found: LayerSmoothness, numbers: np.ndarray) -> SmoothnessState:
        """Means over samples, of the heads and of the layer as a whole, and the worst moves."""
        h = found.heads.shape[1]
        state = SmoothnessState(
            self._means(h),
            self._means(1),
            dict(zip(map(int, numbers), found.moves, strict=True)),
            int((found.status != Convergence.CONVERGED).sum()),
        )
        heads = {"local_constant": found.heads, "bound": found.bound, "ratio": found.ratio}
        state.heads.add(numbers, slice(0, h), finite_moments(heads))
        state.heads.add(numbers, slice(0, h), finite_moments({"r2_gamma": found.r2_gamma}))
        ratio = found.whole / found.whole_bound
        whole = {"local_constant": found.whole, "bound": found.whole_bound, "ratio": ratio}
        columns = {name: value[:, None] for name, value in whole.items()}
        state.layer.add(numbers, slice(0, 1), finite_moments(columns))
        return state

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


@register_lens("smoothness")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [SmoothnessLens.of(settings)]
