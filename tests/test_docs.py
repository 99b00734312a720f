"""The documentation: every Python example runs as it stands, and every link inside leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """Each on its own, as a reader would copy it; one process per page saves the imports."""
    blocks = examples(page)
    code = "\n".join(f"exec(compile({block!r}, 'example {k}', 'exec'), {{}})" for k, block in enumerate(blocks))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_page_on_conventions_says_what_comes_out() -> None:
    code = next(block for block in examples(DOCS / "conventions.md") if "means" in block)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    rises = {}
    for line in done.stdout.splitlines():
        preset, before, _, after = line.split()
        rises[preset] = float(after) > float(before)
    assert rises == {"markov": False, "hop": False, "grc-0.6": False, "grc-0.5": True}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (DOCS / link).is_file(), link


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": {page.name}" in navigation for page in PAGES)
