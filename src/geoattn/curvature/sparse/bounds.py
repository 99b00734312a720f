"""Bounds of the curvature of a sparse graph: the exact value and what its certificate leaves open."""

from __future__ import annotations

from typing import Any

from geoattn._version import __version__
from geoattn.curvature.bounds import CurvatureBounds
from geoattn.curvature.sparse.ollivier import sparse_ollivier_ricci
from geoattn.graph.convention import Convention

__all__ = ["sparse_curvature_bounds"]


def sparse_curvature_bounds(graph: Any, convention: Convention, *, edges: Any, mask: Any, seed: int) -> CurvatureBounds:
    """Lower <= kappa <= upper of each edge, as far apart as the duality gap."""
    exact = sparse_ollivier_ricci(graph, convention, edges=edges, mask=mask, seed=seed)
    lower, upper = exact.lower, exact.upper
    floored = exact.summary_of_status().get("below_floor", 0)
    if floored:
        zero = exact.kappa == 0.0
        lower[zero], upper[zero] = 0.0, 0.0
    return CurvatureBounds(
        lower, upper, exact.status, convention, exact.shape, exact.index, exact.edges,
        {**exact.settings, "geoattn": __version__},
    )  # fmt: skip
