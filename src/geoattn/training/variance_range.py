"""The range of the variance of attention: from uniform rows to one-hot rows, for maps with any mask."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.masks import allowed_entries
from geoattn.attention.record import Call

__all__ = ["Scales", "variance_range"]

_REMEMBERED = 256  # lengths whose ranges are kept


def variance_range(entries: Bool[Tensor, "n m"]) -> tuple[float, float]:
    r"""Smallest and largest population variance of a map whose rows sum to 1 over the ``entries`` that it has.

    With M rows, :math:`N_i` entries in row i and N in all, one-hot rows have the largest variance,
    :math:`M/N - (M/N)^2`, and uniform rows the smallest, :math:`\frac1N \sum_i 1/N_i - (M/N)^2`. Rows without an entry
    do not count. A full map of n tokens has 0 and :math:`(n - 1)/n^2`; a causal one has a floor above 0.

    Examples
    --------
    >>> import torch
    >>> variance_range(torch.ones(4, 4, dtype=torch.bool))
    (0.0, 0.1875)
    >>> [round(v, 4) for v in variance_range(torch.ones(4, 4).tril().bool())]
    [0.0483, 0.24]
    """
    low, high, rows = _range_of_counts(entries.sum(-1)[None])
    if not float(rows):
        raise GeoattnError("a map without entries has no variance; is all padding?")
    return float(low), float(high)


class Scales:
    r"""Scale a and floor of the variance for :math:`h(a (\sigma^2 - \mathrm{floor}))` to work in its useful range.

    A row spread evenly over k of its n entries has the share 1/k of the largest variance. With
    :math:`a = \frac43 n / (\mathrm{largest} - \mathrm{smallest})` the argument of h is 2 at k = 2n/3 and 8 at k = n/6:
    h bends where the maps of trained models are. n is the mean number of entries of a row. Full maps have
    :math:`a \approx \frac43 n^2`.

    Each sample has its own, from its length and its mask: batches may differ in length. Layers share masks, so that a
    mask is read once for a record.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Tensor, Tensor]] = {}
        self.found = False  # whether a map had two entries in a row

    def above_floor(self, call: Call, variance: Float[Tensor, "b h"]) -> Float[Tensor, "b h"]:
        """The scaled variance of each map of a call, a (variance - floor); 0 where no row has two entries."""
        stored, (_, _, n, m) = call._read(), call.shape
        entries, diagonal = stored.mask.entries, stored.mask.diagonal
        masks = (entries, stored.key_mask, stored.query_mask)
        if stored.weights is None and not any(mask is not None for mask in masks):
            a, floor = _unmasked(n, m, diagonal)
            self.found |= a > 0
            return a * (variance - floor)
        key = None if stored.weights is not None else (n, m, diagonal, *map(_place, masks))
        a, floor = self._known.get(key) or _scale(_range_of_counts(_entries(call).sum(-1)))
        self.found |= bool((a > 0).any())
        if key is not None:
            self._known[key] = a, floor
        a, floor = (value[:, None].to(variance.device, variance.dtype) for value in (a, floor))
        return a * (variance - floor)


@torch.no_grad()
def _entries(call: Call) -> Bool[Tensor, "b n m"]:
    """Between real tokens, what the mask allows; where the model made its maps, what is not 0 in the first head."""
    stored, (_, _, n, m) = call._read(), call.shape
    real = call.valid[:, :, None] & call.valid_keys[:, None, :]
    if stored.weights is not None:
        return real & (call.attention(head=0)[:, 0] != 0).to(real.device)
    allowed = allowed_entries(stored.mask, n, m)
    return real if allowed is None else real & allowed[:, 0].to(real.device)


@lru_cache(_REMEMBERED)
def _unmasked(n: int, m: int, diagonal: int | None) -> tuple[float, float]:
    """Of a full map, or of one with a diagonal alone."""
    counts = torch.full((1, n), m)
    if diagonal is not None:
        counts = (torch.arange(n) + 1 + diagonal).clamp(0, m)[None]
    a, floor = _scale(_range_of_counts(counts))
    return float(a), float(floor)


def _range_of_counts(
    counts: Int[Tensor, "b n"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Smallest and largest variance by the numbers of entries of the rows, and their mean over rows that have any."""
    wide = counts.cpu().double()  # some accelerators have no float64
    total, rows = wide.sum(-1), (wide > 0).sum(-1).double()
    share = rows / total.clamp_min(1)
    inverse = torch.where(wide > 0, 1 / wide.clamp_min(1), 0.0).sum(-1)
    low = (inverse / total.clamp_min(1) - share.square()).clamp_min(0.0)
    return low, share - share.square(), total / rows.clamp_min(1)


def _scale(found: tuple[Tensor, Tensor, Tensor]) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    low, high, n = found
    wide = high - low > 1e-12 * high
    return torch.where(wide, (4 * n / 3) / torch.where(wide, high - low, 1.0), 0.0), torch.where(wide, low, 0.0)


def _place(mask: Any) -> Hashable:
    """Masks at the same place are the same: all of a record are alive."""
    return None if mask is None else (mask.data_ptr(), tuple(mask.shape), mask.stride(), mask.dtype)
