"""Some seconds of each fuzzer, and all files that once showed a defect. `make fuzz` goes on where this stops."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.assurance.fuzz import arguments, files, maps
from tests.assurance.fuzz.seeds import CORPUS, seeds
from tests.assurance.fuzz.targets import TARGETS, try_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_format_has_a_target_and_a_good_file(tmp_path: Path) -> None:
    assert set(seeds()) == set(TARGETS)
    for name, contents in seeds().items():
        for content in contents:
            assert try_file(name, content, tmp_path) is None, name


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_files_of_earlier_defects(path: Path, tmp_path: Path) -> None:
    assert try_file(path.parent.name, path.read_bytes(), tmp_path) is None


@pytest.mark.parametrize("name", TARGETS)
def test_files(name: str) -> None:
    assert files.fuzz(name, range(-100, 0)) == []


def test_maps() -> None:
    tally, wrong = maps.fuzz(range(-200, 0))
    assert wrong == []
    assert tally["graphs"] > 150


def test_arguments() -> None:
    assert arguments.fuzz(range(-80, 0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_files(name: str) -> None:
    assert files.fuzz(name, range(int(os.environ.get("GEOATTN_FUZZ", "3000")))) == []


@pytest.mark.slow
def test_many_maps() -> None:
    assert maps.fuzz(range(int(os.environ.get("GEOATTN_FUZZ", "3000"))))[1] == []
