"""The section of tokens on the sphere: its numbers, and its sliders in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoattn as ga
from geoattn.report.models import Models
from geoattn.report.page import page, write_report
from geoattn.report.token_view import token_view
from tests.report.test_browser import CHROMIUM, DRIVER, Page, driver

__all__ = ["driver"]  # a fixture


@pytest.fixture(scope="module")
def flow() -> Any:
    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1)
    return ga.profiles.model_flow(model, data, convention=["markov", "hop"])


def models(profile: Any, *flows: Any) -> Models:
    from dataclasses import replace

    return replace(Models.of(profile, None), flows=flows)


def test_points_lie_on_the_sphere_and_both_paths_start_together(digits: Any, flow: Any) -> None:
    section = token_view(models(digits, flow))
    assert section is not None
    scene, unit = section.data["scenes"][0], section.data["unit"]
    layers = np.array(scene["layers"]).reshape(8, 17, 3) * unit
    moving = np.array(scene["flow"]).reshape(41, 17, 3) * unit
    for points in (layers, moving):
        np.testing.assert_allclose(np.linalg.norm(points, axis=-1), 1.0, atol=2e-3)
    np.testing.assert_allclose(layers[0], moving[0], atol=2e-3)
    assert np.ptp(moving[-1], axis=0).max() < 0.05  # the flow has come together
    assert scene["labels"][0] == "CLS"
    assert len(scene["t"]) == 41
    assert {f.name for f in section.figures} == {"cosine", "cosines", "curvature"}
    assert set(section.figures[2].variants) == {"0|markov", "0|hop"}


def test_the_flow_runs_once_with_few_evaluations(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of four evaluations for each moment that is kept; the section runs nothing of its own."""
    from geoattn.dynamics import simulation

    count = 0
    push = simulation.push

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        return push(*given, **more)

    monkeypatch.setattr(simulation, "push", counted)
    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1)
    flow = ga.profiles.model_flow(model, data)
    moments = len(flow.run.t)
    assert count <= 4 * 4 * moments
    before = count
    token_view(models(digits, flow))
    assert count == before
    exact = ga.simulate(
        flow.model.tokens[0], beta=flow.settings["beta"], method="adaptive", until=7.0, save=8, tolerance=1e-10
    )
    np.testing.assert_allclose(flow.flow.tokens.numpy(), exact.tokens.numpy(), atol=2e-5)


def test_no_flow_no_section(digits: Any) -> None:
    assert token_view(models(digits)) is None
    assert token_view(models(digits, None)) is None
    assert "data-sphere-frame></div>" not in page(digits)


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver")
def test_the_sliders_move_the_tokens(driver: Any, digits: Any, flow: Any, tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", digits, flows=[flow])
    shown = Page(driver, tmp_path / "r.html")

    def set_to(name: str, value: Any, event: str) -> str:
        driver.execute_script(
            "const c = document.querySelector(`[data-sphere-control=${arguments[0]}]`); c.value = arguments[1];"
            "c.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
            name, str(value), event,
        )  # fmt: skip
        return shown("document.querySelector('[data-sphere-frame]').innerHTML")

    start = shown("document.querySelector('[data-sphere-frame]').innerHTML")
    assert shown("document.querySelectorAll('[data-sphere-frame] circle title').length") == 17
    assert set_to("time", 20, "input") != start
    assert shown("document.querySelector('[data-sphere-output=time]').textContent") == "3.50"
    assert set_to("time", 0, "input") == start
    assert set_to("turn", 90, "input") != start
    set_to("turn", 30, "input")
    set_to("path", "layers", "change")
    assert shown("document.querySelector('[data-sphere-control=time]').max") == "7"
    set_to("time", 7, "input")
    assert shown("document.querySelector('[data-sphere-output=time]').textContent") == "layer 7"
    driver.execute_script("document.querySelector('[data-sphere-play]').click()")  # it was at the end: from the start
    shown.until("Number(document.querySelector('[data-sphere-control=time]').value) === 2")
    shown.look(390)
    shown.until("[...document.querySelectorAll('[data-figure] .main-svg')].every((f) => f.clientWidth < 390)")
    assert shown("document.documentElement.scrollWidth") <= 390
    assert shown.complaints() == []
