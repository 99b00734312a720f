"""Two arms called by the order of their curvature, for claims about more and less positive curvature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from geoattn.studies.engine.contrasts import CONVENTIONS, Number, Runs, contrast_findings
from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.pooling import t_test

__all__ = ["HIGHER", "LOWER", "by_curvature"]

HIGHER, LOWER = "higher curvature", "lower curvature"


def by_curvature(
    runs: Runs,
    arms: tuple[str, str],
    curvature: Callable[[Any, str], float],
    numbers: Mapping[str, Number],
    contrasts: Mapping[str, tuple[str, str]],
) -> list[Finding]:
    """Each of the ``contrasts`` (by number: HIGHER and LOWER in either order), under each convention.

    Which arm has the higher curvature is measured, not assumed: it may differ between data sets and conventions. A data
    set counts where the 95 % interval of the difference over seeds shows an order. Where only one does, it is what
    there is to pool.
    """
    found = []
    for convention in CONVENTIONS:
        order = _order(runs, arms, lambda result, c=convention: curvature(result, c))

        def called(config: dict[str, Any], order: dict[tuple[str, str], str] = order) -> str | None:
            return order.get((runs.data(config), runs.arm(config)))

        pairs = [(config, result) for config, result in runs.pairs if called(config) is not None]
        ordered = replace(runs, pairs=pairs, arm=lambda config, called=called: str(called(config)))
        for name, contrast in contrasts.items():
            rows = contrast_findings(ordered, {name: numbers[name]}, (contrast,))
            if len(rows) == 1:
                rows.append(replace(rows[0], data="pooled"))
            found += [replace(row, convention=convention) for row in rows]
    return found


def _order(runs: Runs, arms: tuple[str, str], curvature: Callable[[Any], float]) -> dict[tuple[str, str], str]:
    """HIGHER or LOWER by data set and arm, where the seeds show an order."""
    order: dict[tuple[str, str], str] = {}
    first, second = arms
    for data in runs.names():
        differences = runs.differences(data, first, second, curvature)
        if len(differences) < 2:
            continue
        seen = t_test(differences)
        if seen.low > 0 or seen.high < 0:
            names = (HIGHER, LOWER) if seen.low > 0 else (LOWER, HIGHER)
            order |= {(data, first): names[0], (data, second): names[1]}
    return order
