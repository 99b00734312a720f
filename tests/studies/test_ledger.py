"""The ledger: each claim has one verdict by rule, every pointer resolves, and docs/ is what results/ gives."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.studies.catalogue import STUDIES, find_study
from geoattn.studies.claims import Claim, Endpoint, claims, papers
from geoattn.studies.engine.contrasts import Number, Runs, contrast_findings
from geoattn.studies.engine.output import as_plain
from geoattn.studies.engine.pooling import detectable, holm, pool, t_test
from geoattn.studies.ledger import claims_figures, claims_page, claims_pages
from geoattn.studies.verdicts import Evidence, _decide, _judge, judge_claims, read_results
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
