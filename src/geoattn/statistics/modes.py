"""Where the two modes of a distribution are, and how much lies in each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter1d

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.statistics.unimodality import knots_of_counts, knots_of_values

__all__ = ["TwoModes", "two_modes"]

_GRID = 2048
_TAIL = 0.001  # of the values on either side lie beyond the grid, at its ends


@dataclass(frozen=True, repr=False)
class TwoModes(Displayed):
    """The last two modes that remain of a Gaussian kernel density estimate as its bandwidth grows.

    ``bandwidth`` is the critical bandwidth, the largest at which there are two modes with a ``least`` share of the
    values each (Silverman's, who has no such share, stops at any outlier); ``spread`` the standard deviation on the
    grid. ``low`` < ``valley`` < ``high`` are the places, ``share_above`` the mass above the valley,
    ``depth`` = 1 - density(valley) / density(smaller mode) a little below the critical bandwidth (0.8 of it).

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import two_modes
    >>> rng = np.random.default_rng(0)
    >>> found = two_modes(np.concatenate([rng.normal(0, 0.1, 300), rng.normal(1, 0.1, 100)]))
    >>> found.low < found.valley < found.high, round(found.share_above, 2)
    (True, 0.25)
    """

    low: float
    valley: float
    high: float
    share_above: float
    depth: float
    bandwidth: float
    spread: float
    least: float


def two_modes(values: Any = None, *, counts: Any = None, least: float = 0.05) -> TwoModes:
    """Find two modes by smoothing until just two are left.

    Every sample has two modes at a small enough bandwidth: whether they mean anything is for `bimodality` to say.
    Arguments as there. The grid has 2,048 points between the 0.001 and 0.999 quantiles; what lies beyond counts at
    the ends. A mode that holds less than ``least`` of the values, from valley to valley, is part of its neighbour.
    An error when there are no two. Reference: Silverman, JRSS B 43, 1981.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.statistics import two_modes
    >>> rng = np.random.default_rng(0)
    >>> found = two_modes(np.concatenate([rng.normal(0, 0.1, 3000), rng.normal(0.8, 0.1, 1000)]))
    >>> abs(found.low) < 0.1, abs(found.high - 0.8) < 0.1, round(found.share_above, 2)
    (True, True, 0.25)
    """
    if (values is None) == (counts is None):
        raise GeoattnError("give either values or counts.")
    if not 0 <= least < 0.5:
        raise GeoattnError(f"least must be a share from 0 to below 0.5; got {least!r}.")
    x, _, at, _ = knots_of_values(values) if counts is None else knots_of_counts(counts)
    if counts is None:
        ends = x[np.searchsorted(at, [_TAIL, 1 - _TAIL]).clip(0, len(x) - 1)]
    else:
        ends = np.interp([_TAIL, 1 - _TAIL], at, x)
    if not ends[1] > ends[0]:
        raise GeoattnError(f"there are no two modes to find: all but {2 * _TAIL:g} of the values equal {ends[0]:.6g}.")
    borders = np.linspace(float(ends[0]), float(ends[1]), _GRID + 1)
    # A step function for values, a polygon for counts.
    level = np.interp(borders, x, at) if counts is not None else np.concatenate([[0], at])[np.searchsorted(x, borders)]
    level[0], level[-1] = 0.0, 1.0
    mass, middle, step = np.diff(level), (borders[1:] + borders[:-1]) / 2, borders[1] - borders[0]
    mean = (mass * middle).sum()
    spread = float(np.sqrt((mass * (middle - mean) ** 2).sum()))
    small = _critical(mass, least)
    valley = _valleys(_density(mass, small), mass, least)[0]
    density = _density(mass, 0.8 * small)
    low, high = int(density[:valley].argmax()), valley + int(density[valley:].argmax())
    valley = low + int(density[low : high + 1].argmin())
    depth = 1 - density[valley] / min(density[low], density[high])
    return TwoModes(
        low=float(middle[low]), valley=float(middle[valley]), high=float(middle[high]),
        share_above=float(mass[valley + 1 :].sum() + mass[valley] / 2), depth=float(depth),
        bandwidth=small * float(step), spread=spread, least=least,
    )  # fmt: skip


def _critical(mass: Float[np.ndarray, " k"], least: float) -> float:
    """The largest bandwidth with two modes, in steps of the grid: down a ladder, then by halving its last rung."""

    def enough(bandwidth: float) -> bool:
        return len(_valleys(_density(mass, bandwidth), mass, least)) > 0

    large = float(_GRID)
    for small in np.geomspace(_GRID, 0.25, 150)[1:]:
        if enough(float(small)):
            break
        large = float(small)
    else:
        raise GeoattnError(
            f"there are no two modes to find: one at any bandwidth, or none else with {least:g} of them."
        )
    small = float(small)
    while large / small > 1.001:
        half = float(np.sqrt(small * large))
        small, large = (half, large) if enough(half) else (small, half)
    return small


def _density(mass: Float[np.ndarray, " k"], bandwidth: float) -> Float[np.ndarray, " k"]:
    """Nothing beyond the grid: an edge is not a mirror, which would make modes of its own."""
    return gaussian_filter1d(mass, bandwidth, mode="constant", truncate=6.0)


def _peaks(density: Float[np.ndarray, " k"]) -> np.ndarray:
    """Indices of the maxima; of a flat one the first. Ripples of rounding do not count."""
    tall = np.round(density / density.max(), 12)
    kept = np.concatenate([[True], np.diff(tall) != 0])
    place, value = np.flatnonzero(kept), np.concatenate([[-1.0], tall[kept], [-1.0]])
    return place[(value[1:-1] > value[:-2]) & (value[1:-1] > value[2:])]


def _valleys(density: Float[np.ndarray, " k"], mass: Float[np.ndarray, " k"], least: float) -> list[int]:
    """Where the density divides into modes of at least that mass; the lightest one joins over its higher valley."""
    peaks = _peaks(density)
    valleys = [int(a + density[a:b].argmin()) for a, b in itertools.pairwise(peaks)]
    total = np.concatenate([[0.0], np.cumsum(mass)])
    while valleys:
        shares = np.diff(total[[0, *valleys, len(mass)]])
        k = int(shares.argmin())
        if shares[k] >= least:
            break
        around = [j for j in (k - 1, k) if 0 <= j < len(valleys)]
        valleys.pop(max(around, key=lambda j: density[valleys[j]]))
    return valleys
