"""The committed results: every table and verdict is what the stored trials give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study
from geoattn.studies.engine.output import check_output

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(plan.parent for plan in RESULTS.glob("*/*/trials.json"))


def test_the_results_are_small() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 25e6


def test_there_are_results_of_every_folder() -> None:
    assert {folder.parent.name for folder in FOLDERS} == {path.name for path in RESULTS.iterdir() if path.is_dir()}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(RESULTS).as_posix())
def test_the_trials_give_the_table(folder: Path) -> None:
    study = find_study(folder.parent.name)
    size = json.loads((folder / "trials.json").read_bytes())["size"]
    assert size == folder.name
    assert not check_output(study, size, Store(folder, study.name, study.version))
