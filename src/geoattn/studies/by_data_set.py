"""Where a pooled effect does not decide: the data sets or models whose own intervals leave out 0, and on which side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from geoattn.studies.claims import Endpoint
from geoattn.studies.engine.pooling import critical
from geoattn.studies.small_effects import freedom_of

__all__ = ["Sides", "widened_sides"]

_LEVEL = 0.05
_NAMED = 3  # data sets that are named; more are counted


@dataclass(frozen=True)
class Sides:
    """The data sets or models above 0 and below 0, out of ``count``.

    >>> print(Sides(("mnist",), ("cifar10",), 3))
    above 0 on mnist, below 0 on cifar10
    """

    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        named = (("above", self.above), ("below", self.below))
        return ", ".join(f"{side} 0 on {self._named(names)}" for side, names in named if names)

    def _named(self, names: tuple[str, ...]) -> str:
        if len(names) == self.count:
            return f"all {self.count}"
        return " and ".join(names) if self.count <= _NAMED else f"{len(names)} of {self.count}"


def widened_sides(findings: Iterable[dict[str, Any]], end: Endpoint) -> Sides:
    """The sides of what a pooled endpoint is the mean of. All k intervals together miss in at most 5 % of the cases.

    Where a study has findings of a model on each data set and of the model on all of them, those of the model count.

    Examples
    --------
    >>> from geoattn.studies import by_data_set, claims
    >>> end = next(c.endpoint for c in claims.claims() if c.id == "R30")
    >>> common = {"number": end.number, "more": end.more, "less": end.less, "freedom": 4}
    >>> widened_sides([{**common, "data": "mnist", "low": 0.5, "high": 1.0}], end).above
    ('mnist',)
    """
    if end.data != "pooled":
        return Sides()
    wanted = (end.number, end.more, end.less, end.convention)
    mine = {
        str(f["data"]): f
        for f in findings
        if (f.get("number"), f.get("more"), f.get("less"), f.get("convention")) == wanted and f["data"] != "pooled"
    }
    whole = {data: f for data, f in mine.items() if data.partition(" on ")[0] not in mine or " on " not in data}
    found = {data: f for data, f in whole.items() if f["low"] is not None and f["high"] is not None}
    above, below = [], []
    for data, f in found.items():
        middle, half = (f["low"] + f["high"]) / 2 + end.margin, (f["high"] - f["low"]) / 2
        half *= critical(freedom_of(f), _LEVEL / len(found)) / critical(freedom_of(f))
        if middle > half:
            above.append(data)
        elif middle < -half:
            below.append(data)
    return Sides(tuple(above), tuple(below), len(found))
