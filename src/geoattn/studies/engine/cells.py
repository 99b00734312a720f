"""Trials put into cells of a table by what they have in common, and claims judged over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.statistics.association import rank_correlation
from geoattn.studies.engine.finding import Finding, interval, judge

__all__ = ["Pairs", "by", "judge_association", "judge_with_trimmed", "matched", "mean_and_half", "values"]

Pairs = list[tuple[dict[str, Any], Any]]
Number = Callable[[Any], float]


def by(pairs: Pairs, *names: str) -> dict[tuple[Any, ...], Pairs]:
    """The trials by the values of some settings, in the order of their first trial.

    >>> list(by([({"data": "a", "seed": 0}, 1), ({"data": "b", "seed": 0}, 2)], "data"))
    [('a',), ('b',)]
    """
    cells: dict[tuple[Any, ...], Pairs] = {}
    for config, result in pairs:
        cells.setdefault(tuple(config[name] for name in names), []).append((config, result))
    return cells


def values(pairs: Pairs, number: Number) -> np.ndarray:
    """One number per trial, in the order of seeds."""
    return np.array([float(number(result)) for _, result in sorted(pairs, key=lambda pair: pair[0]["seed"])])


def matched(first: Pairs, second: Pairs, number: Number) -> np.ndarray:
    """number(second) - number(first), seed by seed; both must have the same seeds."""
    seeds = [sorted(config["seed"] for config, _ in part) for part in (first, second)]
    if seeds[0] != seeds[1]:
        raise GeoattnError(f"trials are compared seed by seed; one side has {seeds[0]}, the other {seeds[1]}.")
    return values(second, number) - values(first, number)


def mean_and_half(numbers: np.ndarray) -> tuple[float, float | None]:
    """Mean and half the width of the 95 % interval, None for one trial."""
    mean, low, _ = interval(numbers)
    return mean, mean - low if np.isfinite(low) else None


def judge_with_trimmed(
    claim: str, data: str, difference: Callable[[str], np.ndarray], convention: str, measure: str
) -> list[Finding]:
    """The finding on all values; where zeros and outliers left out turn the verdict, a second one that says so.

    ``difference`` gives the numbers for "" and for "trimmed_" in front of a statistic.
    """
    found = judge(claim, data, difference(""), convention=convention, measure=measure)
    marked = f"{measure}; zeros and outliers left out"
    other = judge(claim, data, difference("trimmed_"), convention=convention, measure=marked)
    return [found] if found.verdict == other.verdict else [found, other]


def judge_association(
    claim: str, data: str, x: Any, y: Any, groups: Any, *, seeds: Any, convention: str | None, measure: str
) -> Finding:
    """The finding for a claim that two numbers of a run grow together: rank correlation within groups.

    ``seeds``: of the runs. Runs of one seed are resampled together; with fewer than four seeds there is no interval.
    """
    names, sizes = np.unique(np.asarray(groups), return_counts=True)
    good = np.isin(groups, names[sizes > 1])
    one, other, labels, units = (np.asarray(part)[good] for part in (x, y, groups, seeds))
    if len(one) < 4:
        return Finding(claim, data, 0.0, -np.inf, np.inf, len(one), "not replicated", convention, measure)
    found = rank_correlation(one, other, labels, clusters=units, resamples=2000)
    if not np.isfinite(found.correlation):
        return Finding(claim, data, 0.0, -np.inf, np.inf, found.runs, "not replicated", convention, measure)
    verdict = "replicated" if found.low > 0 else "contradicted" if found.high < 0 else "not replicated"  # NaN: neither
    return Finding(
        claim, data, found.correlation, found.low, found.high, found.runs, verdict, convention, measure
    )  # fmt: skip
