"""From findings to one verdict per claim: the endpoint, its interval, its power, and correction for many claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from geoattn.studies.by_data_set import Sides, widened_sides
from geoattn.studies.claims import Claim, Endpoint, claims
from geoattn.studies.engine.pooling import critical, holm, p_value
from geoattn.studies.evidence import Evidence
from geoattn.studies.small_effects import freedom_of, one_measure, pool_small

__all__ = ["Judged", "judge_claims"]

Verdict = Literal[
    "replicated", "contradicted", "inconclusive", "depends on the convention", "not testable here", "theorem checked"
]
_LEVEL = 0.05
_TRADE_OFF = "R35"


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and what the verdict rests on.

    ``primary``: the study, number, data and convention in words. ``p`` is corrected by Holm over all claims that are
    judged by an interval. ``detectable``: the smallest true effect found with a power of 80 %. ``support``: all that
    speaks to the claim. ``bootstrap``: the interval of a bootstrap over whole seeds, beside that of Student's t.
    ``unfinished``: trials that are done and planned, where those of the endpoint are not all done. ``freedom``: the
    degrees of freedom of the interval. ``sides``: of the data sets of a pooled endpoint, one by one, where it has any.
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
    freedom: int | None = None
    sides: Sides | None = None


def judge_claims(evidence: list[Evidence], progress: Mapping[str, tuple[int, int]] | None = None) -> list[Judged]:
    """All claims with their verdicts, in order; ``progress`` is that of `read_progress`.

    P-values are corrected over all claims that are, or are going to be, judged by an interval. A study that is not
    finished has none yet; its claims count as if they would find nothing.
    """
    judged = [_judge(claim, evidence, progress or {}) for claim in claims()]
    family = [k for k, one in enumerate(judged) if _by_interval(one.claim)]
    corrected = holm([1.0 if (p := judged[k].p) is None else p for k in family])
    for k, p in zip(family, corrected, strict=True):
        judged[k] = _decide(judged[k] if judged[k].p is None else replace(judged[k], p=p))
    return [_both_legs(one, judged) for one in judged]


def _by_interval(claim: Claim) -> bool:
    return claim.kind == "observation" and not claim.not_here and claim.id != _TRADE_OFF


def _judge(
    claim: Claim, evidence: list[Evidence], progress: Mapping[str, tuple[int, int]] = MappingProxyType({})
) -> Judged:
    speaks = tuple(e for e in evidence if claim.is_tested_by(e.study, str(e.finding["claim"])))
    if claim.not_here:
        return Judged(claim, "not testable here", reason=claim.not_here, support=speaks)
    if claim.kind != "observation":
        return _check(claim, speaks)
    if claim.endpoint is not None:
        return _judge_endpoint(claim, claim.endpoint, evidence, speaks, progress.get(claim.endpoint.study))
    if not speaks:
        verdict: Verdict = "theorem checked" if claim.checked_by else "not testable here"
        return Judged(claim, verdict, primary=claim.checked_by, reason=claim.note)
    rows = one_measure(speaks, claim.tests)
    found = pool_small(rows)
    if found is None:
        return Judged(claim, "inconclusive", reason="No finding has an interval.", support=speaks)
    return _with_conventions(Judged(claim, "inconclusive", **vars(found), support=speaks), rows)


def _judge_endpoint(
    claim: Claim, end: Endpoint, evidence: list[Evidence], speaks: tuple[Evidence, ...], counts: tuple[int, int] | None
) -> Judged:
    legs = [e for e in evidence if e.study == end.study and _is_leg(e.finding, end)]
    chosen = [
        e for e in legs
        if [e.finding.get(k) for k in ("number", "more", "less", "data")] == [end.number, end.more, end.less, end.data]
    ]  # fmt: skip
    mine = [e for e in chosen if e.finding.get("convention") == end.convention]
    where = f"{end.study}, {end.number.replace('_', ' ')}, {end.more} minus {end.less}, {end.data}"
    done, planned = counts or ((mine[0].done, mine[0].planned) if mine else (0, 0))
    unfinished = (done, planned) if done < planned else None
    if mine:
        primary = where + (f", {end.convention}" if end.convention else "")
        one = _interval(claim, mine[0].finding, primary, (*legs, *speaks))
        one = replace(one, sides=widened_sides((e.finding for e in legs), end))
        return replace(one, unfinished=unfinished, p=None) if unfinished else _with_conventions(one, chosen)
    words = f"The trials of {end.study} at the paper's size do not give the endpoint yet."
    if planned and unfinished is None:
        words = f"All trials of {end.study} are done, and they do not give the endpoint."
    return Judged(claim, "inconclusive", where, reason=words, support=(*legs, *speaks), unfinished=unfinished)


def _is_leg(finding: dict[str, Any], end: Endpoint) -> bool:
    """Whether a finding is about a number of the endpoint, between its arms or between one of them and none."""
    arms = {(end.more, end.less), (end.more, "none"), ("none", end.less)}
    number = finding.get("number")
    return number in (end.number, *end.beside) and (finding.get("more"), finding.get("less")) in arms


def _interval(claim: Claim, finding: dict[str, Any], primary: str, support: tuple[Evidence, ...]) -> Judged:
    margin = claim.endpoint.margin if claim.endpoint is not None else 0.0
    low, high = (None if finding[k] is None else finding[k] + margin for k in ("low", "high"))
    effect, p = finding["difference"] + margin, finding.get("p")
    if margin and low is not None and high is not None:
        p = p_value(effect, (high - low) / 2, freedom_of(finding))
    resampled = None
    if finding.get("bootstrap_low") is not None and finding.get("bootstrap_high") is not None:
        resampled = (finding["bootstrap_low"] + margin, finding["bootstrap_high"] + margin)
    return Judged(
        claim, "inconclusive", primary, effect, low, high, finding["trials"], 1.0 if p is None or low is None else p,
        finding.get("detectable"), "", support, resampled, freedom=freedom_of(finding),
    )  # fmt: skip


def _with_conventions(one: Judged, rows: list[Evidence]) -> Judged:
    """Whether conventions disagree: an interval above 0 under one and below 0 under another.

    All k intervals together miss in at most 5 % of the cases: each is one of 1 - 5 % / k.
    """
    found = [e.finding for e in rows if e.finding.get("convention") is not None]
    found = [f for f in found if f["low"] is not None and f["high"] is not None]
    sides: dict[str, set[str]] = {"above": set(), "below": set()}
    for f in found:
        middle, half = (f["low"] + f["high"]) / 2, (f["high"] - f["low"]) / 2
        half *= critical(freedom_of(f), _LEVEL / len(found)) / critical(freedom_of(f))
        if middle - half > 0:
            sides["above"].add(f["convention"])
        if middle + half < 0:
            sides["below"].add(f["convention"])
    above, below = sides["above"] - sides["below"], sides["below"] - sides["above"]
    if above and below:
        words = f"above 0 under {', '.join(sorted(above))}, below 0 under {', '.join(sorted(below))}"
        return replace(one, verdict="depends on the convention", reason=words)
    return one


def _decide(one: Judged) -> Judged:
    if one.unfinished:
        words = "The trials are not finished, and only all of them decide."
        return replace(one, verdict="inconclusive", reason=" ".join(dict.fromkeys(filter(None, (one.reason, words)))))
    if one.verdict == "depends on the convention" or one.low is None or one.high is None or one.p is None:
        return one
    if one.p < _LEVEL and one.low > 0:
        return replace(one, verdict="replicated")
    if one.p < _LEVEL and one.high < 0:
        return replace(one, verdict="contradicted")
    end = one.claim.endpoint
    paper = None if end is None else end.paper_effect
    if paper is None or one.detectable is None:
        return replace(one, verdict="inconclusive")
    if one.detectable > abs(paper):
        return replace(one, verdict="inconclusive", reason="The design could not have seen the paper's effect.")
    if one.high < paper and one.low <= 0:
        return replace(one, verdict="contradicted", reason="The paper's effect lies above the interval, and 0 in it.")
    smaller = "The effect is smaller than the paper's." if one.high < paper else ""
    return replace(one, verdict="inconclusive", reason=smaller)


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
    """The trade-off of Section 5.1 follows from its two legs: accuracy (R30) and the gap of generalisation (R31)."""
    if one.claim.id != _TRADE_OFF:
        return one
    legs = [other.verdict for other in judged if other.claim.id in ("R30", "R31")]
    verdict: Verdict = (
        "replicated" if set(legs) == {"replicated"} else "contradicted" if "contradicted" in legs else "inconclusive"
    )
    return Judged(one.claim, verdict, "both of R30 and R31", reason=one.claim.note, support=one.support)
