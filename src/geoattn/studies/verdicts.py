"""From findings to one verdict per claim: the endpoint, its interval, its power, and correction for many claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json
from geoattn.studies.catalogue import STUDIES, find_study
from geoattn.studies.claims import Claim, claims
from geoattn.studies.engine.pooling import detectable, holm

__all__ = ["Evidence", "Judged", "judge_claims", "read_progress", "read_results"]

Verdict = Literal[
    "replicated", "contradicted", "inconclusive", "depends on the convention", "not testable here", "theorem checked"
]
_SIZES = ("paper", "small")  # a smoke run is no evidence
_PRIMARY = "grc-0.5"  # where a claim about curvature has no endpoint yet: the paper's library with its default alpha
_TRIMMED = "zeros and outliers left out"
_LEVEL = 0.05


@dataclass(frozen=True)
class Evidence:
    """A finding with the study that it comes from; ``done`` and ``planned`` trials of that study.

    ``beside``: in words, where the study differs from the paper and the accuracy that its models reached.
    """

    study: str
    size: str
    how: str
    finding: dict[str, Any]
    done: int = 0
    planned: int = 0
    beside: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and what the verdict rests on.

    ``primary``: the study, number, data and convention in words. ``p`` is corrected by Holm over all claims that are
    judged by an interval. ``detectable``: the smallest true effect found with a power of 80 %. ``support``: all that
    speaks to the claim. ``bootstrap``: the interval of a bootstrap over whole seeds, beside that of Student's t.
    ``unfinished``: trials that are done and planned, where those of the endpoint are not all done.
    """

    claim: Claim
    verdict: Verdict
    primary: str = ""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    trials: int = 0
    p: float | None = None
    detectable: float | None = None
    reason: str = ""
    support: tuple[Evidence, ...] = ()
    bootstrap: tuple[float, float] | None = None
    unfinished: tuple[int, int] | None = None


