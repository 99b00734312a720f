"""The one base error and the one base warning of geoattn."""

__all__ = ["DegenerateCurvatureWarning", "GeoattnError", "GeoattnWarning"]


class GeoattnError(ValueError):
    """Bad input or a computation that cannot be done: what was expected, what came, where, what to do."""


class GeoattnWarning(UserWarning):
    """Base of all warnings of geoattn."""


class DegenerateCurvatureWarning(GeoattnWarning):
    """The curvature values say next to nothing about the attention; the message says why."""
