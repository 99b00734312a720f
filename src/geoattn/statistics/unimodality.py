"""Is a distribution of curvature values unimodal? Hartigans' dip, of a sample or of a histogram."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import isotonic_regression

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.statistics.histograms import EDGES

__all__ = ["Bimodality", "bimodality", "dip", "knots_of_counts", "knots_of_values"]

_LARGEST_NULL = 500  # values of a simulated sample; above this the null goes by sqrt(n) dip = c (1 - 0.59 / sqrt(n)),
_APPROACH = 0.59  # which fits the tables of Hartigan and Hartigan from 100 to 10,000 values
_Line = Float[np.ndarray, " k"]


@dataclass(frozen=True, repr=False)
class Bimodality(Displayed):
    r"""The dip and its significance.

    ``dip`` is :math:`D = \min_U \sup_x |F(x) - U(x)|` over unimodal distribution functions U; from 1/(2n), as unimodal
    as n values can be, to 1/4, two points. ``p_value`` is how often ``independent`` values from a uniform distribution,
    the hardest unimodal one, dip as much, adjusted for ``n``. A small one speaks against one mode; it does not count
    modes. ``modal`` is the interval in which the closest unimodal distribution has its mode.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import bimodality
    >>> rng = np.random.default_rng(0)
    >>> found = bimodality(np.concatenate([rng.normal(0, 0.1, 300), rng.normal(1, 0.1, 100)]))
    >>> found.n, found.dip > 0.05, found.p_value < 0.001
    (400, True, True)
    """

    dip: float
    p_value: float
    n: int
    independent: int
    modal: tuple[float, float]
    settings: dict[str, Any] = field(default_factory=dict)


def bimodality(
    values: Any = None, *, counts: Any = None, independent: int | None = None, resamples: int = 2000, seed: int = 0
) -> Bimodality:
    r"""Test one mode against more, by the dip with a parametric bootstrap.

    Parameters
    ----------
    values
        (n,) curvatures; NaN is an error. Or instead:
    counts
        (bins,) how many values fall into the bins of `geoattn.statistics.histograms.EDGES`, taken as spread evenly over
        each bin: two modes closer than a bin, 0.01, are one. The open bin below -1e6 is closed as wide as its
        neighbour.
    independent
        How many independent values there are, by default all. Edges of one graph share tokens, and heads and layers of
        one input are not independent either, and large samples make any ripple significant: pass `effective_size` of
        the values by input. The number of inputs itself is safe, but so small that nothing is seen.
    resamples
        Of the uniform distribution; p is at least 1 / (resamples + 1).

    Notes
    -----
    O(n log n) for the dip. The null is simulated with no more than 500 values and scaled to ``independent``. Ties are
    jumps of F, of which U may have one, at its mode: a spike at 0 or 1 on top of one mode is still one mode.
    Do not round the values.
    A second mode with a share s of the values dips by at most s / 2: a few percent go unseen in small samples.
    Reference: Hartigan and Hartigan, The dip test of unimodality, Annals of Statistics 13, 1985.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import bimodality
    >>> rng = np.random.default_rng(0)
    >>> one, two = rng.normal(size=400), np.concatenate([rng.normal(size=200), rng.normal(4, 1, 200)])
    >>> bimodality(one).p_value > 0.1, bimodality(two).p_value < 0.001
    (True, True)
    """
    if (values is None) == (counts is None):
        raise GeoattnError("give either values or counts.")
    if resamples < 100:
        raise GeoattnError(f"resamples must be at least 100; got {resamples!r}.")
    x, low, high, n = knots_of_values(values) if counts is None else knots_of_counts(counts)
    count = n if independent is None else independent
    if isinstance(count, bool) or not isinstance(count, int) or not 4 <= count <= n:
        raise GeoattnError(f"independent must be an integer from 4 to the {n} values; got {independent!r}.")
    found, modal = _dip(x, low, high)
    found = max(found, 0.5 / n)
    size = min(count, _LARGEST_NULL)
    root, small = np.sqrt(count), np.sqrt(size)
    scaled = found * root / small * (1 - _APPROACH / small) / (1 - _APPROACH / root)
    p = (1 + int((_null(size, resamples, seed) >= scaled - 1e-12).sum())) / (resamples + 1)
    settings = {"resamples": resamples, "seed": seed, "null": f"uniform, {size} values", "binned": counts is not None}
    return Bimodality(found, p, n, count, modal, settings)


def dip(values: Any) -> float:
    """Hartigans' dip of a sample.

    Examples
    --------
    >>> from geoattn.statistics import dip
    >>> dip([0.0, 1.0, 2.0, 3.0]), round(dip([0.0, 0.001, 0.9999, 1.0]), 3)
    (0.125, 0.25)
    """
    x, low, high, n = knots_of_values(values)
    return max(_dip(x, low, high)[0], 0.5 / n)


def knots_of_values(values: Any) -> tuple[_Line, _Line, _Line, int]:
    """The different values x, F just before and at each of them, and n."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise GeoattnError(
            f"values must be finite numbers (n,); got {array.dtype} {array.shape}"
            + (", not all finite. Curvature.values() leaves out NaN." if array.dtype.kind == "f" else ".")
        )
    if len(array) < 4:
        raise GeoattnError(f"at least 4 values are needed to look for two modes; got {len(array)}.")
    x, times = np.unique(array.astype(np.float64), return_counts=True)
    high = np.cumsum(times) / len(array)
    return x, np.concatenate([[0.0], high[:-1]]), high, len(array)