def read_results(root: Path) -> list[Evidence]:
    """All findings below ROOT/NAME/SIZE/NAME.json, of the largest size of each study."""
    if not root.is_dir():
        raise GeoattnError(f"no results in {root}: it must be the folder that holds NAME/SIZE/NAME.json.")
    found: list[Evidence] = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        name = folder.name
        size = next((size for size in _SIZES if (folder / size / f"{name}.json").is_file()), None)
        if size is None:
            continue
        path = folder / size / f"{name}.json"
        try:
            about = read_json(path)
            planned = int(about.get("trials", 0))
            counts = (int(about.get("done", planned)), planned)
            beside = _beside(about)
            found += [
                Evidence(name, size, about.get("how", ""), finding, *counts, beside) for finding in about["findings"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise GeoattnError(f"{path} cannot be read ({error}): run the study again.") from None
    return found


def read_progress(root: Path) -> dict[str, tuple[int, int]]:
    """Trials done and planned at the paper's size of each study that an endpoint names, with findings or without."""
    found = {}
    for name in dict.fromkeys(claim.endpoint.study for claim in claims() if claim.endpoint is not None):
        if name not in STUDIES:
            continue
        path = root / name / "paper" / f"{name}.json"
        if path.is_file():
            about = read_json(path)
            planned = int(about["trials"])
            found[name] = (int(about.get("done", planned)), planned)
        else:
            found[name] = (0, len(find_study(name).configs("paper")))
    return found


def _beside(about: dict[str, Any]) -> str:
    reached = ", ".join(f"{name} {value:.3f}" for name, value in about.get("accuracy", {}).items())
    parts = [
        f"Deviations from the paper: {about['deviations']}" if about.get("deviations") else "",
        f"Mean test accuracy reached: {reached}." if reached else "",
    ]
    return " ".join(filter(None, parts))


def judge_claims(evidence: list[Evidence], progress: Mapping[str, tuple[int, int]] | None = None) -> list[Judged]:
    """All claims with their verdicts, in order; ``progress`` is that of `read_progress`."""
    judged = [_judge(claim, evidence, progress or {}) for claim in claims()]
    tested = [k for k, one in enumerate(judged) if one.p is not None]
    corrected = holm([judged[k].p or 0.0 for k in tested])
    for k, p in zip(tested, corrected, strict=True):
        judged[k] = _decide(replace(judged[k], p=p))
    return [_both_legs(one, judged) for one in judged]


def _judge(
    claim: Claim, evidence: list[Evidence], progress: Mapping[str, tuple[int, int]] = MappingProxyType({})
) -> Judged:
    speaks = tuple(e for e in evidence if claim.is_tested_by(e.study, str(e.finding["claim"])))
    if claim.not_here:
        return Judged(claim, "not testable here", reason=claim.not_here, support=speaks)
    if claim.kind != "observation":
        return _check(claim, speaks)
    if claim.endpoint is not None:
        end = claim.endpoint
        rows = [e for e in evidence if e.study == end.study and _is_endpoint(e.finding, claim)]
        chosen = [e for e in rows if e.finding["data"] == end.data]
        mine = [e for e in chosen if e.finding.get("convention") == end.convention]
        where = f"{end.study}, {end.number.replace('_', ' ')}, {end.more} minus {end.less}, {end.data}"
        done, planned = progress.get(end.study, (0, 0))
        unfinished = (done, planned) if done < planned else None
        if mine:
            primary = where + (f", {end.convention}" if end.convention else "")
            one = _interval(claim, mine[0].finding, primary, (*rows, *speaks))
            return replace(one, unfinished=unfinished) if unfinished else _with_conventions(one, chosen)
        pooled = _pool_small(claim, speaks)
        words = [f"The trials of {end.study} at the paper's size do not give the endpoint yet."]
        if planned and unfinished is None:
            words = [f"All trials of {end.study} are done, and they do not give the endpoint."]
        words.append("There is no small run." if pooled.effect is None else "The effect is that of small runs.")
        return replace(
            pooled, verdict="inconclusive", p=None, reason=" ".join(words), primary=pooled.primary or where,
            unfinished=unfinished, support=(*rows, *speaks),
        )  # fmt: skip
    if not speaks:
        verdict: Verdict = "theorem checked" if claim.checked_by else "not testable here"
        return Judged(claim, verdict, primary=claim.checked_by, reason=claim.note)
    pooled = _pool_small(claim, speaks)
    return _with_conventions(pooled, [e for e in speaks if _TRIMMED not in e.finding.get("measure", "")])


def _is_endpoint(finding: dict[str, Any], claim: Claim) -> bool:
    end = claim.endpoint
    assert end is not None
    return [finding.get(k) for k in ("number", "more", "less")] == [end.number, end.more, end.less]


def _interval(claim: Claim, finding: dict[str, Any], primary: str, support: tuple[Evidence, ...]) -> Judged:
    margin = claim.endpoint.margin if claim.endpoint is not None else 0.0
    low, high = (None if finding[k] is None else finding[k] + margin for k in ("low", "high"))
    p = finding.get("p")
    resampled = None
    if finding.get("bootstrap_low") is not None and finding.get("bootstrap_high") is not None:
        resampled = (finding["bootstrap_low"] + margin, finding["bootstrap_high"] + margin)
    return Judged(
        claim, "inconclusive", primary, finding["difference"] + margin, low, high, finding["trials"],
        1.0 if p is None or low is None else p if not margin else (0.0 if low > 0 else 1.0),
        finding.get("detectable"), "", support, resampled,
    )  # fmt: skip


def _pool_small(claim: Claim, speaks: tuple[Evidence, ...]) -> Judged:
    """One effect from the findings of small studies: under one convention, weighted by their intervals.

    Findings of one study on one data set share their runs, so each such group counts once, by its median effect.
    """
    whole = [e for e in speaks if _TRIMMED not in e.finding.get("measure", "")]
    presets = {e.finding.get("convention") for e in whole} - {None}
    first = ""
    if presets:
        first = _PRIMARY if _PRIMARY in presets else sorted(map(str, presets))[0]
        whole = [e for e in whole if e.finding.get("convention") in (first, None)]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for e in whole:
        f = e.finding
        if f["low"] is not None and f["high"] is not None and f["difference"] is not None:
            groups.setdefault((e.study, str(f["data"])), []).append(f)
    if not groups:
        return Judged(claim, "inconclusive", reason="No finding has an interval.", support=speaks)
    chosen = [sorted(g, key=lambda f: f["difference"])[len(g) // 2] for g in groups.values()]
    means = np.array([f["difference"] for f in chosen])
    errors = np.array([max((f["high"] - f["low"]) / 2 / _critical(f["trials"]), 1e-12) for f in chosen])
    weights = 1 / errors**2
    fixed = (weights * means).sum() / weights.sum()
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    q = (weights * (means - fixed) ** 2).sum()
    between = max(0.0, (q - len(means) + 1) / scale) if len(means) > 1 else 0.0
    weights = 1 / (errors**2 + between)
    mean, error = float((weights * means).sum() / weights.sum()), float(1 / np.sqrt(weights.sum()))
    freedom = len(means) - 1 if len(means) > 1 else max(chosen[0]["trials"] - 1, 1)
    half = _critical(freedom + 1) * error
    studies = ", ".join(dict.fromkeys(study for study, _ in groups))
    data = next(iter(groups))[1] if len(groups) == 1 else f"pooled over {len(groups)} sets"
    primary = f"{studies} (small), {data}" + (f", {first}" if presets else "")
    return Judged(
        claim, "inconclusive", primary, mean, mean - half, mean + half, sum(f["trials"] for f in chosen),
        _p_value(mean / error, freedom), detectable(error, freedom), "", speaks,
    )  # fmt: skip


def _critical(trials: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, max(trials - 1, 1)))


def _p_value(ratio: float, freedom: int) -> float:
    from scipy.stats import t

    return float(2 * t.sf(abs(ratio), freedom))


def _with_conventions(one: Judged, rows: list[Evidence]) -> Judged:
    """Whether conventions disagree: under one the effect lies above 0, under another below, both at 5 % over 4 + 4."""
    sides: dict[str, set[str]] = {"above": set(), "below": set()}
    for e in rows:
        f, preset = e.finding, e.finding.get("convention")
        if preset is None or f["low"] is None or f["high"] is None:
            continue
        widened = 0.35 * (f["high"] - f["low"]) / 2  # from 95 % to about 99.4 %
        if f["low"] - widened > 0:
            sides["above"].add(preset)
        if f["high"] + widened < 0:
            sides["below"].add(preset)
    above, below = sides["above"] - sides["below"], sides["below"] - sides["above"]
    if above and below:
        words = f"above 0 under {', '.join(sorted(above))}, below 0 under {', '.join(sorted(below))}"
        return replace(one, verdict="depends on the convention", reason=words)
    return one


def _decide(one: Judged) -> Judged:
    if one.unfinished:
        return replace(one, verdict="inconclusive", reason="The trials are not finished, and only all of them decide.")
    if one.verdict == "depends on the convention" or one.low is None or one.high is None or one.p is None:
        return one
    if one.p < _LEVEL and one.low > 0:
        return replace(one, verdict="replicated")
    if one.p < _LEVEL and one.high < 0:
        return replace(one, verdict="contradicted")
    end = one.claim.endpoint
    effect = None if end is None else end.paper_effect
    if effect is not None and one.detectable is not None and one.detectable <= abs(effect) and one.high < effect:
        return replace(one, verdict="contradicted", reason="The paper's effect lies above the interval.")
    return replace(one, verdict="inconclusive")


def _check(claim: Claim, speaks: tuple[Evidence, ...]) -> Judged:
    """Theorems and assumptions: how many checks hold. There is no interval to give."""
    holds = sum(e.finding["verdict"] == "replicated" for e in speaks)
    fails = sum(e.finding["verdict"] == "contradicted" for e in speaks)
    words = f"{holds} of {len(speaks)} checks hold" if speaks else ""
    if claim.checked_by:
        words = "; ".join(filter(None, (words, claim.checked_by)))
    if not speaks and not claim.checked_by:
        return Judged(claim, "not testable here", reason=claim.note or "Nothing here computes it.")
    if claim.kind == "theorem":
        checked: Verdict = "inconclusive" if fails > holds or (speaks and not holds) else "theorem checked"
        return Judged(claim, checked, words, reason=claim.note if fails else "", support=speaks)
    bad = fails > holds or (not speaks and "Refuted" in claim.note) or (not speaks and claim.note.startswith("They do"))
    verdict: Verdict = "contradicted" if bad else "replicated" if holds == len(speaks) else "inconclusive"
    return Judged(claim, verdict, words, reason=claim.note, support=speaks)


def _both_legs(one: Judged, judged: list[Judged]) -> Judged:
    """R35, the trade-off, follows from R30 (accuracy) and R24 (robustness)."""
    if one.claim.id != "R35":
        return one
    legs = [other.verdict for other in judged if other.claim.id in ("R24", "R30")]
    verdict: Verdict = (
        "replicated" if set(legs) == {"replicated"} else "contradicted" if "contradicted" in legs else "inconclusive"
    )
    return Judged(one.claim, verdict, "both of R24 and R30", reason=one.claim.note, support=one.support)
