"""Variance of attention weights of short sequences, in the native kernel: no map is written to memory."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn import _native

__all__ = ["is_short", "squares_of_short_maps"]

_LONGEST = 32  # tokens; the kernel has one thread, and longer maps are quick in torch's products
_STRIP = 16  # entries of a query that the kernel takes at once


def is_short(query: Tensor, key: Tensor) -> bool:
    """Whether the kernel can take these maps: float32 on a processor, as many keys as queries, a head for each."""
    b, h, n, d = query.shape
    return (
        query.shape == key.shape
        and 0 < n <= _LONGEST
        and d % _STRIP == 0
        and b * h * d > 0
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (query, key))
    )


def squares_of_short_maps(
    query: Float[Tensor, "b h n d"], key: Float[Tensor, "b h n d"], scale: float, gradients: bool
) -> tuple[Float[Tensor, "b h"], Float[Tensor, "b h n d"] | None, Float[Tensor, "b h n d"] | None]:
    r"""Sums of squares :math:`\sum_{ij} (A_{ij} - 1/n)^2` with A = softmax(scale q k^T), map by map, in float64.

    With ``gradients`` also halves of their derivatives by q and by scale k.

    >>> import torch
    >>> squares, *_ = squares_of_short_maps(torch.zeros(1, 1, 4, 16), torch.zeros(1, 1, 4, 16), 1.0, False)
    >>> float(squares)
    0.0
    """
    b, h, n, d = query.shape
    query, key = query.detach().contiguous(), key.detach().contiguous()
    squares = query.new_empty(b, h, dtype=torch.float64)
    by_query, by_key = (torch.empty_like(query), torch.empty_like(key)) if gradients else (None, None)
    places = [0 if slope is None else slope.data_ptr() for slope in (by_query, by_key)]
    _native.map_variance(b * h, n, d, scale, query.data_ptr(), key.data_ptr(), squares.data_ptr(), *places)
    return squares, by_query, by_key
