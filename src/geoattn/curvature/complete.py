"""Closed form: with hop lengths on a complete graph all distances are 1, so W1 is the total variation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from geoattn.graph.build import Graphs

__all__ = ["all_hops_one", "total_variation"]


def all_hops_one(graphs: Graphs) -> bool:
    """Whether every two tokens that have an edge at all are one hop apart, in every graph."""
    if graphs.convention.length != "hop" or graphs.convention.alpha == "limit":
        return False
    edge = np.isfinite(graphs.lengths)
    present = np.asarray(edge.any(axis=-1) | edge.any(axis=-2))
    count = present.sum(axis=-1)
    if not (edge.sum(axis=(-1, -2)) == count * (count - 1)).all():
        return False
    # mass on a token without edges cannot be moved at all: leave that to the solver
    stranded = np.where(present[:, :, None] & ~present[:, None, :], graphs.measures, 0.0)
    return not stranded.any()


def total_variation(
    measures: Float[np.ndarray, "g n n"], pairs: Int[np.ndarray, "e 2"], offsets: Int[np.ndarray, " g1"]
) -> Float[np.ndarray, " e"]:
    """TV(m_x, m_y) = sum |m_x - m_y| / 2 of each pair. O(n) a pair."""
    result = np.empty(len(pairs))
    for g in range(len(offsets) - 1):
        for start in range(offsets[g], offsets[g + 1], 4096):  # blocks keep the difference small in memory
            stop = min(start + 4096, offsets[g + 1])
            x, y = pairs[start:stop].T
            result[start:stop] = np.abs(measures[g, x] - measures[g, y]).sum(axis=-1) / 2
    return result
