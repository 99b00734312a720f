"""Links in the prose: every file that is linked exists, and every anchor is a heading of its page."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")]
PAGES += sorted(DOCS.rglob("*.md"))


def without_code(text: str) -> str:
    """Blocks and spans of code hold no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", lambda span: span.group().replace("](", "] ("), text)


def links(page: Path) -> list[str]:
    text = without_code(page.read_text(encoding="utf-8"))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, flags=re.M)


def slug_of_mkdocs(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def slug_of_github(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    slug = slug_of_mkdocs if page.is_relative_to(DOCS) else slug_of_github
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h) for h in re.findall(r"^#{1,6} (.+?)$", text, flags=re.M)]
    given = re.findall(r"""\bid=["']([^"']+)["']""", text) + re.findall(r"\{ ?#([\w-]+) ?\}$", text, flags=re.M)
    return frozenset([slug(h) for h in headings] + given + re.findall(r"^::: (\S+)$", text, flags=re.M))


def fault(page: Path, link: str) -> str | None:
    """Why a link leads nowhere, or None."""
    if link.startswith(("https://", "http://", "mailto:")):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if target.suffix == ".md" and target.with_suffix(".ipynb").exists():
        return None  # a page that the site makes from a notebook
    if not target.exists():
        return f"{link}: there is no {path}"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: {target.name} has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    faults = [why for link in links(page) if (why := fault(page, link))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("link", ["no-such-page.md", "conventions.md#no-such-heading", "#no-such-heading"])
def test_a_broken_link_is_found(link: str) -> None:
    assert fault(DOCS / "index.md", link)
