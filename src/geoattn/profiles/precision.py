r"""How many edges of a map to draw: enough for an interval of a wanted half-width.

The mean over all N edges of S maps is :math:`\sum_s N_s \bar\kappa_s / \sum_s N_s`. With m_s edges drawn from map s
without replacement its variance is :math:`\sum_s (N_s / N)^2 (1 - m_s / N_s) \sigma_s^2 / m_s`. The interval from it is
for the edges of the given maps; it says nothing of other texts or images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from geoattn.graph.convention import Convention

__all__ = [
    "EDGES_PER_HEAD",
    "EdgeError",
    "Precision",
    "draw_edges",
    "edges_needed",
    "joint_half_width",
    "more_edges",
    "possible_edges",
]

EDGES_PER_HEAD = 32  # of each head, over all samples, at the least
_PILOT = 24  # edges of a map, at the least: a draw that ends on the variance of 8 covers 90 % where it says 95 %
_STEP = 8  # further edges of a map, at the least
_MOST = 1 << 14  # edges of a map
#: Drawn edges tell nothing finer of a mean distance to one: a head with all its mass on one token has distances of 1e-7
#: and rare ones of 1e-4, which a draw seldom meets.
_FINEST = 5e-5
_CARE = 1.25  # more edges than the estimated variance asks for, as that is an estimate


class Precision(NamedTuple):
    """``half_width`` of the interval of each head's distance to one, at this ``level``; ``samples`` that share it."""

    half_width: float
    level: float = 0.95
    samples: int | None = None

    @property
    def pilot(self) -> int:
        """How many edges of each map are drawn first."""
        return max(_PILOT, math.ceil(EDGES_PER_HEAD / (self.samples or 1)))


def edges_needed(precision: Precision, variance: Float[np.ndarray, " h"], care: Float[np.ndarray, " h"]) -> np.ndarray:
    """(h,) how many edges of a map of each head to draw, given the variance among its edges."""
    z = float(stats.norm.ppf((1 + precision.level) / 2))
    wanted = _CARE * care * (z / precision.half_width) ** 2 * variance / (precision.samples or 1)
    return np.clip(np.ceil(wanted), precision.pilot, _MOST).astype(np.int64)


def more_edges(
    precision: Precision, drawn: Float[np.ndarray, " h"], variance: Float[np.ndarray, " h"],
    population: Float[np.ndarray, " h"], asked: Int[np.ndarray, " h"], care: Float[np.ndarray, " h"],
) -> Int[np.ndarray, " h"]:  # fmt: skip
    """(h,) how many edges of a map of each head to draw in all, once ``drawn`` of the ``asked`` ones have a value.

    A head keeps its number when all its edges are drawn or when its share of the interval is narrow enough: that of
    its edges if there were as many samples as share the precision, all like this one.
    """
    samples = precision.samples or 1
    t = stats.t.ppf((1 + precision.level) / 2, np.maximum(samples * (drawn - 1), 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        square = t**2 * care * variance / (samples * drawn) * np.maximum(0.0, 1 - drawn / population)
    wide = (square > precision.half_width**2) | (precision.half_width < _FINEST)
    open_heads = (drawn > 0) & wide & (asked < np.minimum(population, _MOST))
    wanted = np.maximum(edges_needed(precision, variance, care), asked + _STEP)
    if precision.half_width < _FINEST:
        wanted = np.full_like(wanted, _MOST)  # all edges
    return np.where(open_heads, np.minimum(wanted, population), asked).astype(np.int64)


def possible_edges(
    attention: Float[np.ndarray, "h n n"], valid: Bool[np.ndarray, "h n"], convention: Convention
) -> Bool[np.ndarray, "h n n"]:
    """True for the edges of each map, once each: above the diagonal, or everywhere for directed graphs."""
    positive = (attention > 0) & valid[:, :, None] & valid[:, None, :]
    turned = positive.swapaxes(-1, -2)
    if convention.directed:
        n = positive.shape[-1]
        return positive & ~np.eye(n, dtype=bool)
    both = positive & turned if convention.direction in ("min", "product") else positive | turned
    return np.triu(both, 1)


def draw_edges(possible: Bool[np.ndarray, "n n"], seed: list[int]) -> Int[np.ndarray, " k"]:
    """Flat places of edges in a random order, all of them or the first 16,384: a longer draw begins like a shorter."""
    places = np.flatnonzero(possible)
    rng = np.random.default_rng(seed)
    return rng.choice(places, min(len(places), _MOST), replace=False)


@dataclass(eq=False)
class EdgeError:
    """Sums, by head, from which the error of a mean over drawn edges follows.

    ``population`` sums the edges of the maps, ``variance`` the terms of the formula above times N^2, ``freedom`` the
    degrees of freedom of the variance, ``missing`` the edges that were not drawn.
    """

    population: Float[np.ndarray, " h"]
    variance: Float[np.ndarray, " h"]
    freedom: Float[np.ndarray, " h"]
    missing: Float[np.ndarray, " h"]

    @classmethod
    def none(cls, heads: int) -> "EdgeError":
        """Before anything was seen."""
        return cls(np.zeros(heads), np.zeros(heads), np.zeros(heads), np.zeros(heads))

    def add(self, heads: slice, population: np.ndarray, drawn: np.ndarray, variance: np.ndarray) -> None:
        """Add maps (b, h): their edges, how many were drawn, and the variance among those."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(drawn > 0, population**2 * variance / drawn * np.maximum(0.0, 1 - drawn / population), 0.0)
        self.population[heads] += np.where(drawn > 0, population, 0.0).sum(axis=0)
        self.variance[heads] += share.sum(axis=0)
        self.freedom[heads] += np.maximum(drawn - 1, 0).sum(axis=0)
        self.missing[heads] += np.where(drawn > 0, population - drawn, 0.0).sum(axis=0)

    def merge(self, other: "EdgeError") -> None:
        """Take what another one has."""
        self.population = self.population + other.population
        self.variance = self.variance + other.variance
        self.freedom = self.freedom + other.freedom
        self.missing = self.missing + other.missing

    def half_width(self, heads: slice, level: float) -> float:
        """Half-width of the interval of the mean of these heads; 0 when all edges were solved."""
        return joint_half_width([self], heads, level)


def joint_half_width(errors: "list[EdgeError]", heads: slice, level: float) -> float:
    """Half-width of the interval of the mean over these heads of several layers; at least 5e-5 for drawn edges."""
    population = sum(float(error.population[heads].sum()) for error in errors)
    variance = sum(float(error.variance[heads].sum()) for error in errors)
    freedom = sum(float(error.freedom[heads].sum()) for error in errors)
    if population == 0:
        return float("nan")
    if sum(float(error.missing[heads].sum()) for error in errors) <= 0:
        return 0.0
    drawn = float(stats.t.ppf((1 + level) / 2, max(freedom, 1.0))) * math.sqrt(variance) / population
    return max(drawn, _FINEST)
