"""From sums to the tidy table of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn.profile.histogram import quantiles
from geoattn.profile.lenses import Extremes
from geoattn.profile.tally import Key, Sums, Tally, interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "make_table"]

COLUMNS = (
    "layer", "name", "head", "lens", "convention", "statistic", "value", "lower", "upper", "samples", "count",
)  # fmt: skip
_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def make_table(
    tally: Tally, extremes: Mapping[str, Mapping[int, Extremes]], layers: Sequence[str], samples: int, level: float
) -> pd.DataFrame:
    """Rows by head, by layer, and for the whole model, which have no layer; a layer's rows have no head."""
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    whole: dict[tuple[str, str, str], list[Sums]] = {}
    for key, sums in tally.sums.items():
        place = (key.lens, key.convention, key.statistic)
        whole.setdefault(place, []).append(sums)
        for head in (*range(len(sums.total)), None):
            part = slice(None) if head is None else slice(head, head + 1)
            rows.append((key.layer, layers[key.layer], head, *place, *_estimate([sums], part, samples, level)))
    for place, parts in whole.items():
        rows.append((None, "", None, *place, *_estimate(parts, slice(None), samples, level)))
    for convention, by_layer in extremes.items():
        for layer, seen in by_layer.items():
            count = tally.sums[Key(layer, "curvature", convention, "mean")]
            for head in (*range(len(seen.low)), None):
                part = slice(None) if head is None else slice(head, head + 1)
                for statistic, value in _spread(seen, count, part):
                    nothing = (value, np.nan, np.nan, samples, int(count.count[part].sum()))
                    rows.append((layer, layers[layer], head, "curvature", convention, statistic, *nothing))
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS))
    table["layer"], table["head"] = table["layer"].astype("Int64"), table["head"].astype("Int64")
    order = ["lens", "convention", "layer", "head", "statistic"]
    return table.sort_values(order, kind="stable", na_position="first").reset_index(drop=True)


def _estimate(parts: list[Sums], heads: slice, samples: int, level: float) -> tuple[float, float, float, int, int]:
    total = sum(float(s.total[heads].sum()) for s in parts)
    count = sum(float(s.count[heads].sum()) for s in parts)
    low = high = float("nan")
    if samples > 1:
        resampled = [(s.totals[heads].sum(axis=0), s.counts[heads].sum(axis=0)) for s in parts]
        totals, counts = np.sum(resampled, axis=0)
        low, high = interval(totals, counts, level)
    return (total / count if count else float("nan")), low, high, samples, int(count)


def _spread(seen: Extremes, sums: Sums, part: slice) -> Iterator[tuple[str, float]]:
    """Statistics that have no interval: the spread, the extremes, quantiles to within a bin of the histogram."""
    counts = seen.histogram[part].sum(axis=0)
    low, high = seen.low[part], seen.high[part]
    some = bool(np.isfinite(low).any())
    yield "min", float(np.nanmin(low)) if some else float("nan")
    yield "max", float(np.nanmax(high)) if some else float("nan")
    count = sums.count[part].sum()
    if count:
        mean = sums.total[part].sum() / count
        yield "std", float(np.sqrt(max(0.0, seen.square[part].sum() / count - mean**2)))
    else:
        yield "std", float("nan")
    for q, value in zip(_LEVELS, quantiles(counts, _LEVELS), strict=True):
        yield f"q{round(100 * q):02d}", float(value)
