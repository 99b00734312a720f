"""Perturbations of texts: words that change places, other words, other characters (Appendix D.2 of the Ricci paper)."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.perturbations.perturbation import Perturbation, read_share, register_perturbation

__all__ = ["CharacterSubstitution", "WordSubstitution", "WordSwap", "vocabulary_of"]

# A word is what stands between blanks, with its punctuation; the blanks stay as they are.
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class _TextPerturbation(Perturbation):
    medium: ClassVar[Literal["images", "texts"]] = "texts"
    rate: float

    def __post_init__(self) -> None:
        read_share(type(self).__name__, "rate", self.rate)

    @property
    def name(self) -> str:
        """Kind and rate."""
        return f"{self.kind} {self.rate:g}"


@register_perturbation
@dataclass(frozen=True)
class WordSwap(_TextPerturbation):
    """Each word, with probability ``rate``, changes places with another one of the text.

    ``reach``: ``adjacent``, the next word (the last one: the word before it); or ``any`` other word. From left to
    right, so that a word can travel. A text of one word is left alone. The paper says "word swap with probability 0.4"
    and no more.

    Examples
    --------
    >>> from geoattn.perturbations import WordSwap, perturb
    >>> result = perturb(["a warm and funny film"], WordSwap(0.4), seed=0)
    >>> result.texts, result.parameters[0]
    (('...',), {'word swap': {'swaps': ...}})
    """

    kind: ClassVar[str] = "word swap"
    rate: float = 0.4
    reach: str = "adjacent"  # or "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reach not in ("adjacent", "any"):
            raise GeoattnError(f"WordSwap: reach must be 'adjacent' or 'any'; got {self.reach!r}.")

    def draw(self, rng: np.random.Generator, sample: str) -> dict[str, Any] | None:
        """The places that are exchanged, in order."""
        count = len(_WORD.findall(sample))
        coins, others = rng.random(count), rng.random(count)
        if count < 2:
            return None
        swaps = []
        for i in np.flatnonzero(coins < self.rate).tolist():
            if self.reach == "adjacent":
                j = i + 1 if i + 1 < count else i - 1
            else:
                j = int(others[i] * (count - 1))
                j += j >= i
            swaps.append((i, j))
        return {"swaps": tuple(swaps)} if swaps else None

    def apply(self, sample: str, parameters: dict[str, Any]) -> str:
        """One exchange after the other."""
        words = _WORD.findall(sample)
        for i, j in parameters["swaps"]:
            words[i], words[j] = words[j], words[i]
        return _put(sample, words)


@register_perturbation
@dataclass(frozen=True)
class WordSubstitution(_TextPerturbation):
    """Each word, with probability ``rate``, becomes another word of ``vocabulary``, drawn uniformly.

    `vocabulary_of` makes a vocabulary from a data set. Meaning plays no part, as in the paper.

    Examples
    --------
    >>> from geoattn.perturbations import WordSubstitution, perturb
    >>> result = perturb(["a warm and funny film"], WordSubstitution(0.5, ("dog", "cat")), seed=0)
    >>> result.texts
    ('dog warm dog dog dog',)
    >>> result.parameters[0]["word substitution"]["substitutions"][0]
    (0, 'a', 'dog')
    """

    kind: ClassVar[str] = "word substitution"
    rate: float = 0.2
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.vocabulary) < 2 or len(set(self.vocabulary)) != len(self.vocabulary):
            raise GeoattnError(
                f"WordSubstitution: vocabulary must hold at least two different words, each once; got "
                f"{len(self.vocabulary)}. vocabulary_of(texts) makes one."
            )
        if not all(_WORD.fullmatch(word) for word in self.vocabulary):
            raise GeoattnError("WordSubstitution: a word of the vocabulary is empty or has a blank in it.")

    def draw(self, rng: np.random.Generator, sample: str) -> dict[str, Any] | None:
        """(place, word before, word after) of each substitution."""
        words = _WORD.findall(sample)
        coins, picks = rng.random(len(words)), rng.random(len(words))
        found = []
        for i in np.flatnonzero(coins < self.rate).tolist():
            k = int(picks[i] * len(self.vocabulary))
            if self.vocabulary[k] == words[i]:
                k = (k + 1) % len(self.vocabulary)
            found.append((i, words[i], self.vocabulary[k]))
        return {"substitutions": tuple(found)} if found else None

    def apply(self, sample: str, parameters: dict[str, Any]) -> str:
        """The words in their new form."""
        words = _WORD.findall(sample)
        for i, _, after in parameters["substitutions"]:
            words[i] = after
        return _put(sample, words)


@register_perturbation
@dataclass(frozen=True)
class CharacterSubstitution(_TextPerturbation):
    """Each character but blanks, with probability ``rate``, becomes another lower-case letter; a capital a capital.

    Examples
    --------
    >>> from geoattn.perturbations import CharacterSubstitution, perturb
    >>> len(perturb(["Warm and funny."], CharacterSubstitution(0.2), seed=1).texts[0])
    15
    """

    kind: ClassVar[str] = "character substitution"
    rate: float = 0.2

    def draw(self, rng: np.random.Generator, sample: str) -> dict[str, Any] | None:
        """(place, character before, character after) of each substitution."""
        coins, picks = rng.random(len(sample)), rng.random(len(sample))
        found = []
        for i in np.flatnonzero(coins < self.rate).tolist():
            before = sample[i]
            if before.isspace():
                continue
            letters = string.ascii_uppercase if before.isupper() else string.ascii_lowercase
            letters = letters.replace(before, "")
            found.append((i, before, letters[int(picks[i] * len(letters))]))
        return {"substitutions": tuple(found)} if found else None

    def apply(self, sample: str, parameters: dict[str, Any]) -> str:
        """The characters in their new form; the length stays."""
        characters = list(sample)
        for i, _, after in parameters["substitutions"]:
            characters[i] = after
        return "".join(characters)


def vocabulary_of(texts: Iterable[str], most: int | None = None) -> tuple[str, ...]:
    """The words of some texts, each once: most frequent first, then by the alphabet.

    Examples
    --------
    >>> from geoattn.perturbations import vocabulary_of
    >>> vocabulary_of(["a warm film", "a cold film", "a dog"], most=3)
    ('a', 'film', 'cold')
    """
    counts: dict[str, int] = {}
    for text in texts:
        for word in _WORD.findall(text):
            counts[word] = counts.get(word, 0) + 1
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:most])


def _put(sample: str, words: list[str]) -> str:
    """The words into the places of the words of the sample."""
    left = iter(words)
    return _WORD.sub(lambda _: next(left), sample)
