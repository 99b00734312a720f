"""Memory that every training step takes and gives back."""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["ReusedMemory"]

_OWN_PAGES = 64 << 10  # bytes from which a block has pages of its own


class ReusedMemory:
    """Float32 tensors on the CPU whose memory, once nobody holds them, serves again.

    The gradients of short maps are some megabytes that live for a part of a step. The C library gives such memory back
    to the system between steps, and the page faults on its return take longer than the arithmetic.

    A block is lent as an array of its own, of which torch holds the only reference: when that array is gone, so are
    all tensors on it. The tensor is no view of another one, so autograd adds further gradients to it in place. What no
    step of the present size can use is let go, and what would exceed ``most`` bytes in all is fresh memory of torch: so
    little stays behind after training.

    >>> memory = ReusedMemory()
    >>> first, second = memory.take((2, 3)), memory.take((2, 3))
    >>> place = first.data_ptr()
    >>> del first
    >>> memory.take((3, 2)).data_ptr() == place
    True
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self._most = most
        self._blocks: list[tuple[np.ndarray, weakref.ref[np.ndarray]]] = []
        self._lock = threading.Lock()  # backward passes may run on several threads

    def take(self, shape: Sequence[int]) -> Tensor:
        """A tensor of this shape; its entries are whatever is there."""
        size = math.prod(shape)
        with self._lock:
            for i, (block, lent) in enumerate(self._blocks):
                if lent() is None and size <= len(block) <= 2 * size:
                    view = block[:size].reshape(shape)
                    self._blocks[i] = block, weakref.ref(view)
                    return torch.from_numpy(view)
            self._blocks = [(kept, lent) for kept, lent in self._blocks if lent() is not None]
            if 4 * size + sum(kept.nbytes for kept, _ in self._blocks) > self._most:
                return torch.empty(*shape, dtype=torch.float32, device="cpu")
            block = _block(size)
            view = block.reshape(shape)
            self._blocks.append((block, weakref.ref(view)))
            return torch.from_numpy(view)


def _block(size: int) -> np.ndarray:
    """Pages of its own where the system has such: in the heap it would push the tensors of the model about.

    The C library gives the top of its heap back after each step, and what stays in the heap for good lifts the rest.
    """
    if 4 * size < _OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(size, np.float32)
    return np.frombuffer(mmap.mmap(-1, 4 * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.float32)
