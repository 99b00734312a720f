"""The laws of conventions on every preset, on each choice of each part, and on drawn combinations of parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoattn as ga
from geoattn.graph import PRESETS
from tests.contracts import conventions
from tests.contracts.conventions import check_convention

CHOICES = {
    "heads": ("each", "mean"),
    "direction": ("mean", "max", "min", "product", "directed"),
    "length": ("w", "1/w", "-log w", "1-w", "hop"),
    "measure": ("markov", "exponential", "uniform"),
    "denominator": ("distance", "length"),
    "alpha": (0.0, 0.5, 0.9, "limit"),
    "exponent": (1.0, 2.0),
    "floor": (0.0, 0.3),
}
TABLE = {
    one.name: one
    for preset in PRESETS.values()
    for one in (preset, *(preset.but(**{part: choice}) for part, choices in CHOICES.items() for choice in choices))
}


@pytest.mark.parametrize("name", TABLE)
def test_the_laws(name: str) -> None:
    check_convention(TABLE[name])


def test_every_preset_is_in_the_table() -> None:
    assert set(PRESETS) <= set(TABLE)


@settings(max_examples=40)
@given(st.fixed_dictionaries({part: st.sampled_from(choices) for part, choices in CHOICES.items()}))
def test_the_laws_on_any_combination(parts: dict) -> None:
    check_convention(ga.Convention(**parts))


def test_the_laws_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that counts by its place, and values above 1."""
    exact = ga.ollivier_ricci

    def by_place(attention, convention, **options):
        found = exact(attention, convention, **options)
        found.kappa[..., 0, 1] -= 1e-3
        found.kappa[..., 1, 0] -= 1e-3
        return found

    def too_large(attention, convention, **options):
        found = exact(attention, convention, **options)
        np.add(found.kappa, 1.0, out=found.kappa)
        return found

    for broken in (by_place, too_large):
        monkeypatch.setattr(conventions.ga, "ollivier_ricci", broken)
        with pytest.raises(AssertionError):
            check_convention(PRESETS["markov"])
        monkeypatch.setattr(conventions.ga, "ollivier_ricci", exact)
