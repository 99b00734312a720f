"""Which of the sequences that a module was given its queries and its keys come from.

A module f(x, y) with two sequences of equal length may be cross-attention, or self-attention over x with positions y.
Shapes do not tell. So what is made from x and from y is followed to the queries and the keys.

torch.compile traces this code: it compares identities, never values.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
from torch import Tensor

from geoattn.attention.followed_tensors import tensors_of

__all__ = ["Streams"]

_REMEMBERED = 64  # tensors that are followed at once


class Made(NamedTuple):
    """A tensor, and the numbers of the sequences that it is made from."""

    tensor: Any
    sources: tuple[int, ...]


@no_type_check
class Streams:
    """Follows the sequences of the innermost module that was given several."""

    def __init__(self) -> None:
        self.depth = 0  # number of modules that were running when it began; 0: nothing is followed
        self.sequences: list[Any] = []
        self._made: list[Made] = []

    def enter(self, args: Any, kwargs: Any, depth: int) -> None:
        """A module begins, as the ``depth``-th of those that are running."""
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if len(tensors) < 2:
            return
        with torch._C.DisableTorchFunction():
            sequences = _sequences(tensors)
        if not sequences:
            return
        self.depth = depth
        self.sequences = sequences
        self._made = [Made(sequences[i], (i,)) for i in range(len(sequences))]

    def leave(self, depth: int) -> None:
        """A module has ended and ``depth`` others are running."""
        if depth < self.depth:
            self.depth = 0
            self.sequences = []
            self._made = []

    def note(self, args: Any, kwargs: Any, out: Any) -> None:
        """A function made ``out``."""
        sources = ()
        for value in tensors_of(args, kwargs):
            sources = (*sources, *[i for i in self.sources(value) if i not in sources])
        if sources:
            outs = [out] if isinstance(out, Tensor) else list(out) if isinstance(out, (tuple, list)) else []
            made = [Made(tensor, sources) for tensor in outs if isinstance(tensor, Tensor)]
            self._made = [*self._made[: len(self.sequences)], *self._made[len(self.sequences) :][-_REMEMBERED:], *made]

    def sources(self, tensor: Any) -> tuple[int, ...]:
        """Numbers of the sequences that a tensor is made from."""
        for made in self._made:
            if made.tensor is tensor:
                return made.sources
        return ()

    def source_of_keys(self, query: Any, key: Any) -> Any:
        """The sequence that the keys come from, if the queries come from others; else None."""
        if self.depth == 0 or query is None or key is None:
            return None
        queries, keys = self.sources(query), self.sources(key)
        if not queries or not keys or any([i in queries for i in keys]):
            return None
        return self.sequences[keys[0]]


@no_type_check
def _sequences(tensors: list[Any]) -> list[Any]:
    """Different sequences (batch, n, width) of equal length; empty when there are not several."""
    found = []
    for value in tensors:
        if value.ndim == 3 and value.is_floating_point():
            if not any([value is other for other in found]) and (not found or value.shape[:2] == found[0].shape[:2]):
                found.append(value)
    return found if len(found) > 1 else []
