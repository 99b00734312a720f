"""Data sets one by one: which intervals leave out 0, once they are widened for their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from geoattn.studies.by_data_set import Sides, widened_sides
from geoattn.studies.claims import Endpoint

END = Endpoint("2026-11-19", "study", "loss", "up", "down", "pooled")


def finding(data: str, middle: float, half: float, freedom: int = 4, **changes: Any) -> dict[str, Any]:
    named = {"number": "loss", "more": "up", "less": "down", "convention": None, "data": data, "freedom": freedom}
    return {**named, "trials": freedom + 1, "low": middle - half, "high": middle + half, **changes}


def test_an_interval_is_widened_for_the_number_of_sets() -> None:
    """With three of them the half width at 4 degrees of freedom grows by t(1 - 0.05 / 6) / t(1 - 0.05 / 2)."""
    wider = t.ppf(1 - 0.05 / 6, 4) / t.ppf(1 - 0.05 / 2, 4)
    rest = [finding("b", 0.0, 1.0), finding("c", 0.0, 1.0)]
    assert widened_sides([finding("a", 1.01, 1.0)], END).above == ("a",)
    assert widened_sides([finding("a", wider - 0.01, 1.0), *rest], END) == Sides((), (), 3)
    assert widened_sides([finding("a", -wider - 0.01, 1.0), *rest], END) == Sides((), ("a",), 3)


def test_other_numbers_arms_conventions_and_the_pool_do_not_count() -> None:
    others = [
        finding("b", 9.0, 1.0, number="accuracy"), finding("c", 9.0, 1.0, less="none"),
        finding("d", 9.0, 1.0, convention="markov"), finding("pooled", 9.0, 1.0),
        finding("e", 9.0, 1.0, low=None, high=None),
    ]  # fmt: skip
    assert widened_sides([finding("a", 9.0, 1.0), *others], END) == Sides(("a",), (), 1)


def test_a_model_counts_once_beside_its_data_sets() -> None:
    found = [finding(data, 9.0, 1.0) for data in ("vit on mnist", "vit on cifar10", "vit", "bert on imdb")]
    assert widened_sides(found, END) == Sides(("vit", "bert on imdb"), (), 2)


def test_a_margin_moves_the_line() -> None:
    lenient = Endpoint("2026-11-19", "study", "loss", "up", "down", "pooled", margin=2.0)
    assert widened_sides([finding("a", -1.0, 0.5)], END).below == ("a",)
    assert widened_sides([finding("a", -1.0, 0.5)], lenient).above == ("a",)


def test_one_data_set_alone_has_no_sides() -> None:
    assert widened_sides([finding("mnist", 9.0, 1.0)], Endpoint("", "study", "loss", "up", "down", "mnist")).count == 0


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (Sides(("a", "b"), ("c",), 3), "above 0 on a and b, below 0 on c"),
        (Sides((), ("a", "b", "c"), 3), "below 0 on all 3"),
        (Sides(("a", "b", "c", "d"), ("e",), 6), "above 0 on 4 of 6, below 0 on 1 of 6"),
        (Sides((), (), 3), ""),
    ],
)
def test_words(sides: Sides, words: str) -> None:
    assert str(sides) == words


def test_nothing_is_found_in_nothing() -> None:
    """Of 2,000 studies without an effect, three data sets with five seeds each, about 5 % name a set; at most."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        draws = rng.normal(size=(3, 5))
        halves = t.ppf(0.975, 4) * draws.std(axis=1, ddof=1) / np.sqrt(5)
        found = [finding(f"set {k}", float(draws[k].mean()), float(halves[k])) for k in range(3)]
        sides = widened_sides(found, END)
        hits += bool(sides.above or sides.below)
    assert 0.03 < hits / 2000 < 0.065
