"""The base of lenses that read weights and tokens instead of maps: a pass of their own over the first samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.selection import Layers
from geoattn.profiles.batches import Batch
from geoattn.profiles.lens import Lens, LensSettings
from geoattn.profiles.means import Means, Moments
from geoattn.profiles.model_constants import SmoothnessPass, first_samples
from geoattn.profiles.pieces import Piece

__all__ = ["OwnPassLens", "finite_moments"]


class OwnPassLens(Lens):
    """A lens that makes a pass of its own in float64, with gradients, over the first samples of a profile.

    A subclass gives `look`, which measures the layers of a batch, and `state`, which turns one such measurement into
    the state of its layer.
    """

    own_pass = True

    def __init__(
        self, model: nn.Module, layers: Layers = None, *, samples: int = 16, resamplings: int = 1000, seed: int = 0
    ) -> None:
        self._pass = SmoothnessPass(model, layers, seed=seed)
        self._samples, self._resamplings, self._seed = samples, resamplings, seed

    @classmethod
    def of(cls, settings: LensSettings) -> "OwnPassLens":
        """The lens with the settings of a profile."""
        return cls(
            settings.model, settings.layers, samples=settings.smoothness_samples, resamplings=settings.resamplings,
            seed=settings.seed,
        )  # fmt: skip

    @abstractmethod
    def look(self, batch: Batch) -> Iterator[tuple[int, Any]]:
        """(number of the layer in the pass, what was measured) of each layer that can be measured."""

    @abstractmethod
    def state(self, found: Any, numbers: np.ndarray) -> Any:
        """The state of a layer; ``numbers`` are those of the samples of the batch."""

    def see(self, piece: Piece) -> Any:
        """Not called: the lens makes a pass of its own."""
        raise GeoattnError(f"the lens {self.name} sees batches, not pieces of attention.")

    def see_batch(self, batch: Batch, first: int) -> Iterator[tuple[tuple[str, int], Any]]:
        """States of the layers that can be measured."""
        left = self._samples - first
        if left <= 0:
            return
        some = first_samples(batch, left)
        numbers = first + np.arange(some.size)
        for place, found in self.look(some):
            key = next(name for name, number in self._pass.places.items() if number == place)
            yield key, self.state(found, numbers)

    def _means(self, heads: int) -> Means:
        """Empty means over samples."""
        return Means(heads, self._resamplings, self._seed)


def finite_moments(values: dict[str, np.ndarray]) -> Moments:
    """Sums over what has all its values: a head of a sample where one is not finite counts nowhere."""
    good = np.all([np.isfinite(value) for value in values.values()], axis=0)
    return Moments(good.astype(np.float64), {name: np.where(good, v, 0.0) for name, v in values.items()})
