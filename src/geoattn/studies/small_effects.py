"""One effect from the findings of small studies, for claims that have no endpoint at the paper's size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoattn.studies.engine.pooling import critical, detectable, p_value
from geoattn.studies.evidence import Evidence

__all__ = ["SmallEffect", "freedom_of", "one_measure", "pool_small"]

_PRIMARY = "grc-0.5"  # the paper's library with its default alpha
_TRIMMED = "zeros and outliers left out"
_LAYER = re.compile(r", layer \d+$")


@dataclass(frozen=True)
class SmallEffect:
    """An effect with its 95 % interval, what it rests on in words, and the smallest effect that could be seen."""

    primary: str
    effect: float
    low: float
    high: float
    trials: int
    p: float
    detectable: float
    freedom: int


def pool_small(whole: list[Evidence]) -> SmallEffect | None:
    """The mean over data sets of findings of one measure.

    Findings of one study on one data set share their runs, and layers of one model their samples. Each such group
    counts once, by its median effect, the lower of two. Curvature is taken under one convention. Groups have equal
    weights; the error is the larger of their spread and of their own intervals. None where there is no finding.
    """
    presets = sorted({str(e.finding["convention"]) for e in whole if e.finding.get("convention") is not None})
    first = "" if not presets else _PRIMARY if _PRIMARY in presets else presets[0]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for e in whole:
        if e.finding.get("convention") in (first or None, None):
            groups.setdefault((e.study, _LAYER.sub("", str(e.finding["data"]))), []).append(e.finding)
    if not groups:
        return None
    chosen = [sorted(g, key=lambda f: f["difference"])[(len(g) - 1) // 2] for g in groups.values()]
    means = np.array([f["difference"] for f in chosen])
    errors = np.array([(f["high"] - f["low"]) / 2 / critical(freedom_of(f)) for f in chosen])
    spread = means.var(ddof=1) / len(means) if len(means) > 1 else 0.0
    error = max(float(np.sqrt(max(spread, (errors**2).sum() / len(means) ** 2))), 1e-12)
    freedom = len(means) - 1 if len(means) > 1 else freedom_of(chosen[0])
    mean, half = float(means.mean()), critical(freedom) * error
    studies = ", ".join(dict.fromkeys(study for study, _ in groups))
    data = next(iter(groups))[1] if len(groups) == 1 else f"pooled over {len(groups)} sets"
    return SmallEffect(
        f"{studies} (small), {data}" + (f", {first}" if first else ""), mean, mean - half, mean + half,
        sum(f["trials"] for f in chosen), p_value(mean, half, freedom), detectable(error, freedom), freedom,
    )  # fmt: skip


def one_measure(speaks: tuple[Evidence, ...], tests: tuple[tuple[str, str], ...]) -> list[Evidence]:
    """The findings with intervals of the first of the claim's ``tests`` that has any, and of their first measure.

    Different units have no mean. Findings without zeros and outliers are a second look at the same runs.
    """
    found = [e for e in speaks if _TRIMMED not in e.finding.get("measure", "") and _has_interval(e.finding)]
    for study, pattern in tests:
        mine = [e for e in found if e.study == study and re.match(pattern, str(e.finding["claim"]))]
        if mine:
            what = [(e.finding["claim"], e.finding.get("measure")) for e in mine]
            return [e for e, own in zip(mine, what, strict=True) if own == what[0]]
    return []


def _has_interval(finding: dict[str, Any]) -> bool:
    return all(finding[k] is not None for k in ("difference", "low", "high"))


def freedom_of(finding: dict[str, Any]) -> int:
    """The degrees of freedom of its interval."""
    return max(int(finding.get("freedom") or finding["trials"] - 1), 1)
