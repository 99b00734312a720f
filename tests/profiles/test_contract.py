"""The laws of the contract on every registered lens, and on lenses of a user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import geoattn as ga
from geoattn.profiles import LENSES, Lens, LensSettings, MeanLens, Moments, Piece, Row
from tests.contracts.lenses import check_lens, example_model

CONVENTIONS = tuple(ga.Convention.of(name) for name in ("markov", "grc-0.6"))
pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def made(name: str, edges: Any = "all") -> list[Lens]:
    settings = {"model": example_model(), "layers": None, "conventions": CONVENTIONS, "edges": edges, "threads": 1,
                "seed": 3, "resamplings": 100, "smoothness_samples": 8}  # fmt: skip
    return list(LENSES[name](LensSettings(**settings)))


class LargestWeight(MeanLens):
    """A user's lens in a few lines."""

    name = "largest"

    def measure(self, piece: Piece) -> Moments:
        largest = piece.attention.amax(-1).double().cpu().numpy() * piece.valid
        return Moments(piece.valid.sum(-1).astype(float), {"largest_weight": largest.sum(-1)})


class Extremes(Lens):
    """A user's lens with a state of its own, which is no mean."""

    name = "extremes"

    def see(self, piece: Piece) -> Any:
        state = np.full((2, piece.head_count), np.nan)
        state[0, piece.heads] = piece.attention.amin((0, 2, 3)).cpu()
        state[1, piece.heads] = piece.attention.amax((0, 2, 3)).cpu()
        return state

    def merge(self, one: Any, other: Any) -> Any:
        return np.stack([np.fmin(one[0], other[0]), np.fmax(one[1], other[1])])

    def rows(self, states: Sequence[Any], heads: slice, level: float) -> Iterator[Row]:
        low, high = min(s[0, heads].min() for s in states), max(s[1, heads].max() for s in states)
        yield Row("smallest", float(low), np.nan, np.nan, 1)
        yield Row("largest", float(high), np.nan, np.nan, 1)


@pytest.mark.parametrize("name", LENSES)
def test_the_laws_of_registered_lenses(name: str) -> None:
    for lens in made(name):
        check_lens(lens)


def test_the_laws_with_drawn_edges() -> None:
    """The draw depends on the sample and the head, not on the piece."""
    for lens in made("curvature", edges=4):
        check_lens(lens)


@pytest.mark.parametrize("lens", [LargestWeight(resamplings=100), Extremes()], ids=lambda lens: lens.name)
def test_the_laws_of_a_users_lens(lens: Lens) -> None:
    check_lens(lens)


# ---- the laws can fail: lenses that break one each


class _Averages(Extremes):
    """Means of means: depends on the split."""

    def see(self, piece: Piece) -> Any:
        return np.stack([piece.attention.mean((0, 2, 3)).cpu().numpy()] * 2)

    def merge(self, one: Any, other: Any) -> Any:
        return (one + other) / 2


class _Shares(Extremes):
    """Changes the second state, too."""

    def merge(self, one: Any, other: Any) -> Any:
        other[:] = super().merge(one, other)
        return other


class _Twice(Extremes):
    def rows(self, states: Sequence[Any], heads: slice, level: float) -> Iterator[Row]:
        yield from super().rows(states, heads, level)
        yield from super().rows(states, heads, level)


class _Forgets(Extremes):
    """Knows one of the heads only."""

    def see(self, piece: Piece) -> Any:
        state = super().see(piece)
        state[:, : piece.heads.start] = 2.0
        return state


class _InPlace(Extremes):
    def see(self, piece: Piece) -> Any:
        return super().see(piece) + float(piece.attention.mul_(0.5).sum())


@pytest.mark.parametrize("broken", [_Averages, _Shares, _Twice, _Forgets, _InPlace])
def test_the_laws_notice(broken: type[Lens]) -> None:
    with pytest.raises(AssertionError):
        check_lens(broken())
