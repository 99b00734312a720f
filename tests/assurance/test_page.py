"""The page that says what is promised names tests that are there, and figures that were reached."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/dev/assurance.md").read_text(encoding="utf-8")


def test_every_file_that_it_names_is_there() -> None:
    names = re.findall(r"`((?:tests|src)/[\w/.-]+)`", PAGE)
    assert len(names) > 20
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_every_target_that_it_names_is_one_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", PAGE)) <= targets


def test_its_number_of_faults_is_that_of_the_record() -> None:
    record = json.loads((ROOT / "tests/assurance/results/faults.json").read_text())
    assert f"{record['faults']:,} faults" in PAGE
