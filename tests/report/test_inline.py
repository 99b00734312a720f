"""Views for notebooks: what is in them, that a frame shows them without a network, and that a click shows a head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.profiles.record_profile import record_profile
from geoattn.report.page import write_report
from tests.report.test_browser import CHROMIUM, DRIVER, Page, driver

__all__ = ["driver"]  # a fixture

in_browser = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver")


@pytest.fixture(scope="module")
def record() -> Any:
    model = ga.load_model("lvit-digits")
    with ga.capture(model, inputs=True) as record, torch.no_grad():
        model(ga.load_data("digits", split="test", limit=3).pixels())
    return record


@pytest.fixture(scope="module")
def results(record: Any, digits: Any, hostile: Any) -> dict[str, Any]:
    sample = ga.datasets.load_sample()
    return {
        "profile": digits, "hostile": hostile, "record": record, "call": record[2],
        "maps": ga.ollivier_ricci(sample[:, 0]), "five axes": ga.ollivier_ricci(sample),
        "one map": ga.ollivier_ricci(sample[0, 0, 0]),
        "drawn": ga.ollivier_ricci(sample[0], edges=9), "flow": ga.dynamics.token_flow(record),
        "trajectory": ga.simulate(torch.eye(5, dtype=torch.float64), until=2.0, save=9),
        "several runs": ga.simulate(torch.eye(5, dtype=torch.float64).expand(3, 5, 5), until=1.0, save=5),
    }  # fmt: skip


NAMES = [
    "profile",
    "hostile",
    "record",
    "call",
    "maps",
    "five axes",
    "one map",
    "drawn",
    "flow",
    "trajectory",
    "several runs",
]


@in_browser
@pytest.mark.parametrize("name", NAMES)
def test_a_frame_shows_it_without_a_complaint_or_a_request(
    driver: Any, results: Any, name: str, tmp_path: Path
) -> None:
    host = tmp_path / "host.html"
    frame = results[name].view()._repr_html_()
    assert frame.count("<") == 2, "everything inside the attribute must be escaped"
    host.write_text(
        f"<!doctype html><html data-ready='yes'><link rel=icon href='data:,'><body>{frame}", encoding="utf-8"
    )
    page = Page(driver, host)
    driver.switch_to.frame(0)
    try:
        page.until("document.documentElement.dataset.ready === 'yes'")
        assert (
            page("document.querySelectorAll('[data-graph-frame] svg, [data-sphere-frame] svg, .main-svg').length") > 0
        )
        assert page("document.documentElement.scrollWidth <= window.innerWidth")
        assert page("typeof window.owned") == "undefined"
        if name in ("record", "maps"):
            before = page.picture()
            page.choose("[data-graph-control=layer]", 3)
            assert page.picture() != before
    finally:
        driver.switch_to.default_content()
    assert page.complaints() == []
    assert {url.split(":")[0] for url in page.requests()} <= {"file", "data", "blob", "about"}


@in_browser
def test_a_click_on_a_cell_shows_the_graph_of_that_head(driver: Any, hostile: Any, tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", hostile)
    page = Page(driver, tmp_path / "r.html")
    before = page.picture()
    driver.execute_script("document.querySelector('[data-section=heads]').scrollIntoView({behavior: 'instant'})")
    page.until("Boolean(document.querySelector('[data-section=heads] .nsewdrag'))")
    box = page(
        "(() => { const r = document.querySelector('[data-section=heads] .nsewdrag').getBoundingClientRect();"
        " return [r.left, r.top, r.width, r.height]; })()"
    )
    x, y = box[0] + box[2] * 0.75, box[1] + box[3] * (2.5 / 3)  # head 1 of 2, layer 2 of 3
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        event = {"type": kind, "x": x, "y": y, "button": "left" if kind != "mouseMoved" else "none", "clickCount": 1}
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    page.until("document.querySelector('[data-graph-output=layer]').textContent === '2'")
    assert page("document.querySelector('[data-graph-output=head]').textContent") == "1"
    assert page.picture() != before
    assert page.complaints() == []


def test_a_record_shows_the_numbers_of_its_sample(record: Any) -> None:
    small = record_profile(list(record), 1)
    expected = ga.ollivier_ricci(record[4].attention(sample=1)).values()
    assert small.value("mean", layer=4)[0] == pytest.approx(expected.mean(), abs=1e-6)
    named = record_profile(list(record), 1, tokens=[f"t{k}" for k in range(17)])
    assert named.edges(0, 4, 0, tokens=True).token_i[0].startswith("t")
    np.testing.assert_allclose(np.sort(small.edges(0, 4, 0).kappa), np.sort(expected), atol=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda r: r.view(sample=9), "the record has samples 0 to 2; got 9"),
        (lambda r: r.view(tokens=["a"]), "name each of the 17 tokens; got 1"),
        (lambda r: r.view(colour="red"), "this choice: colour; it has sample, tokens, convention, height"),
        (lambda r: record_profile(list(r)).view(layer=2, head=0), "this choice: layer, head; it has flows, height"),
        (lambda r: ga.report.view(3), "there is no view of int; there is one of Profile, Record"),
        (lambda r: ga.ollivier_ricci(ga.datasets.load_sample()[0, 0, 0]).view(tokens=["a"]), "each of the 17 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_said(record: Any, make: Any, words: str) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        make(record)
