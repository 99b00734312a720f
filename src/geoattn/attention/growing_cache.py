"""Keys and values behind a cache that grows: the tensor of a later step begins with those of the steps before.

A step of a generation attends from one new token to all earlier ones. To keep the keys of each step would cost a
quadratic amount of memory, and to build the map at once costs several functions in each layer. Most caches grow by
torch.cat, which the function mode sees. The newest tensor then holds the keys of all steps; a step keeps a length.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["CacheLine", "GrowingCaches"]


class CacheLine:
    """Keys or values of one module: ``latest`` (..., m, d) begins with those of each earlier step."""

    def __init__(self, tensor: Tensor) -> None:
        self.latest = tensor
        self.identity = id(tensor)
        self.has_grown = False
        self._version: int | None = tensor._version

    def is_intact(self) -> bool:
        """False when something has changed the tensor in place, so that the steps are lost."""
        return self._version is None or self.latest._version == self._version

    def first(self, length: int) -> Tensor:
        """The first ``length`` keys or values."""
        return self.latest.detach()[..., :length, :]

    def grow(self, tensor: Tensor) -> None:
        """A longer tensor begins with the present one."""
        self.latest = tensor
        self.identity = id(tensor)
        self.has_grown = True
        self._version = tensor._version

    def keep_first_head(self) -> None:
        """Keep what the self-check compares with: the first head of the first sample."""
        if self._version is not None and self.is_intact():
            place = (slice(0, 1),) * (self.latest.ndim - 2)
            self.latest = self.latest.detach()[place].clone()
            self._version = None  # nobody else has it


class GrowingCaches:
    """The newest keys and values of each module that reads a cache.

    ``lines`` are found by the identity of their latest tensor, which they keep alive.
    """

    def __init__(self) -> None:
        self.lines: dict[int, CacheLine] = {}
        self._of_module: dict[str, tuple[CacheLine, CacheLine]] = {}

    def joined(self, args: Any, kwargs: Any, out: Any) -> None:
        """torch.cat ran: what begins with the latest tensor of a line takes its place."""
        parts = args[0] if args else kwargs["tensors"]
        line = self.lines.get(id(parts[0])) if parts else None
        if line is None or line.latest is not parts[0] or kwargs.keys() - {"tensors", "dim"}:
            return
        axis = kwargs["dim"] if "dim" in kwargs else (args[1] if len(args) > 1 else 0)
        if axis in (-2, out.ndim - 2) and line.is_intact() and not out.is_inference():
            del self.lines[line.identity]
            line.grow(out)
            self.lines[line.identity] = line

    def find(self, name: str, key: Tensor, value: Tensor) -> tuple[CacheLine, CacheLine] | None:
        """The lines that end with these keys and values; None when they have not grown, and are followed from now on.

        Tensors that a step overwrites, as in a cache of fixed length, never grow.
        """
        keys, values = self.lines.get(id(key)), self.lines.get(id(value))
        if keys is not None and values is not None and keys.latest is key and values.latest is value:
            if keys.has_grown and values.has_grown and keys.is_intact() and values.is_intact():
                return keys, values
        for line in self._of_module.pop(name, ()):
            if self.lines.get(line.identity) is line:
                del self.lines[line.identity]
        if key is not value and not key.is_inference() and not value.is_inference():
            self._of_module[name] = pair = CacheLine(key), CacheLine(value)
            for line in pair:
                self.lines[line.identity] = line
        return None

    def clear(self) -> None:
        """Forget all of them."""
        self.lines.clear()
        self._of_module.clear()
