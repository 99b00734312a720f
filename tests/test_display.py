"""Every result class: a repr of fewer than twelve lines, and HTML in which no name can become an element."""

from __future__ import annotations

import dataclasses
import inspect
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn._core.display import Displayed

HOSTILE = "<script>window.owned=1</script>\n\x00\u202e" + "x" * 5000

#: Classes that `geoattn` documents and that are no results: rules, contracts, attachments.
OTHERS = {
    "Convention", "Dataset", "Recipe", "Row", "LensSettings", "Piece", "Moments", "Means", "Combined", "Norm",
    "Penalty", "Processes", "Interaction",
}  # fmt: skip


def result_classes() -> dict[str, type]:
    found = {}
    rooms = "attention curvature datasets dynamics perturbations profiles smoothness spectral statistics training"
    for room in rooms.split():
        for name in getattr(ga, room).__all__:
            one = getattr(getattr(ga, room), name)
            if inspect.isclass(one) and dataclasses.is_dataclass(one) and name not in OTHERS:
                found[name] = one
    return {**found, "Record": ga.attention.Record}


CLASSES = {
    name: one
    for name, one in result_classes().items()
    if not issubclass(one, (ga.perturbations.Perturbation,)) and "sparse" not in one.__module__
}


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def values() -> list[Any]:
    """What fields may hold, at its worst."""
    import pandas as pd

    return [
        HOSTILE, (HOSTILE,) * 3000, {HOSTILE: HOSTILE}, {str(k): k for k in range(5000)}, np.zeros((70, 8, 90)),
        torch.zeros(3, 500), np.array([HOSTILE] * 3), pd.DataFrame({HOSTILE: range(4000)}), None, 3, 2.5, 1 + 2j,
        ga.Convention.of("hop"), [[1, 2], [3]], object(), np.array(2.0), np.array([1.0, np.nan]), float("nan"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_a_result_shows_itself_in_a_few_lines(name: str) -> None:
    """Whatever is in its fields: the shared implementation does not look at what a class means."""
    one = CLASSES[name]
    assert issubclass(one, Displayed), f"{name} must inherit geoattn._core.display.Displayed"
    assert "_repr_html_" not in vars(one)
    if not dataclasses.is_dataclass(one):
        return
    for value in values():
        made = one.__new__(one)
        for field in dataclasses.fields(one):
            object.__setattr__(made, field.name, value)
        text, page = Displayed.__repr__(Plain(made)), Displayed._repr_html_(Plain(made))
        assert len(text.splitlines()) < 12
        assert max(map(len, text.splitlines())) < 200
        assert Tags(page).seen <= {"table", "caption", "tr", "th", "td"}
        assert len(page) < 20_000


class Plain(Displayed):
    """The fields of another result, shown as they are."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def facts(self) -> dict[str, Any]:
        return {f.name: getattr(self._other, f.name) for f in dataclasses.fields(self._other)}


def real_results() -> dict[str, Any]:
    attention = ga.datasets.load_sample()
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4)
    with ga.capture(model, inputs=True) as record, torch.no_grad():
        model(digits.pixels())
    tokens = torch.eye(6, dtype=torch.float64)
    return {
        "Curvature": ga.ollivier_ricci(attention), "one graph": ga.ollivier_ricci(attention[0, 0, 0]),
        "bounds": ga.curvature_bounds(attention[0, 0]), "RicciFlow": ga.ricci_flow(attention[0, 0, 0], iterations=2),
        "Forman": ga.forman_ricci(attention[0]), "Spectrum": ga.spectrum(attention),
        "Smoothness": ga.local_lipschitz(np.eye(4), np.eye(4)),
        "LipschitzBounds": ga.lipschitz_bounds(np.eye(4), np.eye(4), 5, 1.0),
        "Trajectory": ga.simulate(tokens, until=1.0), "TokenFlow": ga.dynamics.token_flow(record),
        "Robustness": ga.robustness(model, digits, ga.perturbations.image_perturbations()),
        "Profile": ga.profile(model, digits, convention=["markov", "hop"], name=HOSTILE),
        "Record": record, "Call": record[0],
        "Example": ga.profile(model, digits).examples[0], "Dataset": digits,
    }  # fmt: skip


def test_real_results_show_their_numbers() -> None:
    for name, result in real_results().items():
        text = repr(result)
        assert len(text.splitlines()) < 12, name
        assert max(map(len, text.splitlines())) < 250, name
        shown = Tags(result._repr_html_())
        assert shown.seen <= {"table", "caption", "tr", "th", "td"}, name
        assert len(shown.text) > 20, name


def test_the_curvature_shows_its_summary() -> None:
    result = ga.ollivier_ricci(ga.datasets.load_sample())
    assert f"distance_to_one: {result.summary()['distance_to_one']:.6g}" in repr(result)


def test_an_unread_record_shows_itself_without_reading() -> None:
    record = ga.capture(torch.nn.Linear(1, 1)).__enter__()
    assert "calls=0" in Displayed.__repr__(record)
    assert "<td" in record._repr_html_()
