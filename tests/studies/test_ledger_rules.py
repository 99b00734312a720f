"""The ledger keeps clear of known faults: claims without tests, one leg of a trade-off, made-up intervals, pointers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from geoattn.studies.catalogue import STUDIES
from geoattn.studies.claims import Claim, claims
from geoattn.studies.engine.output import _first_difference
from geoattn.studies.evidence import read_results
from geoattn.studies.ledger import claims_page, claims_pages
from geoattn.studies.paper_table import PAPER_TABLE_1
from geoattn.studies.verdicts import Judged, Verdict, _both_legs, _decide, judge_claims

ROOT = Path(__file__).parents[2]
RESULTS = read_results(ROOT / "results")
JUDGED = {one.claim.id: one for one in judge_claims(RESULTS)}
CLAIMS = {claim.id: claim for claim in claims()}


@pytest.mark.parametrize("name", ["R22", "R23"])
def test_the_headline_claims_have_findings(name: str) -> None:
    assert JUDGED[name].support
    assert any(e.finding["low"] is not None for e in JUDGED[name].support)


def test_a_smaller_drop_at_a_lower_accuracy_does_not_count_as_robust() -> None:
    end = CLAIMS["R24"].endpoint
    assert end is not None
    assert end.number.startswith("relative_drop")
    assert "curvature-training" not in dict(CLAIMS["R24"].tests)


@pytest.mark.parametrize(
    ("accuracy", "gap", "verdict"),
    [
        ("replicated", "replicated", "replicated"),
        ("replicated", "inconclusive", "inconclusive"),
        ("contradicted", "replicated", "contradicted"),
    ],
)
def test_a_trade_off_has_two_legs(accuracy: Verdict, gap: Verdict, verdict: Verdict) -> None:
    """Section 5.1: a lower variance gives the higher accuracy and the larger gap of generalisation."""
    legs = [Judged(CLAIMS["R30"], accuracy), Judged(CLAIMS["R31"], gap), Judged(CLAIMS["R24"], "contradicted")]
    assert _both_legs(Judged(CLAIMS["R35"], "contradicted"), legs).verdict == verdict


@pytest.mark.parametrize(("done", "verdict"), [(None, "replicated"), ((20, 48), "inconclusive")])
def test_unfinished_trials_decide_nothing(done: tuple[int, int] | None, verdict: Verdict) -> None:
    """A look at the trials while they are done would find an effect more often than one look at the end."""
    clear = Judged(CLAIMS["R22"], "inconclusive", effect=0.1, low=0.09, high=0.11, p=1e-6, unfinished=done)
    assert _decide(clear).verdict == verdict


@pytest.mark.parametrize(
    ("name", "file", "function"),
    [
        ("S12", "test_adversarial.py", "def test_"),
        ("S8", "test_adversarial.py", "def test_several_heads"),
        ("M1", "test_simulate.py", "monoton|energy"),
    ],
)
def test_pointers_lead_to_the_test_of_the_statement(name: str, file: str, function: str) -> None:
    path = ROOT / CLAIMS[name].checked_by
    assert path.name == file
    assert re.search(function, path.read_text(encoding="utf-8"))


def test_verify_says_what_differs() -> None:
    assert _first_difference(b"a,1.0\n", b"a,1.00000000001\n") is None
    words = _first_difference(b"name,0.123456789\n", b"name,0.223456789\n")
    assert words is not None
    assert "0.123456789" in words
    assert "0.223456789" in words


def test_trials_count_once() -> None:
    """Figure 3 is part of Figure 8, and Figure 7 of Figures 11 and 12."""
    assert not {"fig3", "fig7"} & set(STUDIES)


def test_theorems_have_no_intervals() -> None:
    for one in JUDGED.values():
        if one.claim.kind != "observation":
            assert one.low is None, one.claim.id
            assert one.high is None, one.claim.id
    for block in claims_page(ROOT / "results").split("Theorems and assumptions:")[1:]:
        table = block.split("\n## ")[0]
        assert not re.search(r"\[[+-]?\d[^\]]*, [+-]?\d[^\]]*\] \|", table)


@pytest.mark.parametrize(
    ("name", "words"),
    [("S10", "conditional transport distance"), ("R9", "violates A2"), ("R40", "Q = K = V = I"), ("R14", "symmetric")],
)
def test_the_scope_of_a_check_is_said(name: str, words: str) -> None:
    claim: Claim = CLAIMS[name]
    assert words in claim.note
    if claim.kind == "theorem":
        assert JUDGED[name].verdict != "contradicted"


@pytest.mark.parametrize("name", ["R4", "R14", "R44", "R45"])
def test_claims_that_take_seconds_are_checked(name: str) -> None:
    assert CLAIMS[name].checked_by == "tests/studies/test_claims_by_example.py"


def test_no_claim_waits_for_a_study_that_is_not_there() -> None:
    for claim in CLAIMS.values():
        assert claim.endpoint is None or claim.endpoint.study in STUDIES, claim.id


def test_pages_of_theorems_have_no_intervals_and_count_shares() -> None:
    pages = claims_pages(ROOT / "results")
    for claim in CLAIMS.values():
        if claim.kind != "observation":
            assert not re.search(r"\[[+-]?[\d.e-]+, [+-]?[\d.e-]+\]", pages[claim.id].split("## All checks")[-1]), (
                claim.id
            )
    assert "| 100% | holds |" in pages["R13"]
    assert "minus one half" not in pages["R13"]


@pytest.mark.parametrize("name", ["R30", "R31", "R32"])
def test_table_1_stands_beside_that_of_the_paper(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "adjusted-lvit" / "paper"
    folder.mkdir(parents=True)
    columns = [
        f"{c}{half}" for c in ("running_accuracy", "test_accuracy", "running_gap") for half in ("", " half width")
    ]
    rows = ["mnist,decrease,2,0.98,0.001,0.985,0.002,-0.005,0.003", "mnist,none,1,0.98,,0.985,,-0.005,",
            "cifar10,decrease,1,0.7,,0.65,,0.05,", "cifar10,increase,1,0.7,,0.61,,0.09,"]  # fmt: skip
    (folder / "adjusted-lvit.csv").write_text("\n".join([",".join(["data", "arm", "trials", *columns]), *rows]))
    page = claims_pages(tmp_path)[name]
    assert "| mnist | decrease | 2 | 0.980 ± 0.001 | 0.981 | 0.985 ± 0.002 | 0.984 | -0.005 ± 0.003 | -0.003 |" in page
    assert "| mnist | none | 1 | 0.980 |  | 0.985 |  | -0.005 |  |" in page
    assert "Further than 5 points from the paper's test accuracy on cifar10: increase (+0.053). The paper does" in page
    assert "accuracy on mnist" not in page


def test_the_papers_differences_are_those_of_its_table() -> None:
    for name, place in (("R32", 0), ("R30", 1), ("R31", 2)):
        end = CLAIMS[name].endpoint
        assert end is not None
        for data, effect in end.paper.items():
            rows = PAPER_TABLE_1[data]
            assert effect == pytest.approx(rows["decrease"][place] - rows["increase"][place], abs=1e-9), (name, data)
