"""The geometry of transformer attention: curvature, with certificates and gradients."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoattn._version import __version__

if TYPE_CHECKING:
    from geoattn.curvature.bounds import CurvatureBounds as CurvatureBounds
    from geoattn.curvature.bounds import curvature_bounds as curvature_bounds
    from geoattn.curvature.communities import RicciCommunities as RicciCommunities
    from geoattn.curvature.communities import ricci_communities as ricci_communities
    from geoattn.curvature.flow import RicciFlow as RicciFlow
    from geoattn.curvature.flow import ricci_flow as ricci_flow
    from geoattn.curvature.forman import FormanCurvature as FormanCurvature
    from geoattn.curvature.forman import forman_ricci as forman_ricci
    from geoattn.curvature.loss import curvature_loss as curvature_loss
    from geoattn.curvature.loss import edge_curvature as edge_curvature
    from geoattn.curvature.ollivier import ollivier_ricci as ollivier_ricci
    from geoattn.curvature.result import Curvature as Curvature
    from geoattn.curvature.sinkhorn import SinkhornCurvature as SinkhornCurvature
    from geoattn.curvature.sinkhorn import sinkhorn_ricci as sinkhorn_ricci
    from geoattn.curvature.transport import Status as Status
    from geoattn.errors import DegenerateCurvatureWarning as DegenerateCurvatureWarning
    from geoattn.errors import GeoattnError as GeoattnError
    from geoattn.errors import GeoattnWarning as GeoattnWarning
    from geoattn.graph.convention import Convention as Convention

# Public name -> module: loaded when first used, so that `geoattn --help` does not wait for torch.
_HOMES = {
    "Convention": "geoattn.graph.convention",
    "Curvature": "geoattn.curvature.result",
    "CurvatureBounds": "geoattn.curvature.bounds",
    "DegenerateCurvatureWarning": "geoattn.errors",
    "FormanCurvature": "geoattn.curvature.forman",
    "GeoattnError": "geoattn.errors",
    "GeoattnWarning": "geoattn.errors",
    "RicciCommunities": "geoattn.curvature.communities",
    "RicciFlow": "geoattn.curvature.flow",
    "SinkhornCurvature": "geoattn.curvature.sinkhorn",
    "Status": "geoattn.curvature.transport",
    "curvature_bounds": "geoattn.curvature.bounds",
    "curvature_loss": "geoattn.curvature.loss",
    "edge_curvature": "geoattn.curvature.loss",
    "forman_ricci": "geoattn.curvature.forman",
    "ollivier_ricci": "geoattn.curvature.ollivier",
    "ricci_communities": "geoattn.curvature.communities",
    "ricci_flow": "geoattn.curvature.flow",
    "sinkhorn_ricci": "geoattn.curvature.sinkhorn",
}

__all__ = ["__version__", *sorted(_HOMES)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'geoattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
