"""Conventions: presets, validation, names."""

import numpy as np
import pytest

import geoattn as ga
from geoattn.graph.convention import PRESETS


def test_the_presets_are_those_of_the_table() -> None:
    assert list(PRESETS) == ["markov", "hop", "grc-0.6", "grc-0.5"]
    markov, hop, new, old = PRESETS.values()
    assert (markov.length, markov.measure, markov.alpha, markov.denominator) == ("-log w", "markov", 0.0, "distance")
    assert (hop.length, hop.measure, hop.alpha, hop.denominator) == ("hop", "markov", 0.0, "distance")
    assert (new.length, new.measure, new.alpha, new.denominator, new.floor) == (
        "w",
        "exponential",
        0.5,
        "distance",
        1e-7,
    )
    assert old == new.but(denominator="length", name="grc-0.5")
    assert all(ga.Convention.of(name) is convention for name, convention in PRESETS.items())


@pytest.mark.parametrize(
    "parts",
    [
        {"heads": "some"}, {"direction": "both"}, {"length": "log w"}, {"measure": "row"}, {"denominator": "d"},
        {"alpha": -0.1}, {"alpha": 1.0}, {"alpha": float("nan")}, {"alpha": True}, {"alpha": "lazy"},
        {"exponent": 0}, {"exponent": float("inf")}, {"floor": -1.0}, {"floor": float("nan")},
    ],
)  # fmt: skip
def test_a_bad_part_is_named(parts: dict) -> None:
    (name,) = parts
    with pytest.raises(ga.GeoattnError, match=name):
        ga.Convention(**parts)
    with pytest.raises(ga.GeoattnError, match=name):
        ga.Convention.of("markov").but(**parts)


def test_unknown_names() -> None:
    with pytest.raises(ga.GeoattnError, match=r"grc-0\.6"):
        ga.Convention.of("grc")
    with pytest.raises(ga.GeoattnError, match="lenght"):
        ga.Convention.of("hop").but(lenght="w")


def test_names_say_what_differs_and_numbers_are_plain() -> None:
    convention = ga.Convention.of("grc-0.6").but(alpha=np.float32(0.25))
    assert convention.name == "grc-0.6 (alpha=0.25)"
    assert type(convention.alpha) is float
    assert ga.Convention(length="hop").name == "hop"
    assert ga.Convention(**convention.as_dict()) == convention
