"""The lens of smoothness in a profile, and its section in the report."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.profiles.result import Profile
from geoattn.report.models import Models
from geoattn.report.page import page
from geoattn.report.smoothness import curvature_link, smoothness
from tests.report.conftest import HOSTILE, Words, texts


@pytest.fixture(scope="module")
def digits() -> Profile:
    rows = ga.load_data("digits", split="test", limit=6)
    return ga.profile(
        ga.load_model("lvit-digits"), rows, convention=["markov", "hop"], lenses=["weights", "smoothness"],
        smoothness_samples=4, examples=2, resamplings=50,
    )  # fmt: skip


@pytest.fixture(scope="module")
def words() -> Profile:
    model = ga.load_model("bert-tiny", weights="random", vocab_size=60, hidden_size=16, intermediate_size=16)
    rows = texts(" ".join(HOSTILE), "two words", "and now three")
    return ga.profile(
        model, rows, tokenizer=Words(), convention=["markov", "hop"], lenses=["weights", "smoothness"], examples=2,
        resamplings=50,
    )  # fmt: skip


def test_the_lens_is_the_function(digits):
    found = ga.model_smoothness(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4))
    mine = found.summary()
    for layer in (0, 7):
        row = mine[(mine["layer"] == layer) & (mine["head"] == 0)].iloc[0]
        value, low, high = digits.value("local_constant", lens="smoothness", layer=layer, head=0)
        assert value == pytest.approx(row["value"], rel=1e-6)
        assert low <= value <= high
        for name in ("bound", "ratio", "r2_gamma"):
            assert digits.value(name, lens="smoothness", layer=layer)[0] == pytest.approx(row[name], rel=1e-6)
    np.testing.assert_allclose(digits.examples[1].moves[3], found.calls[3].moves[1], atol=1e-4)
    assert digits.settings["smoothness_samples"] == 4


def test_it_is_measured_on_request_only():
    rows = ga.load_data("digits", split="test", limit=2)
    plain = ga.profile(ga.load_model("lvit-digits"), rows, resamplings=2)
    assert "smoothness" not in set(plain.table["lens"])
    assert plain.examples[0].moves == ()
    assert smoothness(Models.of(plain, None)) is None
    with pytest.raises(GeoattnError, match=r"unknown lens .smooth.; expected some of .* smoothness"):
        ga.profile(ga.load_model("lvit-digits"), rows, lenses=["smooth"])


def test_batches_do_not_matter(digits):
    rows = ga.load_data("digits", split="test", limit=6).pixels()
    other = ga.profile(
        ga.load_model("lvit-digits"), [rows[:3], rows[3:]], lenses=["smoothness"], smoothness_samples=4, resamplings=50
    )
    for layer in range(8):
        expected = digits.value("local_constant", lens="smoothness", layer=layer)
        assert other.value("local_constant", lens="smoothness", layer=layer) == pytest.approx(expected, rel=1e-5)


def test_it_survives_the_disk(digits, tmp_path):
    digits.save(tmp_path / "profile.npz")
    again = Profile.load(tmp_path / "profile.npz")
    for k, moves in enumerate(digits.examples[0].moves):
        np.testing.assert_array_equal(again.examples[0].moves[k], moves)
    assert page(again) == page(digits)


def test_the_section(digits, words):
    section = smoothness(Models.of(digits, None))
    assert section is not None
    figures = {figure.name: figure for figure in section.figures}
    assert set(figures) == {"layers", "link", "moves"}  # one head a layer: no map of heads
    layers = figures["layers"].variants["0"]["data"]
    assert len(layers[0]["y"]) == 8
    assert (np.array(layers[0]["y"]) < np.array(layers[1]["y"])).all()
    picture = figures["moves"].variants["0|0|0"]["data"][0]
    moves = digits.examples[0].moves[0][0]
    np.testing.assert_allclose(picture["z"].sum() + moves[0] ** 2, 1.0, atol=1e-3)
    assert any("Do heads with low curvature amplify more?" in line for line in section.lead)
    both = smoothness(Models.of(digits, words))
    assert both is not None
    assert {figure.name for figure in both.figures} == {"layers", "link", "map", "moves"}
    for figure in both.figures:
        controls = {c.name: [value for value, _ in c.options] for c in both.controls}
        keys = [""]
        for name in figure.by:
            keys = [f"{key}|{value}" if key else value for key in keys for value in controls[name]]
        assert set(keys) == set(figure.variants)  # whatever is chosen there is a picture


def test_hostile_tokens_stay_text(words):
    html = page(words)
    assert "<script>window.owned" not in html
    data = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', html, re.S).group(1))
    bars = data["smoothness"]["figures"]["moves"]["variants"]["0|0|0"]["data"][0]
    assert not any("<" in label for label in bars["text"])


def test_the_link_has_a_sign():
    """Heads whose curvature falls as their constant rises: a correlation of -1; too few heads: none."""
    table = ga.profile(torch.nn.TransformerEncoderLayer(16, 8, 16, batch_first=True), [torch.randn(2, 5, 16)],
                       lenses=["smoothness"], resamplings=2).table  # fmt: skip
    heads = table["head"].notna()
    constant = heads & (table["lens"] == "smoothness") & (table["statistic"] == "local_constant")
    mean = heads & (table["lens"] == "curvature") & (table["statistic"] == "mean")
    table.loc[constant, "value"] = table.loc[constant, "head"].astype(float)
    table.loc[mean, "value"] = -(table.loc[mean, "head"].astype(float) ** 2)
    from geoattn.graph.convention import Convention

    made = Profile(
        table, ("self_attn",), (Convention.of("markov"),), {}, {}, (), {"heads": [8], "level": 0.95, "samples": 2}
    )
    link = curvature_link(made, "markov")
    assert link is not None
    assert link.value == pytest.approx(-1)
    assert link.sign == -1
    few = Profile(
        table[table["head"].isna() | (table["head"] < 4)], ("self_attn",), (Convention.of("markov"),), {}, {}, (),
        {"heads": [4], "level": 0.95, "samples": 2},
    )  # fmt: skip
    assert curvature_link(few, "markov") is None
