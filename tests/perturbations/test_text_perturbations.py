"""Perturbations of texts: what may change, what must not, how often."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoattn as ga
from geoattn.perturbations import Combined, perturb
from geoattn.perturbations.text import (
    CharacterSubstitution,
    WordSubstitution,
    WordSwap,
    vocabulary_of,
)

TEXTS = tuple(
    f"The {a} film, \t about {b} {c}\nand more of {a}."
    for a in ("red", "odd", "long")
    for b in ("us", "Zoë")
    for c in ("now", "1984", "–")
)
VOCABULARY = ("blue", "even", "short", "The")
KINDS = [
    WordSwap(0.4),
    WordSwap(0.4, "any"),
    WordSubstitution(0.2, VOCABULARY),
    CharacterSubstitution(0.2),
    Combined((CharacterSubstitution(0.2), WordSubstitution(0.2, VOCABULARY))),
]


@given(st.lists(st.text(), min_size=1, max_size=4), st.integers(0, 100), st.sampled_from(KINDS))
def test_any_text_at_all(texts, seed, kind):
    """Blanks stay, words are neither lost nor joined, the record tells the whole story."""
    result = perturb(texts, kind, seed)
    for before, after, hit, record in zip(texts, result.texts, result.hit, result.parameters, strict=True):
        assert [c for c in before if c.isspace()] == [c for c in after if c.isspace()]
        assert len(before.split()) == len(after.split())
        assert hit == bool(record)
        assert hit or before == after


@pytest.mark.parametrize("reach", ["adjacent", "any"])
def test_a_swap_keeps_the_words(reach):
    result = perturb(TEXTS, WordSwap(0.4, reach), seed=1)
    for before, after in zip(TEXTS, result.texts, strict=True):
        assert Counter(before.split()) == Counter(after.split())
    assert result.changed.mean() > 0.9
    for record in result.parameters:
        for i, j in record.get("word swap", {"swaps": ()})["swaps"]:
            assert i != j
            assert reach == "any" or j == i + 1 or (i, j) == (9, 8)


def test_swapping_every_word_with_the_next_moves_the_first_to_the_end():
    assert perturb(["a b c d"], WordSwap(1.0)).texts == ("b c a d",)  # the last one goes back by one
    assert perturb(["alone", "", "  "], WordSwap(1.0)).texts == ("alone", "", "  ")


def test_any_reach_is_uniform_over_the_other_words():
    kind = WordSwap(1.0, "any")
    partners = Counter()
    for seed in range(3000):
        swaps = kind.draw(np.random.default_rng(seed), "a b c d")["swaps"]
        partners[swaps[1]] += 1
    assert set(partners) == {(1, 0), (1, 2), (1, 3)}
    assert all(abs(count - 1000) < 110 for count in partners.values())


def test_rates():
    long = " ".join(["word"] * 4000)
    swaps = perturb([long], WordSwap(0.4)).parameters[0]["word swap"]["swaps"]
    assert len(swaps) / 4000 == pytest.approx(0.4, abs=0.03)
    words = perturb([long], WordSubstitution(0.2, VOCABULARY)).parameters[0]["word substitution"]["substitutions"]
    assert len(words) / 4000 == pytest.approx(0.2, abs=0.025)
    assert Counter(w for _, _, w in words).keys() == set(VOCABULARY)
    letters = perturb([long], CharacterSubstitution(0.2)).parameters[0]["character substitution"]["substitutions"]
    assert len(letters) / 16000 == pytest.approx(0.2, abs=0.012)


def test_substitutions_never_give_back_the_same_and_are_recorded():
    result = perturb(TEXTS, WordSubstitution(1.0, VOCABULARY), seed=3)
    for before, after in zip(TEXTS, result.texts, strict=True):
        assert all(a != b and b in VOCABULARY for a, b in zip(before.split(), after.split(), strict=True))
    result = perturb(TEXTS, CharacterSubstitution(1.0), seed=3)
    for before, after, record in zip(TEXTS, result.texts, result.parameters, strict=True):
        assert all(a != b or a.isspace() for a, b in zip(before, after, strict=True))
        assert all(b.isupper() == a.isupper() for a, b in zip(before, after, strict=True) if a.isalpha())
        for place, old, new in record["character substitution"]["substitutions"]:
            assert (before[place], after[place]) == (old, new)


def test_settings_do_not_carry_the_whole_vocabulary():
    words = tuple(f"w{i}" for i in range(1000))
    settings = WordSubstitution(0.2, words).settings
    assert settings["vocabulary"].startswith("1000 entries, crc32 ")
    assert settings["vocabulary"] != WordSubstitution(0.2, words[::-1]).settings["vocabulary"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WordSwap(-0.1), "WordSwap: rate must be"),
        (lambda: WordSwap(0.1, "far"), "'adjacent' or 'any'"),
        (lambda: WordSubstitution(0.2), "at least two different words"),
        (lambda: WordSubstitution(0.2, ("a", "a")), "at least two different words"),
        (lambda: WordSubstitution(0.2, ("a", "b c")), "empty or has a blank"),
        (lambda: perturb("one text", WordSwap(0.4)), "sequence of strings; got str"),
        (lambda: perturb([1, 2], WordSwap(0.4)), "sequence of strings"),
        (lambda: perturb([], WordSwap(0.4)), "texts are empty"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ga.GeoattnError, match=words):
        make()


def test_vocabulary_is_that_of_the_texts():
    assert set(vocabulary_of(TEXTS)) == {word for text in TEXTS for word in text.split()}
    assert vocabulary_of(["b a", "b c a b"]) == ("b", "a", "c")
