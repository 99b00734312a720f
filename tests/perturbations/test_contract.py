"""The laws of the contract on every registered perturbation, on combinations, and on those of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn.perturbations import (
    PERTURBATIONS,
    Blur,
    CharacterSubstitution,
    Combined,
    Elastic,
    Flip,
    ImagePerturbation,
    Perspective,
    Perturbation,
    Rotation,
    WordSubstitution,
    WordSwap,
    image_perturbations,
    register_perturbation,
    text_perturbations,
)
from tests.contracts.perturbations import check_perturbation, check_strength_is_checked

WORDS = ("blue", "even", "short", "The")
REGISTERED = [
    Flip(0.4), Flip(1.0, "vertical"), Blur(0.4), Rotation(0.4), Rotation(0.4, 180.0), Elastic(0.4),
    Elastic(1.0, 300.0, 2.0), Perspective(0.4), Perspective(1.0, 1.0), WordSwap(0.4), WordSwap(1.0, "any"),
    WordSubstitution(0.2, WORDS), CharacterSubstitution(0.2), CharacterSubstitution(1.0),
]  # fmt: skip
COMBINED = [
    *image_perturbations(12)[6:],
    *text_perturbations(WORDS)[3:],
    Combined((Flip(0.5), Blur(0.5), Blur(0.5))),
    Combined((WordSwap(0.4), WordSwap(0.4), CharacterSubstitution(0.2)), "twice"),
]


@dataclass(frozen=True)
class Darker(ImagePerturbation):
    least: float = 0.5
    kind = "darker"

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        return {"factor": float(rng.uniform(self.least, 1))}

    def apply(self, sample: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
        return sample * parameters["factor"]


@dataclass(frozen=True)
class Reversed(Perturbation):
    """Has no strength: every text is hit."""

    kind = "reversed"
    medium = "texts"
    mark: str = "!"

    @property
    def name(self) -> str:
        return "reversed"

    def draw(self, rng: np.random.Generator, sample: str) -> dict[str, Any]:
        return {"mark": self.mark * int(rng.integers(1, 4))}

    def apply(self, sample: str, parameters: dict[str, Any]) -> str:
        return sample[::-1] + parameters["mark"]


def inputs_of(perturbation: Any) -> Any:
    if perturbation.medium == "images":
        return torch.rand(16, 2, 12, 9, generator=torch.Generator().manual_seed(0))
    return [f"The {a} film,\t about {b}\nand Zoë {i}." for i, a in enumerate(("red", "odd")) for b in "abcdef"]


@pytest.mark.parametrize("perturbation", [*REGISTERED, *COMBINED, Darker(0.4), Reversed()], ids=lambda p: p.name)
def test_the_laws(perturbation: Any) -> None:
    check_perturbation(perturbation, inputs_of(perturbation))


def test_every_registered_kind_is_in_the_table() -> None:
    assert {type(p) for p in REGISTERED} == set(PERTURBATIONS.values())
    assert all(kind == one.kind for kind, one in PERTURBATIONS.items())


@pytest.mark.parametrize("perturbation", [*REGISTERED, Darker(0.4)], ids=lambda p: p.name)
def test_strengths_are_checked(perturbation: Any) -> None:
    check_strength_is_checked(perturbation)


def test_a_kind_is_registered_once() -> None:
    assert register_perturbation(Flip) is Flip
    with pytest.raises(ga.GeoattnError, match="there is a perturbation of kind 'flip' already"):
        register_perturbation(type("Other", (Flip,), {}))
    assert PERTURBATIONS["flip"] is Flip


# ---- the laws can fail: perturbations that break one each


@dataclass(frozen=True)
class _ByTheBatch(Darker):
    kind = "by the batch"

    def parameters(self, rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
        return {"factor": float(torch.rand(()))}


@dataclass(frozen=True)
class _InPlace(Darker):
    kind = "in place"

    def apply(self, sample: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
        return sample.mul_(parameters["factor"])


@dataclass(frozen=True)
class _TooBright(Darker):
    kind = "too bright"

    def apply(self, sample: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
        return sample * 3


@dataclass(frozen=True)
class _AlwaysHits(Darker):
    kind = "always"

    def draw(self, rng: np.random.Generator, sample: torch.Tensor) -> dict[str, Any]:
        return self.parameters(rng, 1, 1)


@dataclass(frozen=True)
class _Cropped(Darker):
    kind = "cropped"

    def apply(self, sample: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
        return sample[..., 1:]


@pytest.mark.parametrize("broken", [_ByTheBatch, _InPlace, _TooBright, _AlwaysHits, _Cropped])
def test_the_laws_notice(broken: type[Darker]) -> None:
    perturbation = broken(1.0) if broken is _Cropped else broken(0.4)
    with pytest.raises(AssertionError):
        check_perturbation(perturbation, inputs_of(perturbation))
