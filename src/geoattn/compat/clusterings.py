"""Clusterings by cutting the edges that Ricci flow made long, as GraphRicciCurvature finds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.compat.edges import read_lengths
from geoattn.curvature.communities import cut_scan, modularity_drops

__all__ = ["all_clusterings"]


def all_clusterings(
    graph: Any, weight: str, cutoff_step: float, drop_threshold: float
) -> list[tuple[float, dict[Any, int]]]:
    """(cutoff, node -> community) at each cutoff from which modularity drops, from large cutoffs to small ones."""
    lengths, names = read_lengths(graph, weight)
    row = lengths.row
    once = row < lengths.column
    scan = cut_scan(
        row[once], lengths.column[once], lengths.value[once], np.ones(len(names), dtype=bool), names, cutoff_step, None
    )
    drops = modularity_drops(np.array([c.modularity for c in scan]), drop_threshold)
    if not drops:
        raise GeoattnError("no cutoff point found: let the flow run longer, or lower drop_threshold.")
    return [(scan[k].cutoff, scan[k].by_node()) for k in drops]
