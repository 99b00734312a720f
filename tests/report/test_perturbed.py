"""The section on perturbed inputs: numbers, examples, hostile texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.perturbations.images import Flip, Rotation
from geoattn.perturbations.robustness_table import PerturbedExample, Robustness, robustness
from geoattn.report.models import Models
from geoattn.report.page import page
from geoattn.report.perturbed import perturbed


@pytest.fixture(scope="module")
def found() -> tuple[ga.profiles.Profile, Robustness]:
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=40)
    measured = ga.profile(model, digits.subset(range(4)), convention="hop", examples=0, lenses=("weights",))
    return measured, robustness(model, digits, [Flip(0.4), Rotation(0.4)], seed=3)


def test_the_page_shows_drops_and_examples(found: tuple[ga.profiles.Profile, Robustness]) -> None:
    profile, result = found
    text = page(profile, robustness=result)
    assert "Perturbed inputs" in text
    assert "with seed 3" in text
    assert f"{result['flip 0.4'].perturbed:.1%}" in text
    image = 'src="data:image/png;base64,'
    assert text.count(image) - page(profile).count(image) == 2 * 6 * 2  # before and after, two perturbations
    assert "degrees" in text or "angle" in text  # what was drawn for a rotation
    assert "not robustness" not in text
    assert "Perturbed inputs" not in page(profile)
    assert "not robustness" in page(profile)


def test_hostile_texts_stay_text(found: tuple[ga.profiles.Profile, Robustness]) -> None:
    profile, result = found
    bad = PerturbedExample(
        "flip 0.4", 0, "<script>alert(1)</script>", "\u202e" + "x" * 5000, "<b>", "yes", "no", {"flip": {"n": (1,) * 9}}
    )
    section = perturbed(Models.of(profile, None, dataclasses.replace(result, examples=(bad,))))
    assert section is not None
    assert "<script>" not in section.html
    assert "\u202e" not in section.html
    assert len(section.html) < 6000
    assert "(9 values)" in section.html


def test_two_models_take_two_results(found: tuple[ga.profiles.Profile, Robustness]) -> None:
    profile, result = found
    models: Any = Models.of(profile, profile, [None, result])
    section = perturbed(models)
    assert section is not None
    assert section.html.count("row-name") == 1
    with pytest.raises(GeoattnError, match="of the 1 models"):
        Models.of(profile, None, [result, result])
    colour = dataclasses.replace(result.examples[0], clean=np.zeros((3, 4, 4)), perturbed=np.ones((3, 4, 4)))
    assert perturbed(Models.of(profile, None, dataclasses.replace(result, examples=(colour,)))) is not None
