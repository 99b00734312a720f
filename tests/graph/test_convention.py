"""Conventions: presets, validation, names."""

from __future__ import annotations

import dataclasses

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
    for name, preset in PRESETS.items():
        assert preset.name == name
        assert (preset.heads, preset.direction, preset.exponent) == ("each", "mean", 2.0)
        assert ga.Convention.of(preset) is preset
    assert ga.Convention() == markov


@pytest.mark.parametrize(
    "parts",
    [
        {"heads": "some"}, {"direction": "both"}, {"length": "log w"}, {"measure": "row"}, {"denominator": "d"},
        {"heads": None}, {"direction": ["mean"]}, {"length": 1}, {"measure": ""}, {"denominator": b"length"},
        {"alpha": -0.1}, {"alpha": 1.0}, {"alpha": 1}, {"alpha": float("nan")}, {"alpha": float("inf")},
        {"alpha": True},
        {"alpha": "lazy"}, {"alpha": None}, {"alpha": 0.5j}, {"alpha": [0.5]},
        {"exponent": 0}, {"exponent": -2.0}, {"exponent": float("inf")}, {"exponent": float("nan")}, {"exponent": "2"},
        {"exponent": True}, {"exponent": None},
        {"floor": -1.0}, {"floor": float("nan")}, {"floor": float("inf")}, {"floor": "1e-7"}, {"floor": None},
    ],
)  # fmt: skip
def test_a_bad_part_is_named(parts: dict) -> None:
    (name,) = parts
    with pytest.raises(ga.GeoattnError, match=name) as error:
        ga.Convention(**parts)
    assert repr(parts[name]) in str(error.value)
    with pytest.raises(ga.GeoattnError, match=name):
        ga.Convention.of("markov").but(**parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"alpha": 0},
        {"alpha": 0.999999},
        {"alpha": "limit"},
        {"exponent": 1e-3},
        {"exponent": 7},
        {"floor": 0},
        {"floor": 5},
    ],
)
def test_borders_are_allowed(parts: dict) -> None:
    assert ga.Convention(**parts) == ga.Convention().but(**parts)


def test_every_choice_of_the_table_exists() -> None:
    for part, choices in {
        "heads": ("each", "mean"),
        "direction": ("mean", "max", "min", "product", "directed"),
        "length": ("w", "1/w", "-log w", "1-w", "hop"),
        "measure": ("markov", "exponential", "uniform"),
        "denominator": ("distance", "length"),
    }.items():
        for choice in choices:
            convention = ga.Convention(**{part: choice})
            assert getattr(convention, part) == choice
        with pytest.raises(ga.GeoattnError) as error:
            ga.Convention(**{part: "nothing"})
        assert all(choice in str(error.value) for choice in choices)


@pytest.mark.parametrize("name", ["grc", "", "Markov", "grc-0.5.3.2", None, 3, ["markov"], b"hop"])
def test_unknown_names(name: object) -> None:
    with pytest.raises(ga.GeoattnError, match=r"unknown convention .*expected one of markov, hop, grc-0\.6, grc-0\.5"):
        ga.Convention.of(name)  # pyright: ignore[reportArgumentType]


def test_unknown_parts() -> None:
    with pytest.raises(ga.GeoattnError, match="lenght"):
        ga.Convention.of("hop").but(lenght="w")


def test_names_say_what_differs_and_numbers_are_plain() -> None:
    convention = ga.Convention.of("grc-0.6").but(alpha=np.float32(0.25))
    assert convention.name == "grc-0.6 (alpha=0.25)"
    assert type(convention.alpha) is float
    assert ga.Convention(length="hop").name == "hop"
    assert ga.Convention(**convention.as_dict()) == convention
    assert ga.Convention(direction="directed", alpha="limit").name == "markov (direction=directed, alpha=limit)"
    assert ga.Convention.of("markov").but(name="mine").name == "mine"
    assert ga.Convention.of("hop").but(length="-log w").name == "markov"
    assert (
        ga.Convention(length="w", measure="exponential", alpha=0.5, floor=1e-7, denominator="length").name == "grc-0.5"
    )


def test_what_follows_from_the_parts() -> None:
    assert ga.Convention(direction="directed").directed
    assert not ga.Convention(direction="product").directed
    assert ga.Convention(alpha="limit").laziness == 0
    assert ga.Convention(alpha=0.3).laziness == 0.3


def test_conventions_do_not_change() -> None:
    convention = ga.Convention.of("hop")
    with pytest.raises(dataclasses.FrozenInstanceError):
        convention.length = "w"  # pyright: ignore[reportAttributeAccessIssue]
    assert convention.but() == convention
    assert hash(convention) == hash(convention.but())


def test_a_result_carries_its_convention() -> None:
    convention = ga.Convention(length="1/w", alpha=0.1)
    result = ga.ollivier_ricci(np.array([[0.5, 0.5], [0.3, 0.7]]), convention)
    assert result.convention is convention
    assert result.summary()["convention"] == "markov (length=1/w, alpha=0.1)"
