"""GraphRicciCurvature's measures: the k nearest neighbours, by base^(-w^p)."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.graph.sparse_rows import SparseRows

__all__ = ["nearest_neighbour_measures"]

_EPSILON = 1e-7  # below this sum the mass is spread evenly


def nearest_neighbour_measures(
    lengths: SparseRows, *, alpha: Any, base: Any, exp_power: Any, nbr_topk: int
) -> SparseRows:
    """Alpha on the node, the rest over its ``nbr_topk`` neighbours of largest base^(-length^exp_power).

    Of equal ones the later nodes are kept. A node without neighbours keeps all of its mass.
    """
    with np.errstate(over="ignore", under="ignore"):
        decay = np.float64(base) ** (-(lengths.value**exp_power))
    degree = np.diff(lengths.start)
    near = lengths
    if (degree > nbr_topk).any():
        kept = np.ones(len(decay), dtype=bool)
        for v in np.flatnonzero(degree > nbr_topk):
            mine = slice(int(lengths.start[v]), int(lengths.start[v + 1]))
            order = np.lexsort((lengths.column[mine], decay[mine]))
            kept[mine.start + order[: len(order) - nbr_topk]] = False
        near, decay = lengths.keep(kept), decay[kept]
    count = np.diff(near.start)
    total = np.repeat(near.row_sums(decay), count)
    even = np.repeat(1.0 / np.maximum(count, 1), count)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(total > _EPSILON, decay / total, even)
    measures, place, diagonal = near.with_diagonal()
    measures.value[place] = (1 - alpha) * share
    measures.value[diagonal] = np.where(degree == 0, 1.0, alpha)
    return measures
