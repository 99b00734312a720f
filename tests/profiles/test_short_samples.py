"""Samples of one token: they have no edge, and a profile says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import geoattn as ga
from tests.datasets.test_forms import text_folder

__all__ = ["text_folder"]  # a fixture


def test_texts_of_one_word_alone_have_nothing_to_measure(text_folder: Path) -> None:
    model = ga.load_model(text_folder)
    with pytest.raises(ga.GeoattnError, match=r"no sample has two tokens in the graph with tokens='content'.*longer"):
        ga.profile(model, ["film", "good"], tokens="content")
    assert ga.profile(model, ["film", "good"]).settings["values"] > 0


def test_texts_of_one_word_among_others_are_noted(text_folder: Path, tmp_path: Path) -> None:
    texts = ["film", "the film is good", "good"]
    profile = ga.profile(ga.load_model(text_folder), texts, tokens="content", convention=["markov", "hop"])
    assert profile.settings["notes"][0] == "2 of 3 samples have fewer than two tokens in the graph, and no edge"
    profile.report(tmp_path / "report.html")
    assert "2 of 3 samples have fewer than two tokens" in (tmp_path / "report.html").read_text()
