"""The geometry of transformer attention: curvature, with certificates and gradients."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoattn._version import __version__

if TYPE_CHECKING:
    from geoattn.curvature.loss import curvature_loss as curvature_loss
    from geoattn.curvature.loss import edge_curvature as edge_curvature
    from geoattn.curvature.ollivier import ollivier_ricci as ollivier_ricci
    from geoattn.curvature.result import Curvature as Curvature
    from geoattn.curvature.transport import Status as Status
    from geoattn.errors import DegenerateCurvatureWarning as DegenerateCurvatureWarning
    from geoattn.errors import GeoattnError as GeoattnError
    from geoattn.errors import GeoattnWarning as GeoattnWarning
    from geoattn.graph.convention import Convention as Convention

# Public name -> module: loaded when first used, so that `geoattn --help` does not wait for torch.
_HOMES = {
    "Convention": "geoattn.graph.convention",
    "Curvature": "geoattn.curvature.result",
    "DegenerateCurvatureWarning": "geoattn.errors",
    "GeoattnError": "geoattn.errors",
    "GeoattnWarning": "geoattn.errors",
    "Status": "geoattn.curvature.transport",
    "curvature_loss": "geoattn.curvature.loss",
    "edge_curvature": "geoattn.curvature.loss",
    "ollivier_ricci": "geoattn.curvature.ollivier",
}

__all__ = ["__version__", *sorted(_HOMES)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'geoattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
