"""The state of a profile while batches stream by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from torch import nn

from geoattn.capture.call import Call
from geoattn.capture.selection import Layers
from geoattn.capture.session import capture
from geoattn.errors import GeoattnError
from geoattn.profile.batches import Batch
from geoattn.profile.examples import Examples
from geoattn.profile.lenses import CurvatureLens, spectrum_lens, weights_lens
from geoattn.profile.pieces import pieces
from geoattn.profile.smoothness_lens import SmoothnessLens
from geoattn.profile.special import Special
from geoattn.profile.tally import Tally

__all__ = ["Run"]


class Run:
    """What was seen so far: sums by layer, head and statistic, extremes, examples, counts."""

    def __init__(
        self, model: nn.Module, special: Special, lenses: list[CurvatureLens], others: tuple[str, ...],
        threads: int | None, tally: Tally, examples: Examples, progress: Callable[[float, int | None], object] | None,
    ) -> None:  # fmt: skip
        self.model, self.special, self.lenses, self.tally, self.examples = model, special, lenses, tally, examples
        self.others, self.threads = others, threads
        self._progress = progress
        self.smoothness: SmoothnessLens | None = None
        self.total: int | None = None
        self.rows: str | None = None
        self.samples, self.maps, self.calls, self._call = 0, 0, 0, 0
        self.layers: dict[tuple[str, int], int] = {}
        self.skipped: dict[str, int] = {}
        self._batch: Batch | None = None
        self.seen = hashlib.sha256()
        self._offset = 0

    def see(self, batch: Batch, layers: Layers) -> None:
        """Run the model on a batch and look at all its attention."""
        self.begin(batch)
        with capture(self.model, layers=layers, reduce=self.look) as record:
            batch.run(self.model)
        self.look_deeper()
        self.end(len(record))

    @property
    def batch(self) -> Batch:
        """The present one."""
        assert self._batch is not None
        return self._batch

    def begin(self, batch: Batch) -> None:
        """Count its samples."""
        self._batch, self._offset, self._call = batch, self.samples, 0
        for sample in batch.samples():
            self.seen.update(sample)
        self.samples += batch.size

    def end(self, calls: int) -> None:
        """Say how far it is."""
        self.calls = calls
        if self._progress is not None:
            self._progress(self.samples, self.total)

    def look(self, call: Call) -> None:
        """All lenses on one call, while the forward pass waits."""
        assert self._batch is not None
        self._call += 1
        b, h, n, m = call.shape
        if call.kind != "self" or n != m or n < 2:
            self.skipped[call.name] = self.skipped.get(call.name, 0) + b
            return
        layer = self.layers.setdefault((call.name, call.visit), len(self.layers))
        # Windows of one image are maps of one sample.
        numbers = self._offset + np.arange(b) // max(1, b // self._batch.size)
        content = self.special.content(self._batch, b, n, self.model, call.name)
        try:
            for piece in pieces(call, content):
                self.maps += piece.valid.shape[0] * piece.valid.shape[1]
                some = numbers[piece.samples]
                for lens in self.lenses:
                    first = self._offset + piece.samples.start
                    seen = lens.measure(piece, layer, first, h)
                    self.tally.add(layer, "curvature", lens.convention.name, some, piece.heads, h, seen)
                if "weights" in self.others:
                    for _, seen in weights_lens(piece, call):
                        self.tally.add(layer, "weights", "", some, piece.heads, h, seen)
                if "spectrum" in self.others:
                    seen = spectrum_lens(piece, self.threads)
                    self.tally.add(layer, "spectrum", "", some, piece.heads, h, seen)
                self.examples.take(piece, layer, some, self._batch, self._offset)
        except GeoattnError as error:
            raise GeoattnError(f"{call.name}, samples {self._offset} to {self.samples - 1}: {error}") from None
        if self._progress is not None:
            share = self._call / max(self.calls, self._call + (self.calls == 0))
            self._progress(self._offset + share * self._batch.size, self.total)

    def look_deeper(self) -> None:
        """The lens that makes its own pass over the batch."""
        if self.smoothness is None:
            return
        assert self._batch is not None
        for key, lens, samples, h, seen, moves in self.smoothness.measure(self._batch, self._offset):
            layer = self.layers.get(key)
            if layer is None:
                continue
            self.tally.add(layer, lens, "", samples, slice(0, h), h, seen)
            for sample, one in zip(samples, moves, strict=True):
                self.examples.take_moves(int(sample), layer, one)
