"""The site: it builds without a warning, its links and anchors lead somewhere, its pages are short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.report.test_browser import CHROMIUM, DRIVER, driver

__all__ = ["driver"]  # the fixture

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MOST_WORDS = 2500


class Page(HTMLParser):
    """Links, anchors and the headings of API objects of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.objects: list[str] = []
        self._is_object = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := given.get(name))]
        if anchor := given.get("id"):
            self.anchors.add(anchor)
        self._is_object |= "doc-heading" in (given.get("class") or "")

    def handle_data(self, data: str) -> None:
        if self._is_object and data.strip():
            self.objects.append(data.strip())
            self._is_object = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > len(list(DOCS.glob("*.md")))
    faults = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                faults.append(f"{path.relative_to(site)}: there is no {link}")
            elif target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                faults.append(f"{path.relative_to(site)}: no anchor for {link}")
    assert not faults, "\n".join(faults)


def test_headings_of_the_api_are_the_names_that_users_type(site: Path) -> None:
    listed = re.findall(r"^::: geoattn\.(\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), flags=re.M)
    headings = Page(site / "api" / "index.html").objects
    assert [name for name in headings if name.startswith("ga.")] == [f"ga.{name}" for name in listed]
    assert not [name for name in headings if name.startswith("geoattn")]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= MOST_WORDS


def opened(driver: Any, page: Path, width: int, *, dark: bool = False, fresh: bool = True) -> Any:
    """The browser with a page of the site, as someone sees it who comes for the first time."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(page.as_uri())
    if fresh:
        driver.execute_script("localStorage.clear()")
        driver.get(page.as_uri())
    return driver


in_browser = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver")


@in_browser
@pytest.mark.parametrize("width", [1280, 800])
def test_the_last_column_of_a_table_is_within_the_page(site: Path, driver: Any, width: int) -> None:
    """What is outside is cut off: of the claims that was the verdict."""
    for name, least in (("claims", 3), ("cheatsheet", 2), ("conventions", 1)):
        browser = opened(driver, site / name / "index.html", width)
        found = browser.execute_script(
            "return [...document.querySelectorAll('.md-content table:not([class])')].map((table) => {"
            "  const frame = table.closest('.md-content').getBoundingClientRect().right;"
            "  const cells = [...table.querySelectorAll('tr > :last-child')];"
            "  return [frame, Math.max(...cells.map((cell) => cell.getBoundingClientRect().right)),"
            "          table.querySelector('th:last-child').innerText];})"
        )
        assert len(found) >= least
        assert not [(name, head, right) for frame, right, head in found if right > frame]
        if name == "claims":
            assert {head for _, _, head in found} >= {"verdict"}


@in_browser
def test_the_colours_follow_the_system_after_the_first_visit(site: Path, driver: Any) -> None:
    """The theme stores what it chose first; without a button a reader could not leave it."""
    for number, (dark, scheme) in enumerate([(False, "default"), (True, "slate"), (False, "default")]):
        opened(driver, site / "index.html", 1280, dark=dark, fresh=number == 0)
        assert driver.execute_script("return document.body.dataset.mdColorScheme") == scheme
    assert len(driver.find_elements("css selector", "[data-md-component=palette] label")) == 3