def knots_of_counts(counts: Any) -> tuple[_Line, _Line, _Line, int]:
    """The borders of the bins that matter, F at each of them (twice), and n."""
    array = np.asarray(counts)
    bins = len(EDGES) - 1
    if array.shape != (bins,) or array.dtype.kind not in "iu" or (array < 0).any():
        raise GeoattnError(f"counts must be {bins} non-negative integers, by EDGES; got {array.dtype} {array.shape}.")
    n = int(array.sum())
    if n < 4:
        raise GeoattnError(f"at least 4 values are needed to look for two modes; got {n}.")
    edges = EDGES.copy()
    edges[0] = 2 * edges[1] - edges[2]
    filled = np.flatnonzero(array)
    part = slice(filled[0], filled[-1] + 1)
    level = np.concatenate([[0.0], np.cumsum(array[part]) / n])
    return edges[part.start : part.stop + 1], level, level, n


def _dip(x: _Line, low: _Line, high: _Line) -> tuple[float, tuple[float, float]]:
    """Hartigans' algorithm AS 217, with ``low`` and ``high`` the limits of F from the left and from the right.

    U is G + D on the left and L - D on the right of the mode: G the greatest convex minorant, L the least concave
    majorant of F on an interval that closes in on the mode. Twice the dip is in ``best``.
    """
    a, b, best = 0, len(x) - 1, 0.0
    while True:
        here = slice(a, b + 1)
        convex, touch_low = _convex(x[here], low[here])
        concave, touch_high = _convex(x[here], -high[here])
        concave = -concave
        gap = concave - convex
        at_low, at_high = touch_low[gap[touch_low].argmax()], touch_high[gap[touch_high].argmax()]
        if gap[at_low] > gap[at_high]:
            d, left = gap[at_low], at_low
            right = touch_high[np.searchsorted(touch_high, at_low)]
        else:
            d, right = gap[at_high], at_high
            left = touch_low[np.searchsorted(touch_low, at_high, side="right") - 1]
        if d <= best + 1e-13:
            break
        # Not at the ends themselves: U may jump at its mode. A jump elsewhere keeps d above it, and the search goes on.
        before = (high[here] - convex)[:left].max(initial=0.0)
        after = (concave - low[here])[right + 1 :].max(initial=0.0)
        best = max(best, float(before), float(after))
        if a == b:
            break
        a, b = a + int(left), a + int(right)
    return best / 2, (float(x[a]), float(x[b]))


def _convex(x: _Line, f: _Line) -> tuple[_Line, Int[np.ndarray, " v"]]:
    """Greatest convex minorant of the points (x, f) at x, and its corners, where it touches them.

    Its slopes are the isotonic regression of the slopes of f.
    """
    if len(x) == 1:
        return f, np.array([0])
    width = np.diff(x)
    corners = np.asarray(isotonic_regression(np.diff(f) / width, weights=width).blocks, dtype=np.int64)
    return np.interp(x, x[corners], f[corners]), corners


@lru_cache(maxsize=32)
def _null(n: int, resamples: int, seed: int) -> Float[np.ndarray, " r"]:
    """Dips of uniform samples."""
    rng = np.random.default_rng([seed, n])
    level = np.arange(n + 1) / n
    dips = np.array([_dip(np.sort(rng.random(n)), level[:-1], level[1:])[0] for _ in range(resamples)])
    dips.setflags(write=False)
    return dips
