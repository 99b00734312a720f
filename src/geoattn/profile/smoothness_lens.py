"""The lens of smoothness in a profile: local Lipschitz constants of the first samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from geoattn.capture.selection import Layers
from geoattn.profile.batches import Batch
from geoattn.profile.model_smoothness import SmoothnessPass, first_samples
from geoattn.profile.tally import Moments
from geoattn.smoothness.layer_smoothness import LayerSmoothness
from geoattn.smoothness.result import Convergence

__all__ = ["SmoothnessLens"]

Seen = tuple[tuple[str, int], str, np.ndarray, int, Moments, np.ndarray]


class SmoothnessLens:
    """Makes a pass of its own in float64, with gradients, over the first samples of a profile.

    All tokens of a sample take part, special ones too: the map is a map of all of them.
    """

    def __init__(self, model: nn.Module, layers: Layers, samples: int, seed: int) -> None:
        self._look = SmoothnessPass(model, layers, seed=seed)
        self._samples = samples
        self._failed = 0

    def measure(self, batch: Batch, offset: int) -> Iterator[Seen]:
        """(name and visit of the layer, lens, numbers of the samples, heads, counts and totals, worst moves)."""
        left = self._samples - offset
        if left <= 0:
            return
        some = first_samples(batch, left)
        numbers = offset + np.arange(some.size)
        places = self._look.places
        for place, found in self._look(some):
            key = next(name for name, number in places.items() if number == place)
            self._failed += int((found.status != Convergence.CONVERGED).sum())
            h = found.heads.shape[1]
            heads = {"local_constant": found.heads, "bound": found.bound, "ratio": found.ratio}
            yield key, "smoothness", numbers, h, _moments(heads), found.moves
            yield key, "smoothness", numbers, h, _moments({"r2_gamma": found.r2_gamma}), found.moves
            whole = {"local_constant": found.whole, "bound": found.whole_bound, "ratio": _ratio(found)}
            seen = _moments({name: value[:, None] for name, value in whole.items()})
            yield key, "smoothness-layer", numbers, 1, seen, found.moves

    @property
    def notes(self) -> list[str]:
        """What was left out, in words."""
        notes = [f"smoothness: {reason}" for reason in self._look.skipped.values()]
        if self._failed:
            notes.append(f"smoothness: {self._failed} local constants of heads did not converge and are left out")
        return notes


def _ratio(found: LayerSmoothness) -> np.ndarray:
    return found.whole / found.whole_bound


def _moments(values: dict[str, np.ndarray]) -> Moments:
    """Sums over what has all its values: one that did not converge counts nowhere."""
    good = np.all([np.isfinite(value) for value in values.values()], axis=0)
    return Moments(good.astype(np.float64), {name: np.where(good, v, 0.0) for name, v in values.items()})
