"""The ledger: every claim has a row, verdicts follow from findings, and docs/claims.md is what results/ gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from geoattn.errors import GeoattnError
from geoattn.studies.claims import Claim, claims, papers
from geoattn.studies.ledger import Evidence, claims_page, overall, read_results
from geoattn.studies.study import STUDIES

ROOT = Path(__file__).parents[2]
CLAIM = Claim("X1", "ricci", "Figure 1", "observation", "It grows.", (("growth", "it grows"),))


def evidence(verdict: str, convention: str | None = None, measure: str = "") -> Evidence:
    finding = {"claim": "it grows", "data": "digits", "difference": 1.0, "low": 0.5, "high": 1.5, "trials": 3}
    return Evidence("growth", "small", "", finding | {"verdict": verdict, "convention": convention, "measure": measure})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([], "not tested yet"),
        ([("replicated", None), ("replicated", None)], "replicated"),
        ([("contradicted", None)], "contradicted"),
        ([("replicated", None), ("not replicated", None)], "depends on the data"),
        ([("contradicted", None), ("not replicated", None)], "not replicated"),
        ([("replicated", "markov"), ("contradicted", "grc-0.5")], "depends on the convention"),
        ([("replicated", "markov"), ("not replicated", "hop")], "depends on the convention"),
        ([("replicated", "markov"), ("replicated", "hop")], "replicated"),
        ([("replicated", "markov"), ("contradicted", "markov"), ("contradicted", "hop")], "depends on the data"),
    ],
)
def test_verdict_on_a_claim(found: list[tuple[str, str | None]], verdict: str) -> None:
    assert overall(CLAIM, [evidence(*one) for one in found]) == verdict


def test_what_the_plots_leave_out_does_not_decide() -> None:
    trimmed = evidence("contradicted", "markov", "mean; zeros and outliers left out")
    assert overall(CLAIM, [evidence("replicated", "markov"), trimmed]) == "replicated"


def test_a_checked_theorem_is_no_replication() -> None:
    theorem = Claim("X2", "ricci", "", "theorem", "It is so.", (), "", "tests/studies/test_ledger.py")
    assert overall(theorem, []) == "theorem, checked"


def test_the_catalogue_is_sound() -> None:
    numbers = [claim.id for claim in claims()]
    assert len(set(numbers)) == len(numbers) >= 60
    for claim in claims():
        assert claim.paper in papers()
        assert claim.kind in ("theorem", "assumption", "observation")
        assert all(study in STUDIES for study, _ in claim.tests), claim.id
        assert not claim.checked_by or (ROOT / claim.checked_by).is_file(), claim.id
        for _, pattern in claim.tests:
            re.compile(pattern)


def write(root: Path, size: str, findings: list[dict[str, Any]]) -> None:
    folder = root / "growth" / size
    folder.mkdir(parents=True)
    (folder / "growth.json").write_text(json.dumps({"findings": findings, "how": "By hand."}))


def test_the_largest_size_counts_and_smoke_never_does(tmp_path: Path) -> None:
    base = evidence("replicated").finding
    write(tmp_path, "smoke", [base])
    assert read_results(tmp_path) == []
    write(tmp_path, "small", [base | {"data": "a few"}])
    assert [e.finding["data"] for e in read_results(tmp_path)] == ["a few"]
    write(tmp_path, "paper", [base | {"data": "all"}])
    assert [e.finding["data"] for e in read_results(tmp_path)] == ["all"]


def test_a_finding_that_no_claim_asks_for_is_shown_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, "small", [evidence("replicated").finding | {"claim": "a | b", "low": None, "difference": -0.25}])
    page = claims_page(tmp_path)
    assert "| a \\| b | digits |  | -0.25 (no interval, n = 3) |" in page
    assert page.index("Questions of our own") < page.index("a \\| b")
    assert all(f"\n| {claim.id} | " in page for claim in claims())


def test_bad_results(tmp_path: Path) -> None:
    with pytest.raises(GeoattnError, match="no results in"):
        claims_page(tmp_path / "nowhere")
    (tmp_path / "growth" / "small").mkdir(parents=True)
    (tmp_path / "growth" / "small" / "growth.json").write_text("{")
    with pytest.raises(GeoattnError, match="cannot be read"):
        claims_page(tmp_path)


def test_the_page_is_what_the_results_give() -> None:
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == claims_page(ROOT / "results"), (
        "run: geoattn study ledger --out docs/claims.md"
    )
