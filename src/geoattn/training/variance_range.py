"""The range of the variance of attention: from uniform rows to one-hot rows, for maps with any mask."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.record import Record
from geoattn.training.distributed import current

__all__ = ["record_scale", "variance_range"]

_SAMPLES = 8  # samples whose masks are read


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
    counts = entries.sum(-1).double()
    counts = counts[counts > 0]
    if len(counts) == 0:
        raise GeoattnError("a map without entries has no variance; is all padding?")
    total, rows = float(counts.sum()), float(len(counts))
    square = (rows / total) ** 2
    return max(float((1 / counts).sum()) / total - square, 0.0), rows / total - square


@torch.no_grad()
def record_scale(record: Record) -> tuple[float, float]:
    r"""Scale a and floor of the variance for :math:`h(a (\sigma^2 - \mathrm{floor}))` to work in its useful range.

    A row spread evenly over k of its n entries has the share 1/k of the largest variance. With
    :math:`a = \frac43 n / (\mathrm{largest} - \mathrm{smallest})` the argument of h is 2 at k = 2n/3 and 8 at k = n/6:
    h bends where the maps of trained models are. n is the mean number of entries of a row. Full maps have
    :math:`a \approx \frac43 n^2`.
    Taken from the masks of the first 8 samples of the first call with at least two entries in a row.
    """
    for call in record:
        maps = call.attention(sample=slice(0, _SAMPLES), head=0)
        bounds: list[tuple[float, float, float]] = []
        for weights, valid in zip(maps.reshape(-1, *maps.shape[-2:]), call.valid[:_SAMPLES], strict=True):
            entries = (weights > 0) & valid.to(weights.device)[:, None]
            rows = entries.sum(-1)
            if bool((rows >= 2).any()):
                bounds.append((*variance_range(entries), float(rows[rows > 0].double().mean())))
        if bounds:
            mean = torch.tensor(bounds, dtype=torch.float64).mean(0)
            processes = current()
            if processes is not None and processes.count > 1:  # all must use the same
                mean = processes.total(mean) / processes.count
            low, high, n = mean.tolist()
            return (4 * n / 3) / (high - low), low
    raise GeoattnError(
        "no attention map of this batch has two entries in a row, so its variance has no range; is all padding?"
        " Otherwise give a."
    )
