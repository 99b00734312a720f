"""Numbers of trained runs compared between arms: seed by seed within a data set, then pooled over data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.pooling import Pooled, detectable, pool, seed_bootstrap, t_test, usable_groups
from geoattn.studies.engine.study import Pairs

__all__ = ["CONVENTIONS", "Number", "Runs", "contrast_findings"]

CONVENTIONS = ("markov", "hop", "grc-0.6", "grc-0.5")


@dataclass(frozen=True)
class Number:
    """A number of a run, in words; where it is about curvature ``of`` takes the convention too."""

    words: str
    of: Callable[..., float]
    curved: bool = False


@dataclass(frozen=True)
class Runs:
    """Trials by data set, arm and seed. ``arm`` names the arm of a configuration, ``data`` its data set.

    ``cluster`` names what is pooled: data sets of one cluster (those that one model has seen) share what is random in
    them, and so count as one. ``unit`` names what a seed of a data set shares with other data sets: its runs are
    resampled together.
    """

    pairs: Pairs
    arm: Callable[[dict[str, Any]], str]
    data: Callable[[dict[str, Any]], str] = lambda config: str(config["data"])
    cluster: Callable[[str], str] = lambda data: data
    unit: Callable[[str, int], Any] = lambda _, seed: seed

    def names(self) -> list[str]:
        """The data sets, in order."""
        return list(dict.fromkeys(self.data(config) for config, _ in self.pairs))

    def by_seed(self, data: str, arm: str, number: Callable[[Any], Any]) -> dict[int, Any]:
        """The number of each run of an arm, by its seed."""
        return {
            config["seed"]: number(result)
            for config, result in self.pairs
            if self.data(config) == data and self.arm(config) == arm
        }

    def differences(self, data: str, more: str, less: str, number: Callable[[Any], float]) -> np.ndarray:
        """number[more] - number[less] for each seed that both arms have; what is not finite is left out."""
        return np.array(list(self.paired(data, more, less, number).values()), dtype=float)

    def paired(self, data: str, more: str, less: str, number: Callable[[Any], float]) -> dict[Any, float]:
        """The differences by their unit, in the order of seeds."""
        first, second = (self.by_seed(data, arm, number) for arm in (more, less))
        both = {
            self.unit(data, seed): float(first[seed] - second[seed]) for seed in sorted(first.keys() & second.keys())
        }
        return {unit: value for unit, value in both.items() if np.isfinite(value)}


def contrast_findings(
    runs: Runs, numbers: Mapping[str, Number], contrasts: tuple[tuple[str, str], ...]
) -> list[Finding]:
    """A finding for each number, contrast (more, less), convention, data set and cluster, and one over the clusters."""
    found = []
    for name, number in numbers.items():
        for convention in CONVENTIONS if number.curved else (None,):
            of = number.of if convention is None else (lambda r, c=convention, n=number: n.of(r, c))
            for more, less in contrasts:
                groups = {data: runs.paired(data, more, less, of) for data in runs.names()}
                groups = {data: values for data, values in groups.items() if len(values)}
                words = f"{number.words}, {more} minus {less}"
                clusters = _clustered(groups, runs.cluster)
                single = {**groups, **clusters} if len(clusters) < len(groups) else groups
                for data, values in single.items():
                    tested = t_test(np.array(list(values.values()), dtype=float))
                    found.append(_finding(name, words, more, less, data, convention, tested, len(values)))
                if len(groups) > 1:
                    used = usable_groups(clusters)
                    total = sum(len(values) for data, values in groups.items() if runs.cluster(data) in used)
                    pooled = _finding(name, words, more, less, "pooled", convention, pool(clusters), total)
                    low, high = seed_bootstrap(clusters)
                    if np.isfinite(low):
                        pooled = replace(pooled, bootstrap_low=low, bootstrap_high=high)
                    found.append(pooled)
    return found


def _clustered(groups: dict[str, dict[Any, float]], cluster: Callable[[str], str]) -> dict[str, dict[Any, float]]:
    """The differences of each cluster by unit; where data sets of a cluster share a unit, their mean."""
    parts: dict[str, dict[Any, list[float]]] = {}
    for data, values in groups.items():
        for unit, value in values.items():
            parts.setdefault(cluster(data), {}).setdefault(unit, []).append(value)
    return {name: {unit: float(np.mean(own)) for unit, own in found.items()} for name, found in parts.items()}


def _finding(
    name: str, words: str, more: str, less: str, data: str, convention: str | None, pooled: Pooled, count: int
) -> Finding:
    verdict = "replicated" if pooled.low > 0 else "contradicted" if pooled.high < 0 else "not replicated"
    return Finding(
        f"{words} is above 0", data, pooled.effect, pooled.low, pooled.high, count, verdict, convention, words,
        number=name, more=more, less=less, p=pooled.p, detectable=detectable(pooled.error, pooled.freedom),
        freedom=None if pooled.freedom == count - 1 else pooled.freedom,
    )  # fmt: skip
