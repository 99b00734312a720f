"""CONTRIBUTING: the paths that it names exist, and the ten questions of a newcomer have an answer each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOP = ("src/", "native/", "tests/", "docs/", "benchmarks/")
QUESTIONS = (
    "a curvature preset", "an attention kind", "a lens", "a perturbation", "an integrator", "a command",
    "a report section", "a regulariser", "another pivot rule", "a study",
)  # fmt: skip


def paths(text: str) -> list[str]:
    return [span for span in re.findall(r"`([\w./-]+)`", text) if span.startswith(TOP)]


@pytest.mark.parametrize("path", sorted(set(paths(TEXT))))
def test_the_path_exists(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_question_has_one_line_with_a_path(question: str) -> None:
    (line,) = re.findall(rf"^\| {question}[^|]*\| (.*) \|$", TEXT, flags=re.M)
    assert paths(line)


def test_every_package_is_named() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "geoattn").glob("*/__init__.py")}
    assert packages <= {Path(path).name for path in paths(TEXT)}
