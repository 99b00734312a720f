"""The contracts: everything of a kind obeys the laws of its kind, that of geoattn and that of docs/extending.md."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import geoattn as ga
from tests.contracts.laws import lens_laws, perturbation_laws
from tests.training.attachment_laws import check_attachment

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
TEXTS = ["the film is a quiet joy", "nothing here works at all", "a long and winding road", "short", "two words", "six"]
IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@cache
def users_classes() -> dict[str, Any]:
    """Run the page as a reader would, and keep what it defines; in a module, so that pickle finds it."""
    module = ModuleType("extending")
    sys.modules["extending"] = module
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(PAGE), "exec"), module.__dict__)
        assert printed.getvalue(), "an example of the page prints nothing"
    return module.__dict__


@pytest.mark.parametrize("name", sorted(ga.profiles.LENSES))
def test_registered_lens(name: str) -> None:
    lens_laws(name)


@pytest.mark.parametrize("name", ["FirstTokenWeight", "LargestWeight"])
def test_a_users_lens(name: str) -> None:
    lens_laws(users_classes()[name]())


def test_a_lens_that_breaks_the_contract_is_found() -> None:
    class LastPiece(users_classes()["LargestWeight"]):
        def merge(self, one, other):
            return other

    with pytest.raises(AssertionError):
        lens_laws(LastPiece())


@pytest.mark.parametrize("perturbation", ga.perturbations.image_perturbations(8), ids=lambda p: p.name)
def test_perturbation_of_images(perturbation: Any) -> None:
    perturbation_laws(perturbation, IMAGES)


@pytest.mark.parametrize(
    "perturbation",
    [
        ga.perturbations.WordSwap(0.4),
        ga.perturbations.CharacterSubstitution(0.2),
        ga.perturbations.WordSubstitution(0.4, vocabulary=("one", "two", "three")),
    ],
    ids=lambda p: p.name,
)
def test_perturbation_of_texts(perturbation: Any) -> None:
    perturbation_laws(perturbation, TEXTS)


def test_a_users_perturbation() -> None:
    perturbation_laws(users_classes()["Darken"](0.5), IMAGES)


def test_a_users_regulariser() -> None:
    check_attachment(users_classes()["LookElsewhere"]())
