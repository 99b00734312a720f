"""The ledger of studies that are still under way: it can be written at any time, and says how far they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study
from geoattn.studies.claims import claims
from geoattn.studies.evidence import read_progress, read_results
from geoattn.studies.ledger import claims_page, claims_pages, forest_plot
from geoattn.studies.run import take_results
from geoattn.studies.verdicts import judge_claims
from tests.studies.made_up import made_up

STUDIES = list(dict.fromkeys(claim.endpoint.study for claim in claims() if claim.endpoint is not None))


def take(root: Path, name: str, done: int) -> None:
    """Results of the first trials of a study, as `study NAME take` leaves them."""
    study = find_study(name)
    running = Store(root / "running" / name, name, study.version)
    configs = study.configs("paper")
    running.plan("paper", configs)
    for config in configs[:done]:
        running.write(config, made_up(config))
    take_results(study, "paper", root / "results" / name / "paper", running.folder)


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_of_trials_gives_a_table_and_findings(tmp_path: Path, name: str) -> None:
    for done in (1, 2, 4):
        take(tmp_path, name, done)
        about = json.loads((tmp_path / "results" / name / "paper" / f"{name}.json").read_bytes())
        assert about["done"] == done
        page = claims_page(tmp_path / "results")
        assert f"unfinished: {done} of {about['trials']} trials" in page
        assert "nan" not in page.lower().split()
        assert "inf" not in page.lower().split()


def test_the_pages_of_an_unfinished_study(tmp_path: Path) -> None:
    """20 of 48 trials: three data sets, some of them with one or two seeds."""
    take(tmp_path, "adjusted-lvit", 20)
    root = tmp_path / "results"
    pages = claims_pages(root)
    assert pages["R22"].startswith("# R22: ")
    assert "unfinished: 20 of 48 trials" in pages["R22"].splitlines()[0]
    assert "20 of 48 trials are done" in pages["R22"]
    assert "Effect (adjusted-lvit, mean loss, decrease minus increase, pooled)" in pages["R22"]
    assert "The design sees effects from" in pages["R22"]
    assert "unfinished: 0 of 16 trials" in pages["R36"].splitlines()[0]
    assert forest_plot(root).axes
    (one,) = [one for one in judge_claims(read_results(root), read_progress(root)) if one.claim.id == "R22"]
    used = [f for f in json.loads((root / "adjusted-lvit" / "paper" / "adjusted-lvit.json").read_bytes())["findings"]
            if (f["number"], f["more"], f["less"]) == ("mean_loss", "decrease", "increase")]  # fmt: skip
    sets = {f["data"]: f["trials"] for f in used if f["data"] != "pooled"}
    assert one.trials == sum(n for n in sets.values() if n > 1)


def test_a_finished_study_is_not_called_unfinished(tmp_path: Path) -> None:
    take(tmp_path, "masked-lvit", 10_000)
    line = next(line for line in claims_page(tmp_path / "results").splitlines() if line.startswith("| [R36]"))
    assert "unfinished" not in line


def test_a_finished_study_without_the_endpoint_says_so(tmp_path: Path) -> None:
    """Where curvature has no order between two models there is nothing to compare."""
    name = "image-robustness"
    study = find_study(name)
    running = Store(tmp_path / "running", name, study.version)
    configs = study.configs("paper")
    running.plan("paper", configs)
    for config in configs:
        result = made_up({**config, "model": "same"})
        running.write(config, result)
    take_results(study, "paper", tmp_path / "results" / name / "paper", running.folder)
    page = claims_pages(tmp_path / "results")["R47"]
    assert page.startswith("# R47: inconclusive\n")
    assert "are done, and they do not give the endpoint" in page


def test_two_pairs_say_what_they_can_show() -> None:
    both = {claim.id: claim for claim in claims() if claim.id in ("R46", "R47")}
    for claim in both.values():
        assert "cannot show cause" in claim.note
        assert claim.endpoint is not None
        assert claim.endpoint.number.startswith("equal")
    assert {claim.endpoint.study for claim in both.values() if claim.endpoint} == {
        "pretrained-robustness", "image-robustness"}  # fmt: skip


def test_no_verdict_words_are_missing(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    page = claims_page(tmp_path / "results")
    assert not re.search(r"\| *\|$", page, re.MULTILINE)  # the last column is never empty
