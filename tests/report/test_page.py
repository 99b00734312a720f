"""The page as text: what is in it, what is not, and that it cannot be broken."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pandas as pd
import plotly.graph_objects as go
import pytest

import geoattn as ga
from geoattn.report.page import page, write_report
from geoattn.report.section import Figure, Section
from tests.report.conftest import HOSTILE


class Reader(HTMLParser):
    """Tags with their attributes, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._silent = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def data_of(text: str):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def resolved(value):
    """The figure with plain colours, as the page's script makes it."""
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item) for item in value]
    return "#123456" if isinstance(value, str) and re.match(r"(var|mix)\(--", value) else value


@pytest.fixture(scope="module")
def one(digits):
    return page(digits, command="geoattn report --samples 24")


@pytest.fixture(scope="module")
def two(digits, untrained):
    return page(digits, untrained)


def test_the_summary_answers_first(one):
    text = Reader(one).text
    for words in ("lvit-digits", "24 samples of digits (test)", "distance to one", "What stands out",
                  "It depends on the", "192 graphs", "geoattn report --samples 24"):  # fmt: skip
        assert words in text
    assert text.index("What stands out") < text.index("Layers and heads are numbered from 0")


def test_nothing_is_fetched_and_no_other_script_may_run(one):
    tags = Reader(one).tags
    for tag, attributes in tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("#", "data:")), (tag, value)
    policy = next(a["content"] for tag, a in tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy
    assert len(one) < 8_000_000


def test_a_lens_that_was_not_run_is_not_mentioned(one, digits):
    text = Reader(one).text.lower()
    for lens in ("lipschitz", "smoothness", "dynamics", "forgetting"):
        assert lens not in text
    assert "The two models" not in one  # nor a comparison with nothing
    assert "Layers and heads</h3>" not in one  # one head in each layer


def test_every_variant_is_a_figure_that_plotly_knows(two):
    data = data_of(two)
    count = 0
    for section in data.values():
        for figure in section["figures"].values():
            for spec in figure["variants"].values():
                go.Figure(resolved(spec))
                count += 1
    assert count > 40


def test_controls_reach_every_variant(two):
    data = data_of(two)
    assert set(data["distributions"]["figures"]["ends"]["variants"]) == {
        f"{m}|{c}" for m in (0, 1) for c in ("markov", "hop", "grc-0.6", "grc-0.5")
    }


def test_the_table_can_be_taken_away(one, digits):
    links = {a["download"]: a["href"] for tag, a in Reader(one).tags if tag == "a" and "download" in a}
    for name, read in (("geoattn-profile.csv", pd.read_csv), ("geoattn-profile.parquet", pd.read_parquet)):
        content = base64.b64decode(links[name].split("base64,")[1])
        table = read(io.BytesIO(content))
        assert len(table) == len(digits.table)
        assert table.value.sum() == pytest.approx(digits.table.value.sum())


def test_two_models_have_a_test_and_a_sentence(two):
    text = Reader(two).text
    assert "untrained is closer to 1 than lvit-digits in the last layer" in text
    assert "≤ 0.01" in text  # 2 / resamplings
    assert "paired: both models saw the same samples" in text


def test_the_same_model_twice_gets_two_names(digits):
    text = Reader(page(digits, digits)).text
    assert "lvit-digits (first)" in text
    assert "lvit-digits (second)" in text


def test_profiles_without_a_common_convention_are_refused(digits, hostile):
    other = dataclasses.replace(hostile, conventions=(ga.Convention(length="1/w"),))
    with pytest.raises(ga.GeoattnError, match="share no convention"):
        page(digits, other)


def test_hostile_text_adds_no_element(hostile, digits):
    text = page(hostile, command="geoattn report '<script>window.owned=8</script>'")
    calm, loud = Reader(page(digits)), Reader(text)
    assert {tag for tag, _ in loud.tags} <= {tag for tag, _ in calm.tags}
    assert sum(tag == "script" for tag, _ in loud.tags) == 6
    assert not any(name.startswith("on") for _, attributes in loud.tags for name in attributes)
    tokens = data_of(text)["graph"]["examples"][0]["tokens"]
    assert tokens[1].startswith("<script>window.owned=1")
    assert "… (10,000 characters)" in tokens[HOSTILE.index("x" * 10_000) + 1]
    assert "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" not in text
    assert len(text) < 8_000_000


def test_an_empty_sentence_is_an_example_too(hostile):
    examples = data_of(page(hostile))["graph"]["examples"]
    empty = next(e for e in examples if e["sample"] == 1)
    assert [t for t, v in zip(empty["tokens"], empty["valid"], strict=True) if v] == ["[CLS]", "[SEP]"]


def test_a_section_is_one_function(digits, monkeypatch):
    from geoattn.report import page as module

    spec = {"data": [{"type": "scatter", "x": [0, 1], "y": [0, 1]}], "layout": {}}
    new = Section("spectrum", "Spectrum", ["One sentence."], figures=(Figure("gap", "Gap", {"": spec}),))
    monkeypatch.setattr(module, "SECTIONS", [*module.SECTIONS, lambda models: new])
    text = page(digits)
    assert "One sentence." in text
    assert data_of(text)["spectrum"]["figures"]["gap"]["variants"][""] == spec


def test_a_figure_without_its_first_variant_is_a_mistake():
    with pytest.raises(ga.GeoattnError, match="figure gap of section s has no variant ''"):
        Section("s", "S", figures=(Figure("gap", "Gap", {"markov": {}}),))


def test_a_failed_write_leaves_the_old_file(digits, tmp_path, monkeypatch):
    import os

    target = tmp_path / "report.html"
    digits.report(target)
    before = target.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ga.GeoattnError, match="No space left"):
        write_report(target, digits)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_missing_folders_are_made_as_the_docstring_says(digits, tmp_path):
    digits.report(tmp_path / "new" / "folder" / "report.html")
    assert (tmp_path / "new" / "folder" / "report.html").stat().st_size > 1000
    assert "Folders that are missing are made" in (ga.profiles.Profile.report.__doc__ or "")
    (tmp_path / "file").write_text("")
    with pytest.raises(ga.GeoattnError, match="cannot write"):
        digits.report(tmp_path / "file" / "report.html")
