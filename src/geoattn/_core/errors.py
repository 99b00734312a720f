"""The one base error and the one base warning of geoattn."""

__all__ = ["DegenerateCurvatureWarning", "GeoattnError", "GeoattnWarning"]


class GeoattnError(ValueError):
    """An input that cannot be used, or a computation that cannot be done.

    The message says what was expected, what came, where, and what to do. The class derives from ``ValueError``.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> try:
    ...     ga.ollivier_ricci(np.ones((2, 3)))
    ... except ga.GeoattnError as error:
    ...     print(error)
    attention must have shape (..., n, n); got (2, 3). Cross-attention between two sequences is not a graph ...
    """


class GeoattnWarning(UserWarning):
    """The base of all warnings of geoattn.

    Examples
    --------
    One line turns all of them into errors:

    >>> import warnings, geoattn as ga
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ga.GeoattnWarning)
    >>> issubclass(ga.DegenerateCurvatureWarning, ga.GeoattnWarning)
    True
    """


class DegenerateCurvatureWarning(GeoattnWarning):
    """A warning that the curvature values hardly depend on the attention. The message says why.

    Examples
    --------
    All rows of uniform attention are equal, so that every edge has curvature 1:

    >>> import warnings, numpy as np, geoattn as ga
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     result = ga.ollivier_ricci(np.full((4, 4), 0.25))
    >>> [warning.category.__name__ for warning in caught], result.degenerate
    (['DegenerateCurvatureWarning'], '98% of the values lie within 0 of each other, around 1: all rows of ...')
    """
