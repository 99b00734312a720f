"""Estimates with intervals that a profile's table does not hold: differences and trends over the layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from geoattn._core.errors import GeoattnError
from geoattn.profiles.result import Key, Profile

__all__ = ["Estimate", "by_head", "by_layer", "depth_change", "depth_trend", "of_row", "ratios", "variance_link"]

_FEWEST_LAYERS = 4  # for a rank correlation


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; NaN where there is none."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    @property
    def sign(self) -> int:
        """1 or -1 when the interval lies on one side of 0, else 0: no clear sign."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return int(self.low > 0) - int(self.high < 0)
        return 0


_known: WeakKeyDictionary[Profile, dict[tuple[Any, ...], Estimate]] = WeakKeyDictionary()


def _rows(profile: Profile) -> dict[tuple[Any, ...], Estimate]:
    """The table by lens, convention, statistic, layer and head; a page asks for hundreds of its rows."""
    if profile not in _known:
        t = profile.table
        places = zip(t.lens, t.convention, t.statistic, _whole(t.layer), _whole(t["head"]), strict=True)
        values = zip(t.value, t.lower, t.upper, strict=True)
        _known[profile] = {place: Estimate(*map(float, v)) for place, v in zip(places, values, strict=True)}
    return _known[profile]


def _whole(column: Any) -> list[int | None]:
    return [None if missing else int(v) for v, missing in zip(column, column.isna(), strict=True)]


def of_row(
    profile: Profile, statistic: str, convention: str, layer: int | None = None, head: int | None = None,
    lens: str = "curvature",
) -> Estimate:  # fmt: skip
    """A row of the table; without a layer the whole model, without a head the whole layer."""
    found = _rows(profile).get((lens, convention, statistic, layer, head))
    if found is None:
        raise GeoattnError(
            f"no row for {lens}, {convention or 'no convention'}, {statistic}, layer {layer}, head {head}."
        )
    return found


def by_layer(profile: Profile, statistic: str, convention: str, lens: str = "curvature") -> list[Estimate]:
    """The rows of all layers, first to last."""
    found = (_rows(profile).get((lens, convention, statistic, k, None)) for k in range(len(profile.layers)))
    return [estimate for estimate in found if estimate is not None]


def by_head(
    profile: Profile, statistic: str, convention: str, lens: str = "curvature"
) -> dict[tuple[int, int], Estimate]:
    """The rows of all heads, by (layer, head)."""
    places = [(k, h) for k, count in enumerate(profile.settings["heads"]) for h in range(count)]
    found = {place: _rows(profile).get((lens, convention, statistic, *place)) for place in places}
    return {place: estimate for place, estimate in found.items() if estimate is not None}


def ratios(
    profile: Profile, layers: Sequence[int], statistic: str, convention: str, lens: str = "curvature"
) -> Float[np.ndarray, "l r"]:
    """The statistic of each layer in each resampling of the bootstrap."""
    parts = [profile.resampled[Key(k, lens, convention, statistic)] for k in layers]
    if profile.settings["samples"] < 2:
        return np.full((len(parts), len(parts[0][0])), np.nan)
    return np.array([np.where(c > 0, t / np.where(c > 0, c, 1.0), np.nan) for t, c in parts])


def depth_change(profile: Profile, convention: str, statistic: str = "distance_to_one") -> Estimate | None:
    """Last layer minus first, on the same resamplings; None for one layer."""
    last = len(profile.layers) - 1
    if last < 1:
        return None
    first, end = (of_row(profile, statistic, convention, k).value for k in (0, last))
    resampled = ratios(profile, (0, last), statistic, convention)
    return _estimate(end - first, resampled[1] - resampled[0], profile)


def depth_trend(profile: Profile, convention: str, statistic: str = "distance_to_one") -> Estimate | None:
    """Spearman's rank correlation of a statistic with the number of the layer.

    None for fewer than four layers, and where all layers have the same value.
    """
    values = [e.value for e in by_layer(profile, statistic, convention)]
    if len(values) < _FEWEST_LAYERS or not np.isfinite(values).all() or len(set(values)) == 1:
        return None
    depth = np.arange(len(values), dtype=np.float64)[:, None]
    resampled = ratios(profile, range(len(values)), statistic, convention)
    return _estimate(_spearman(depth, np.array(values)[:, None])[0], _spearman(depth, resampled), profile)


def variance_link(profile: Profile, convention: str) -> Estimate | None:
    """Spearman's rank correlation, over the layers, of the variance of the weights and the mean curvature."""
    values = [
        [e.value for e in by_layer(profile, *what)] for what in (("mean", convention), ("variance", "", "weights"))
    ]
    count = len(values[0])
    if count < _FEWEST_LAYERS or len(values[1]) != count or not np.isfinite(values).all():
        return None
    mean = ratios(profile, range(count), "mean", convention)
    variance = ratios(profile, range(count), "variance", "", "weights")
    mine, weights = (np.array(v)[:, None] for v in values)
    return _estimate(_spearman(weights, mine)[0], _spearman(variance, mean), profile)


def _spearman(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, " r"]:
    """Of the columns, ties shared; NaN for a column with a NaN, as of an empty resampling, or without spread."""
    a, b = (rankdata(x, axis=0, nan_policy="propagate") for x in np.broadcast_arrays(a, b))
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    scale = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return np.divide((a * b).sum(axis=0), scale, out=np.full(len(scale), np.nan), where=scale > 0)


def _estimate(value: float, resampled: np.ndarray, profile: Profile) -> Estimate:
    if profile.settings["samples"] < 2:
        return Estimate(float(value))
    level = float(profile.settings["level"])
    seen = resampled[np.isfinite(resampled)]
    if len(seen) < len(resampled) / 2:
        return Estimate(float(value))
    low, high = np.quantile(seen, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high))
