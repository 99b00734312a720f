"""What a profile has seen: parts of one batch each, merged in the order of the batches."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn._core.versions import versions
from geoattn.attention.call import Call
from geoattn.attention.selection import Layers
from geoattn.attention.session import capture
from geoattn.profiles.batches import Batch
from geoattn.profiles.examples import Examples
from geoattn.profiles.lens import Lens
from geoattn.profiles.pieces import pieces
from geoattn.profiles.special import Special

__all__ = ["Part", "Run", "Viewer"]

_IMAGES = 1 << 50  # numbers of images beyond the number of texts begin here
Progress = Callable[[float, int | None], object]
LayerKey = tuple[str, int]  # name of the module, and which of its visits in a forward pass


@dataclass(eq=False)
class Part:
    """What one batch adds to a profile. ``states`` belong to (number of the layer, number of the lens)."""

    layers: dict[LayerKey, int]
    states: dict[tuple[int, int], Any]
    examples: Examples
    skipped: dict[str, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)  # of each sample, in its longest map
    numbers: dict[int, set[int]] = field(default_factory=dict)  # of the samples of each layer: texts, or images
    maps: int = 0
    calls: int = 0
    warned: list[tuple[str, type[Warning]]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=versions)


@dataclass(eq=False)
class Viewer:
    """A model and the lenses on it; sees one batch at a time, here or on a node of a cluster."""

    model: nn.Module
    layers: Layers
    special: Special
    lenses: Sequence[Lens | None]  # None keeps the place of a lens that is not sent to the nodes
    examples: Examples
    sink: str = "refuse"

    def see(
        self, batch: Batch, first: int, known: dict[LayerKey, int], on_call: Callable[[str], object] | None = None
    ) -> Part:
        """Run the model on a batch whose first sample has the number ``first``; layers have the numbers ``known``."""
        part = Part(dict(known), {}, self.examples.empty())

        def look(call: Call) -> None:
            self._see_call(call, batch, first, part)
            if on_call is not None:
                on_call(call.name)

        with capture(self.model, layers=self.layers, reduce=look) as record:
            batch.run(self.model)
        part.calls = len(record)
        return part

    def _see_call(self, call: Call, batch: Batch, first: int, part: Part) -> None:
        """All lenses on one call, while the forward pass waits."""
        b, _, n, m = call.shape
        if call.kind == "cross" or n != m or n < 2:
            part.skipped[call.name] = part.skipped.get(call.name, 0) + b
            return
        layer = part.layers.setdefault((call.name, call.visit), len(part.layers))
        numbers = sample_numbers(call, batch.size, first)
        part.numbers.setdefault(layer, set()).update(map(int, numbers))
        content = self.special.content(batch, b, n, self.model, call.name)
        try:
            for piece in pieces(call, content, numbers=numbers, layer=layer, first=first, sink=self.sink):
                part.maps += piece.valid.shape[0] * piece.valid.shape[1]
                for sample, length in zip(piece.numbers, piece.valid.sum(-1).max(-1), strict=True):
                    part.tokens[int(sample)] = max(part.tokens.get(int(sample), 0), int(length))
                solved: dict[int, Any] = {}
                for k, lens in enumerate(self.lenses):
                    if lens is None or lens.own_pass:
                        continue
                    state = lens.see(piece)
                    solved = solved or take_shown(state)
                    merge_into(part.states, (layer, k), lens, state)
                if b >= batch.size:
                    part.examples.take(piece, batch, first, solved)
        except GeoattnError as error:
            last = first + batch.size - 1
            raise GeoattnError(f"{call.name}, samples {first} to {last}: {error}") from None


def sample_numbers(call: Call, size: int, first: int) -> Int[np.ndarray, " b"]:
    """Numbers of the samples of a call, in a batch of ``size`` samples that begin with the number ``first``.

    Windows of one image are maps of one sample. A layer that runs over the images of a text one after the other
    (Qwen-VL), or over the samples of a batch, makes several calls in one run: each is a sample. There may be more of
    them than texts, and those have numbers that no text has.
    """
    b, h = call.shape[:2]
    if b < size or (call.part > 0 and b == 1 and h > 1):
        numbers = call.part * b + np.arange(b)
        return np.where(numbers < size, first + numbers, _IMAGES + (first << 20) + numbers)
    return first + np.arange(b) // max(1, b // size)


class Run:
    """The sum of all parts, and counts of what was seen."""

    def __init__(self, viewer: Viewer, progress: Progress | None) -> None:
        self.viewer = viewer
        self.total: int | None = None
        self.rows: str | None = None
        self.samples = self.maps = self.calls = 0
        self.without_edges = 0  # samples with fewer than two tokens in the graph
        self.layers: dict[LayerKey, int] = {}
        self.states: dict[tuple[int, int], Any] = {}
        self.examples = viewer.examples
        self.skipped: dict[str, int] = {}
        self.numbers: dict[int, set[int]] = {}
        self.seen = hashlib.sha256()
        self.progress = progress

    @property
    def lenses(self) -> Sequence[Lens]:
        """All of them, in order."""
        return [lens for lens in self.viewer.lenses if lens is not None]

    def see(self, batch: Batch) -> None:
        """See a batch here, and add it."""
        done = 0

        def on_call(name: str) -> None:
            nonlocal done
            done += 1
            if self.progress is not None:
                self.calls = self.calls or expected_calls(self.viewer.model, name)
                share = done / max(self.calls, done + 1)  # all of it when the batch is done
                self.progress(self.samples + share * batch.size, self.total)

        self.add(batch, self.viewer.see(batch, self.samples, self.layers, on_call))

    def add(self, batch: Batch, part: Part) -> None:
        """Add what was seen of the next batch, here or elsewhere; lenses with a pass of their own make it now."""
        for key in part.layers:
            self.layers.setdefault(key, len(self.layers))
        for (layer, k), state in part.states.items():
            merge_into(self.states, (layer, k), self.lenses[k], state)
        self.examples.absorb(part.examples)
        self.maps += part.maps
        self.without_edges += sum(tokens < 2 for tokens in part.tokens.values())
        for layer, numbers in part.numbers.items():
            self.numbers.setdefault(layer, set()).update(numbers)
        for name, count in part.skipped.items():
            self.skipped[name] = self.skipped.get(name, 0) + count
        for message, category in part.warned:
            warnings.warn(message, category, stacklevel=4)
        for sample in batch.samples():
            self.seen.update(sample)
        for k, lens in enumerate(self.lenses):
            for key, state in lens.see_batch(batch, self.samples) if lens.own_pass else ():
                if key in self.layers:
                    layer = self.layers[key]
                    for sample, moves in getattr(state, "moves", {}).items():
                        self.examples.take_moves(sample, layer, moves)
                    merge_into(self.states, (layer, k), lens, state)
        self.samples += batch.size
        self.calls = part.calls
        if self.progress is not None:
            self.progress(self.samples, self.total)

    def of_lens(self, k: int) -> dict[int, Any]:
        """The states of lens k by number of the layer, in order."""
        return {layer: state for (layer, lens), state in sorted(self.states.items(), key=lambda e: e[0]) if lens == k}


def expected_calls(model: nn.Module, name: str) -> int:
    """How many attention calls a forward pass may have: as many as there are modules like the named one."""
    modules = dict(model.named_modules())
    kind = type(modules.get(name))
    return sum(type(module) is kind for module in modules.values())


def take_shown(state: Any) -> dict[int, Any]:
    """What a state of curvature has for examples, which it then no longer holds; see `Examples.take`."""
    shown = getattr(state, "shown", {})
    if shown:
        state.shown = {}
    return shown


def merge_into(states: dict[tuple[int, int], Any], key: tuple[int, int], lens: Lens, state: Any) -> None:
    """Add a state to those there are."""
    states[key] = lens.merge(states[key], state) if key in states else state
