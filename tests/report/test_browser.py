"""The page in a real browser: headless Chromium, from disk, with the network off."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from geoattn.report.page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install 'geoattn[test]'")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver: apt-get install chromium chromium-driver"
)


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        driver.get("about:blank")
        self.look(1280)
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(path.as_uri())
        self.until("document.documentElement.dataset.ready === 'yes'")

    def look(self, width: int, dark: bool = False) -> None:
        """Another window, another scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, expression: str) -> None:
        """Wait until an expression holds."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 30, 0.05).until(lambda _: self(expression))

    def __call__(self, expression: str, *values: Any) -> Any:
        """The value of an expression in the page."""
        return self.driver.execute_script(f"return {expression}", *values)

    def choose(self, selector: str, value: str | int) -> None:
        """Set a control as a user does: value, then the event."""
        event = "input" if "layer" in selector or "head" in selector else "change"
        self.driver.execute_script(
            "const c = document.querySelector(arguments[0]); c.value = arguments[1];"
            "c.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
            selector, str(value), event,
        )  # fmt: skip

    def picture(self) -> str:
        return self("document.querySelector('[data-graph-frame]').innerHTML")

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options, Service(DRIVER))
    started.execute_cdp_cmd("Network.enable", {})
    off = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    started.execute_cdp_cmd("Network.emulateNetworkConditions", off)
    yield started
    started.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory, digits, untrained, hostile) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    made = {name: folder / f"{name}.html" for name in ("one", "two", "hostile", "unguarded")}
    write_report(made["one"], digits)
    write_report(made["two"], digits, untrained)
    write_report(made["hostile"], hostile, command="<script>window.owned=8</script>")
    # The same without its policy: escaping alone must do.
    text = made["hostile"].read_text(encoding="utf-8")
    made["unguarded"].write_text(re.sub(r"<meta http-equiv=[^>]*>", "", text, count=1), encoding="utf-8")
    return made


@pytest.fixture
def show(driver, files) -> Callable[..., Page]:
    return lambda name: Page(driver, files[name])


@pytest.mark.parametrize("name", ["one", "two", "hostile"])
def test_it_loads_from_disk_without_a_complaint_or_a_request(show, name):
    page = show(name)
    assert page.complaints() == []
    assert {url.split(":")[0] for url in page.requests()} <= {"file", "data", "blob"}
    figures = page("[...document.querySelectorAll('[data-figure]')].map((f) => f.querySelectorAll('.main-svg').length)")
    assert figures
    assert all(figures)


def test_the_sliders_change_the_graph_and_its_tables(show):
    page = show("one")
    layer = "[data-graph-control=layer]"
    before, table = page.picture(), page("document.querySelector('[data-graph-table=strongest]').innerText")
    assert page("document.querySelectorAll('[data-graph-frame] .edge').length") == 40
    page.choose(layer, 7)
    assert page.picture() != before
    assert page("document.querySelector('[data-graph-table=strongest]').innerText") != table
    assert page("document.querySelector('[data-graph-output=layer]').textContent") == "7"
    page.choose(layer, 0)
    assert page.picture() == before
    page.choose("[data-graph-control=example]", 1)
    assert page.picture() != before
    page.choose("[data-graph-control=show]", "all")
    assert page("document.querySelectorAll('[data-graph-frame] .edge').length") == 17 * 16 // 2


def test_conventions_and_models_switch(show):
    page = show("two")
    section = "[data-section=distributions]"

    def shown(figure: str) -> str:
        return page(f"document.querySelector('{section} [data-figure={figure}]').textContent")

    before = shown("ends")
    page.choose(f"{section} [data-control=convention]", "grc-0.5")
    other = shown("ends")
    assert other != before
    page.choose(f"{section} [data-control=model]", 1)
    assert shown("ends") not in (before, other)
    assert page(f"document.querySelector('{section} [data-figure=ends]').dataset.variant") == "1|grc-0.5"
    page.choose("[data-section=comparison] [data-control=place]", "first")
    assert page("document.querySelector('[data-figure=overlay]').dataset.variant") == "first|markov"
    models = page("[...document.querySelectorAll('[data-graph-control=example] option')].map((o) => o.textContent)")
    assert models == ["lvit-digits, sample 0", "lvit-digits, sample 1", "untrained, sample 0"]
    assert page.complaints() == []


@pytest.mark.parametrize("name", ["one", "two", "hostile"])
def test_nothing_overflows_and_the_scheme_is_followed(show, name):
    page = show(name)
    page.driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    colours = set()
    for width in (1280, 390):
        for dark in (False, True):
            page.look(width, dark)
            drawn = (
                "[...document.querySelectorAll('[data-figure] .main-svg')].every((f) => f.clientWidth < arguments[0])"
            )
            page.until(f"(() => {{ const arguments = [{width}]; return {drawn}; }})()")
            assert page("document.documentElement.scrollWidth") <= width
            # What is wider than the page must sit in a box that scrolls by itself.
            wide = page(
                "[...document.querySelectorAll('main *')].filter((e) => !e.closest(arguments[1])"
                " && e.getBoundingClientRect().right > arguments[0] + 1).map((e) => `${e.tagName}.${e.className}`)",
                width, ".scroll, pre, .visually-hidden, svg",
            )  # fmt: skip
            assert wide == []
            text = "getComputedStyle(document.querySelector('[data-figure] text')).fill"
            colours.add((dark, page("getComputedStyle(document.body).backgroundColor"), page(text)))
    assert len(colours) == 2  # of paper and of ink, one for each scheme
    assert len({paper for _, paper, _ in colours}) == len({ink for *_, ink in colours}) == 2


def test_a_box_with_more_to_show_has_a_shade_at_its_side(show):
    page = show("hostile")
    page.look(390)
    wide = (
        "[...document.querySelectorAll('.graph-picture .scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
        ".map((e) => getComputedStyle(e).backgroundAttachment)"
    )
    assert page(wide) == ["local, local, scroll, scroll"]


@pytest.mark.parametrize("name", ["hostile", "unguarded"])
def test_hostile_text_runs_nowhere(show, name):
    page = show(name)
    for example in range(page("document.querySelector('[data-graph-control=example]').options.length")):
        page.choose("[data-graph-control=example]", example)
        for layer in range(3):
            page.choose("[data-graph-control=layer]", layer)
            page.choose("[data-graph-control=head]", layer % 2)
    for select in range(page("document.querySelectorAll('select[data-control]').length")):
        page.driver.execute_script(
            "const s = document.querySelectorAll('select[data-control]')[arguments[0]];"
            "for (const o of s.options) { s.value = o.value; s.dispatchEvent(new Event('change')); }",
            select,
        )
    assert page("typeof window.owned") == "undefined"
    assert page("document.querySelectorAll('script').length") == 6
    assert page("document.querySelectorAll('main img, main iframe, main [onerror], main [onload]').length") == 0
    assert page("document.querySelectorAll('a[href^=\"javascript\"]').length") == 0
    assert page.complaints() == []
    # It is shown, not hidden: the tokens stand there as text.
    page.choose("[data-graph-control=example]", 0)
    labels = page("[...document.querySelectorAll('[data-graph-frame] circle title')].map((t) => t.textContent)")
    assert labels[1].startswith("<script>window.owned=1")
    assert any("10,000 characters" in label for label in labels)


def test_controls_are_labelled_and_work_by_keyboard(show):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page = show("hostile")
    before = page.picture()
    page.driver.find_element(By.CSS_SELECTOR, "[data-graph-control=head]").send_keys(Keys.ARROW_RIGHT)
    assert page("document.querySelector('[data-graph-output=head]').textContent") == "1"
    assert page.picture() != before
    unlabelled = page("[...document.querySelectorAll('select, input')].filter((c) => !c.labels.length).length")
    assert unlabelled == 0
    reachable = "select, input, a, summary, .scroll, pre"
    assert page("[...document.querySelectorAll(arguments[0])].filter((c) => c.tabIndex < 0).length", reachable) == 0
    headings = page("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert headings[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
