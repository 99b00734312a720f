"""The section on eigenvalues."""

import numpy as np
import pytest

import geoattn as ga
from geoattn.profiles.result import Profile
from geoattn.report.models import Models
from geoattn.report.spectrum import gap_link, spectrum


@pytest.fixture(scope="module")
def digits() -> Profile:
    rows = ga.load_data("digits", split="test", limit=4)
    return ga.profile(ga.load_model("lvit-digits"), rows, convention=["grc-0.6", "hop"], resamplings=50)


def test_section_shows_what_the_profile_has(digits):
    section = spectrum(Models.of(digits, None))
    assert section is not None
    assert [figure.name for figure in section.figures] == ["layers", "link"]  # one head a layer: no map
    lines = section.figures[0].variants["0"]["data"]
    assert [line["name"] for line in lines] == ["second eigenvalue", "Dobrushin coefficient", "smallest eigenvalue"]
    second, dobrushin = (np.asarray(line["y"]) for line in lines[:2])
    assert (second <= dobrushin + 1e-9).all()
    assert len(section.figures[1].variants) == 2


def test_the_assumption_is_counted(digits):
    section = spectrum(Models.of(digits, None))
    assert section is not None
    sentence = next(line for line in section.lead if "certain to fail" in line)
    assert "0 of 8 under hop" in sentence  # hop distance and rows of A: a theorem
    assert "of 8 under grc-0.6" in sentence


def test_gap_link_is_a_rank_correlation(digits):
    found = gap_link(digits, "hop")
    assert found is not None
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_no_section_without_the_lens():
    rows = ga.load_data("digits", split="test", limit=2)
    profile = ga.profile(ga.load_model("lvit-digits"), rows, convention="hop", lenses=["weights"], resamplings=20)
    assert spectrum(Models.of(profile, None)) is None
