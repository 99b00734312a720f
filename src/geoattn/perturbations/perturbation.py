"""The contract of a perturbation, the register of those that there are, and several one after the other."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from geoattn._core.errors import GeoattnError

__all__ = ["PERTURBATIONS", "Combined", "Perturbation", "read_share", "register_perturbation"]


def read_share(owner: str, name: str, value: Any) -> None:
    """Refuse what is not a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise GeoattnError(f"{owner}: {name} must be a number from 0 to 1; got {value!r}.")


class Perturbation(ABC):
    """The contract of a perturbation. A subclass is a frozen dataclass whose fields are its settings.

    ``kind`` names it, and ``medium`` is what it works on. `draw` decides by ``rng`` alone, so that equal seeds give
    equal perturbations. `apply` is a pure function of the sample and of what was drawn. With a smaller strength, `draw`
    hits a part of the samples that it hits with a larger one.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from geoattn.perturbations import Perturbation, perturb
    >>> @dataclass(frozen=True)
    ... class UpperCase(Perturbation):
    ...     rate: float = 0.5
    ...     kind, medium = "upper case", "texts"
    ...
    ...     @property
    ...     def name(self):
    ...         return f"{self.kind} {self.rate:g}"
    ...
    ...     def draw(self, rng, sample):
    ...         places = [i for i, coin in enumerate(rng.random(len(sample))) if coin < self.rate]
    ...         return {"places": places} if places else None
    ...
    ...     def apply(self, sample, parameters):
    ...         return "".join(c.upper() if i in parameters["places"] else c for i, c in enumerate(sample))
    >>> perturb(["a warm and funny film"], UpperCase(1.0)).texts
    ('A WARM AND FUNNY FILM',)
    """

    kind: ClassVar[str]
    medium: ClassVar[Literal["images", "texts"]]

    @property
    @abstractmethod
    def name(self) -> str:
        """Kind and strength, for tables."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, sample: Any) -> dict[str, Any] | None:
        """The parameters for one sample; None when it is left alone."""

    @abstractmethod
    def apply(self, sample: Any, parameters: dict[str, Any]) -> Any:
        """The perturbed sample."""

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting by name, for files; a long one (a vocabulary) as its length and checksum."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # pyright: ignore[reportArgumentType]
        return {"kind": self.kind, **{name: _short(value) for name, value in values.items()}}

    @property
    def parts(self) -> tuple[Perturbation, ...]:
        """The steps, here one."""
        return (self,)


#: Perturbations by kind. Tests run the laws of the contract on all of them.
PERTURBATIONS: dict[str, type[Perturbation]] = {}

Kind = TypeVar("Kind", bound=type[Perturbation])


def register_perturbation(perturbation: Kind) -> Kind:
    """Register a class of perturbations under its ``kind``, as a decorator.

    A kind is registered once: it is part of the seed, so that two perturbations of one kind would draw the same
    numbers. `perturb` also takes perturbations that are not registered.

    Examples
    --------
    >>> from geoattn.perturbations import PERTURBATIONS
    >>> sorted(PERTURBATIONS)[:4], PERTURBATIONS["flip"](0.2).name
    (['blur', 'character substitution', 'elastic', 'flip'], 'flip 0.2')
    """
    if PERTURBATIONS.setdefault(perturbation.kind, perturbation) is not perturbation:
        raise GeoattnError(f"there is a perturbation of kind {perturbation.kind!r} already; choose another kind.")
    return perturbation


@dataclass(frozen=True)
class Combined:
    """Several perturbations of one medium, one after the other, each with its own draw.

    Examples
    --------
    >>> from geoattn.perturbations import Combined, Flip, Rotation
    >>> Combined((Flip(0.2), Rotation(0.2))).name
    'flip 0.2 + rotation 0.2'
    """

    parts: tuple[Perturbation, ...]
    label: str = ""

    def __post_init__(self) -> None:
        media = {part.medium for part in self.parts}
        if len(media) != 1:
            came = " and ".join(sorted(media)) or "none"
            raise GeoattnError(f"Combined takes perturbations of images or of texts, at least one; got {came}.")

    @property
    def name(self) -> str:
        """The label, or the names of the parts."""
        return self.label or " + ".join(part.name for part in self.parts)

    @property
    def medium(self) -> Literal["images", "texts"]:
        """What it works on."""
        return self.parts[0].medium

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting of every part, for files."""
        return {"kind": "combined", "parts": [part.settings for part in self.parts]}


def _short(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) > 8:
        return f"{len(value)} entries, crc32 {zlib.crc32(repr(value).encode()):08x}"
    return value
