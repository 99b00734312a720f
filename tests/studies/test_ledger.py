"""The ledger: each claim has one verdict by rule, every pointer resolves, and docs/ is what results/ gives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from geoattn._core.errors import GeoattnError
from geoattn.studies.catalogue import STUDIES, find_study
from geoattn.studies.claims import Claim, Endpoint, claims, papers
from geoattn.studies.engine.contrasts import Number, Runs, contrast_findings
from geoattn.studies.engine.output import as_plain
from geoattn.studies.engine.pooling import detectable, holm, pool, t_test
from geoattn.studies.evidence import Evidence, read_results
from geoattn.studies.ledger import _page, claims_figures, claims_page, claims_pages
from geoattn.studies.small_effects import one_measure, pool_small
from geoattn.studies.verdicts import _decide, _judge, judge_claims
from tests.studies.made_up import made_up

ROOT = Path(__file__).parents[2]
END = Endpoint(date(2026, 11, 18), "growth", "loss", "down", "up", "pooled")
CLAIM = Claim("X1", "ricci", "", "observation", "It grows.", endpoint=END)


def evidence(low: float, high: float, convention: str | None = None, **more: Any) -> Evidence:
    finding = {
        "claim": "it grows", "data": "pooled", "difference": (low + high) / 2, "low": low, "high": high, "trials": 6,
        "verdict": "", "convention": convention, "number": "loss", "more": "down", "less": "up", "p": 0.001,
        "detectable": 0.1,
    }  # fmt: skip
    return Evidence("growth", "paper", "", finding | more, 6, 6)


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [
        (0.5, 1.5, 0.001, "replicated"),
        (-1.5, -0.5, 0.001, "contradicted"),
        (-0.5, 0.5, 0.9, "inconclusive"),
        (0.01, 1.5, 0.2, "inconclusive"),  # not after correction
    ],
)
def test_verdict_by_interval(low: float, high: float, p: float, verdict: str) -> None:
    assert _decide(_judge(CLAIM, [evidence(low, high, p=p)])).verdict == verdict


def test_one_lucky_finding_of_many_decides_nothing() -> None:
    """Only the endpoint counts: data sets and numbers beside it do not change the verdict."""
    lucky = [evidence(0.5, 1.5, data=f"set {k}") for k in range(30)] + [evidence(0.5, 1.5, number="other")]
    assert _decide(_judge(CLAIM, [evidence(-0.5, 0.5, p=0.9), *lucky])).verdict == "inconclusive"


def test_conventions_must_disagree_in_sign() -> None:
    claim = Claim("X1", "ricci", "", "observation", "", endpoint=Endpoint(**{**vars(END), "convention": "markov"}))
    same = [evidence(0.5, 1.5, "markov"), evidence(0.1, 0.2, "hop"), evidence(-0.5, 0.5, "grc-0.5")]
    assert _decide(_judge(claim, same)).verdict == "replicated"
    assert _judge(claim, [*same, evidence(-2.0, -1.0, "grc-0.6")]).verdict == "depends on the convention"


def test_the_papers_effect_outside_of_a_strong_design_is_contradicted() -> None:
    claim = Claim("X1", "ricci", "", "observation", "", endpoint=Endpoint(**{**vars(END), "paper": {"a": 0.5}}))
    found = _decide(_judge(claim, [evidence(-0.1, 0.1, p=0.9, detectable=0.15)]))
    assert found.verdict == "contradicted"
    weak = _decide(_judge(claim, [evidence(-1.0, 1.0, p=0.9, detectable=1.5)]))
    assert weak.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("low", "high", "p", "detectable", "verdict", "words"),
    [
        (0.001, 0.1, 0.2, 0.15, "inconclusive", "smaller than the paper's"),  # on the claimed side
        (-0.1, 0.1, 0.9, 0.6, "inconclusive", "could not have seen"),
        (-0.1, 0.6, 0.9, 0.15, "inconclusive", ""),
    ],
)
def test_a_small_effect_on_the_claimed_side_is_no_contradiction(low, high, p, detectable, verdict, words) -> None:
    claim = Claim("X1", "ricci", "", "observation", "", endpoint=Endpoint(**{**vars(END), "paper": {"a": 0.5}}))
    found = _decide(_judge(claim, [evidence(low, high, p=p, detectable=detectable)]))
    assert found.verdict == verdict
    assert words in found.reason
    assert bool(words) == bool(found.reason)


def test_a_margin_can_be_missed_and_met() -> None:
    """-0.14 with half a width of 0.02 lies below a margin of 0.05, 0 with 0.01 above it: both for certain."""
    claim = Claim("X1", "ricci", "", "observation", "", endpoint=Endpoint(**{**vars(END), "margin": 0.05}))
    missed, met = (_judge(claim, [evidence(low, high)]) for low, high in ((-0.16, -0.12), (-0.01, 0.01)))
    assert missed.p is not None
    assert met.p is not None
    assert missed.p == pytest.approx(2 * t.sf(0.09 / (0.02 / t.ppf(0.975, 5)), 5))
    assert 0 < met.p < 1e-3
    assert _decide(missed).verdict == "contradicted"
    assert _decide(met).verdict == "replicated"


def test_conventions_disagree_only_beyond_widened_intervals() -> None:
    """Four looks at intervals with three degrees of freedom: factor t(1 - 0.00625, 3) / t(0.975, 3) = 1.65."""
    claim = Claim("X1", "ricci", "", "observation", "", endpoint=Endpoint(**{**vars(END), "convention": "markov"}))
    others = [evidence(-1.0, 1.0, name, trials=4) for name in ("hop", "grc-0.6")]
    below = evidence(-3.0, -1.0, "grc-0.5", trials=4)
    narrow, wide = (evidence(2.0 - w, 2.0 + w, "markov", trials=4) for w in (1.15, 1.3))
    assert _judge(claim, [narrow, *others, below]).verdict == "depends on the convention"
    assert _judge(claim, [wide, *others, below]).verdict == "inconclusive"


def test_all_claims_that_are_going_to_be_judged_count() -> None:
    """The last claim to be finished is corrected like the first: those without trials are in the family."""
    claim = next(c for c in claims() if c.id == "R22")
    assert claim.endpoint is not None
    names = {"number": claim.endpoint.number, "more": claim.endpoint.more, "less": claim.endpoint.less}
    one = replace(evidence(0.5, 1.5, claim="", **names), study=claim.endpoint.study)
    (found,) = [judged for judged in judge_claims([one]) if judged.claim.id == "R22"]
    counted = [c for c in claims() if c.kind == "observation" and not c.not_here and c.id != "R35"]
    assert found.p == pytest.approx(0.001 * len(counted))
    (early,) = [judged for judged in judge_claims([replace(one, done=5)]) if judged.claim.id == "R22"]
    assert (early.verdict, early.p, early.unfinished) == ("inconclusive", None, (5, 6))


def test_each_arm_stands_against_none() -> None:
    """A difference between up and down does not say which of them does something."""
    legs = [evidence(0.5, 1.5, more="down", less="none"), evidence(-0.5, 0.5, more="none", less="up")]
    found = _judge(CLAIM, [evidence(0.5, 1.5), *legs, evidence(0.5, 1.5, more="up", less="sideways")])
    assert [e.finding["more"] for e in found.support] == ["down", "down", "none"]
    page = _page(found, "", ())
    assert "Against a run without it: down minus none +1 [+0.5, +1.5]; none minus up 0 [-0.5, +0.5]." in page


def test_small_effects_have_one_unit_and_count_models_once() -> None:
    def small(study: str, data: str, low: float, high: float, measure: str) -> Evidence:
        return replace(evidence(low, high, claim="it grows", data=data, measure=measure), study=study)

    layers = [small("growth", f"m, layer {k}", k - 0.1, k + 0.1, "per step") for k in range(4)]
    rows = [*layers, small("growth", "other", 2.9, 3.1, "per step"), small("growth", "m", 90, 110, "epochs"),
            small("late", "m", 90, 110, "per step")]  # fmt: skip
    tests = (("late", "never"), ("growth", "it"), ("late", "it"))
    found = pool_small(one_measure(tuple(rows), tests))
    assert found is not None
    assert found.effect == pytest.approx(2.0)  # the lower median of the layers is 1
    assert found.freedom == 1
    assert pool_small([]) is None


def test_theorems_are_checked_and_never_contradicted() -> None:
    theorem = Claim("X2", "ricci", "", "theorem", "It is so.", (("growth", "it"),), "Why.")
    assert _judge(theorem, [evidence(1, 2, verdict="replicated")]).verdict == "theorem checked"
    failed = _judge(theorem, [evidence(-2, -1, verdict="contradicted")])
    assert (failed.verdict, failed.low, failed.reason) == ("inconclusive", None, "Why.")


def test_the_catalogue_is_sound() -> None:
    numbers = [claim.id for claim in claims()]
    assert len(set(numbers)) == len(numbers) >= 60
    for claim in claims():
        assert claim.paper in papers()
        assert claim.kind in ("theorem", "assumption", "observation")
        assert all(study in STUDIES for study, _ in claim.tests), claim.id
        assert not claim.checked_by or (ROOT / claim.checked_by).is_file(), claim.id
        assert claim.tests or claim.checked_by or claim.not_here or claim.endpoint, claim.id


def test_every_pattern_matches_a_finding() -> None:
    found = read_results(ROOT / "results")
    for claim in claims():
        for study, pattern in claim.tests:
            assert any(e.study == study and re.match(pattern, e.finding["claim"]) for e in found), (claim.id, pattern)


def test_every_endpoint_is_one_that_its_study_computes() -> None:
    """Numbers by hand of two seeds: the study gives a finding for the endpoint, whatever is done so far."""
    found: dict[str, list[dict[str, Any]]] = {}
    for claim in claims():
        end = claim.endpoint
        if end is None or end.study not in STUDIES:
            continue
        study = find_study(end.study)
        if end.study not in found:
            pairs = [(config, made_up(config)) for config in study.configs("paper")]
            found[end.study] = [as_plain(f) for f in study.verdict(pairs)]
        rows = found[end.study]
        keys = ("number", "more", "less", "data", "convention")
        wanted = [end.number, end.more, end.less, end.data, end.convention]
        assert [row for row in rows if [row.get(k) for k in keys] == wanted], claim.id


def test_pairs_are_by_seed_and_pooled_over_data_sets() -> None:
    pairs = [
        ({"data": d, "seed": s, "arm": a}, {"x": s + shift * (a == "up") + 0.01 * s * (a == "up")})
        for d, shift in (("one", 1.0), ("two", 1.2))
        for s in range(5)
        for a in ("up", "down")
        if (d, s, a) != ("two", 4, "down")
    ]
    runs = Runs(pairs, lambda c: c["arm"])
    found = {f.data: f for f in contrast_findings(runs, {"x": Number("x", lambda r: r["x"])}, (("up", "down"),))}
    assert [found[k].trials for k in ("one", "two", "pooled")] == [5, 4, 9]
    assert found["one"].difference == pytest.approx(1.02)
    assert found["one"].difference < found["pooled"].difference < found["two"].difference


def test_data_sets_of_one_cluster_count_as_one() -> None:
    """Two data sets seen by one model are one of two groups, so that one model does not outweigh the other."""
    pairs = [
        ({"data": d, "seed": s, "arm": a}, {"x": (shift + 0.1 * s) * (a == "up")})
        for d, shift in (("m on a", 1.0), ("m on b", 1.0), ("k on a", 3.0))
        for s in range(3)
        for a in ("up", "down")
    ]
    number = {"x": Number("x", lambda r: r["x"])}
    plain, clustered = (
        next(f for f in contrast_findings(runs, number, (("up", "down"),)) if f.data == "pooled")
        for runs in (
            Runs(pairs, lambda c: c["arm"]),
            Runs(pairs, lambda c: c["arm"], cluster=lambda data: data.split(" on ")[0]),
        )
    )
    assert plain.difference < clustered.difference == pytest.approx(2.1, abs=0.01)
    assert clustered.trials == plain.trials == 9


def test_results_of_full_size_hold_the_hash_of_their_endpoints() -> None:
    seen = 0
    for path in (ROOT / "results").glob("*/paper/*.json"):
        if path.name == "trials.json":
            continue
        wanted = [
            {"claim": claim.id, "fixed": str(claim.endpoint.fixed), "hash": claim.endpoint.hash}
            for claim in claims()
            if claim.endpoint is not None and claim.endpoint.study == path.stem
        ]
        assert json.loads(path.read_bytes()).get("endpoints", []) == wanted, path
        seen += bool(wanted)
    assert seen > 0


def test_pooling_counts_the_spread_between_data_sets() -> None:
    near = ([1.0, 1.1, 0.9], [1.0, 1.1, 0.9], [1.0, 0.9, 1.1])
    far = ([1.0, 1.1, 0.9], [3.0, 3.1, 2.9], [-1.0, -0.9, -1.1])
    alike, apart = (pool({k: dict(enumerate(v)) for k, v in zip("abc", sets, strict=True)}) for sets in (near, far))
    assert alike.low > 0 > apart.low
    assert pool({"a": dict(enumerate([1.0, 2.0, 3.0]))}) == t_test(np.array([1.0, 2.0, 3.0]))


def test_power_of_the_detectable_effect_by_simulation() -> None:
    rng = np.random.default_rng(0)
    effect = detectable(1 / np.sqrt(6), 5)
    seen = [t_test(rng.normal(effect, 1, 6)).p < 0.05 for _ in range(2000)]
    assert np.mean(seen) == pytest.approx(0.8, abs=0.03)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.02, 0.5]) == [0.03, 0.04, 0.5]
    assert holm([]) == []


def test_the_largest_size_counts_and_smoke_never_does(tmp_path: Path) -> None:
    def write(size: str, data: str) -> None:
        folder = tmp_path / "growth" / size
        folder.mkdir(parents=True)
        content = {"findings": [evidence(0, 1).finding | {"data": data}], "how": "By hand.", "trials": 4, "done": 3}
        (folder / "growth.json").write_text(json.dumps(content))

    write("smoke", "none")
    assert read_results(tmp_path) == []
    write("small", "a few")
    write("paper", "all")
    found = read_results(tmp_path)
    assert [(e.finding["data"], e.done, e.planned) for e in found] == [("all", 3, 4)]


def test_bad_results(tmp_path: Path) -> None:
    with pytest.raises(GeoattnError, match="no results in"):
        claims_page(tmp_path / "nowhere")
    (tmp_path / "growth" / "small").mkdir(parents=True)
    (tmp_path / "growth" / "small" / "growth.json").write_text("{")
    with pytest.raises(GeoattnError, match="cannot be read"):
        claims_page(tmp_path)


def test_no_claim_is_without_a_verdict() -> None:
    allowed = {"replicated", "contradicted", "inconclusive", "depends on the convention", "not testable here",
               "theorem checked"}  # fmt: skip
    for one in judge_claims(read_results(ROOT / "results")):
        assert one.verdict in allowed
        assert one.verdict != "not testable here" or one.reason, one.claim.id


def test_the_pages_are_what_the_results_give() -> None:
    page = claims_page(ROOT / "results")
    again = "run: geoattn study ledger --out docs/claims.md"
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == page, again
    assert len(page.split()) < 3000
    pages = claims_pages(ROOT / "results")
    assert {path.stem for path in (ROOT / "docs" / "claims").glob("*.md")} == set(pages), again
    for name, text in pages.items():
        assert (ROOT / "docs" / "claims" / f"{name}.md").read_text(encoding="utf-8") == text, again
    figures = claims_figures(ROOT / "results")
    assert figures
    assert {path.stem for path in (ROOT / "docs" / "claims" / "figures").iterdir()} == set(figures), again
    for name, path in figures.items():
        assert (ROOT / "docs" / "claims" / "figures" / f"{name}.png").read_bytes() == path.read_bytes(), again
        assert any(f"figures/{name}.png" in text for text in pages.values())
