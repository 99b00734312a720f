"""Small products of torch on one thread: several threads wait for each other longer than they work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["few_threads"]

_WORTH_IT = 1 << 22  # multiplications of one product


@contextmanager
def few_threads(multiplications: int) -> Iterator[None]:
    """One thread of torch within, when a product is too small to be shared; the old number afterwards."""
    import torch

    before = torch.get_num_threads()
    if multiplications >= _WORTH_IT or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
