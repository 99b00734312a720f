"""The lens of curvature: exact Ollivier-Ricci curvature of all edges or of a sample, with its distribution."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.result import Curvature
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention
from geoattn.profiles.examples import edges_to_show
from geoattn.profiles.lens import Lens, LensSettings, Row, register_lens
from geoattn.profiles.means import Means, Moments, mean_rows
from geoattn.profiles.pieces import Piece
from geoattn.profiles.precision import (
    EdgeError,
    Precision,
    draw_edges,
    joint_half_width,
    more_edges,
    possible_edges,
)
from geoattn.statistics.histograms import EDGES, count_values, quantiles

__all__ = ["ALL_EDGES_UP_TO", "SAMPLE", "CurvatureLens", "CurvatureState"]

#: With edges="auto" all edges of maps of at most so many tokens are solved, and SAMPLE of those of larger ones.
ALL_EDGES_UP_TO = 65
SAMPLE = 512

_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


@dataclass(eq=False)
class CurvatureState:
    """Means over edges; and what is no mean: the histogram by head, the extremes, the certificate, notes.

    ``histogram`` counts the edges that were drawn. ``square`` sums squares, each times the number of edges that a drawn
    one stands for. ``edges`` counts all edges.
    """

    means: Means
    histogram: np.ndarray
    low: np.ndarray
    high: np.ndarray
    square: np.ndarray
    error: EdgeError
    max_gap: float = 0.0
    edges: int = 0
    values: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    degenerate: bool = False
    #: By number of the sample: places (e, 3) as head, i, j, and curvature of edges that an example can show.
    shown: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def none(cls, means: Means) -> "CurvatureState":
        """Before anything was seen."""
        nothing = np.full(means.heads, np.nan)
        counts = np.zeros((means.heads, len(EDGES) - 1), dtype=np.int64)
        return cls(means, counts, nothing, nothing.copy(), np.zeros(means.heads), EdgeError.none(means.heads))

    def add(self, result: Curvature, kappa: np.ndarray, head: np.ndarray, status: np.ndarray) -> None:
        """Take finite values of a result with the heads that they belong to, and the status of all its edges."""
        h = len(self.low)
        self.histogram += count_values(kappa, head, h)
        low, high = np.full(h, np.nan), np.full(h, np.nan)
        np.fmin.at(low, head, kappa)
        np.fmax.at(high, head, kappa)
        np.fmin(self.low, low, out=self.low)
        np.fmax(self.high, high, out=self.high)
        self.max_gap = max(self.max_gap, result.max_gap)
        self.values += len(kappa)
        codes, counts = np.unique(status, return_counts=True)
        for code, number in zip(codes, counts, strict=True):
            name = Status(int(code)).name.lower()
            self.statuses[name] = self.statuses.get(name, 0) + int(number)

    def merge(self, other: "CurvatureState") -> "CurvatureState":
        """Take what another one has."""
        self.means.merge(other.means)
        self.error.merge(other.error)
        self.histogram = self.histogram + other.histogram
        self.square = self.square + other.square
        self.low, self.high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        self.max_gap = max(self.max_gap, other.max_gap)
        self.edges += other.edges
        self.values += other.values
        self.degenerate |= other.degenerate
        for status, number in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + number
        return self


class CurvatureLens(Lens):
    """Exact Ollivier-Ricci curvature under one convention."""

    name = "curvature"

    def __init__(
        self, rule: Convention, edges: Any = "auto", *, threads: int | None = None, resamplings: int = 1000,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.rule, self.convention = rule, rule.name
        self._edges, self._threads, self._resamplings, self._seed = edges, threads, resamplings, seed
        #: By number of the layer: how many times as many edges of each head as its variance asks for.
        self.care: dict[int, np.ndarray] = {}
        #: Time (of time.monotonic) after which only a pilot is drawn.
        self.deadline = math.inf
        #: How many samples, from the start of the data, examples show.
        self.showing = 0

    def see(self, piece: Piece) -> CurvatureState:
        """Counts and totals over the edges of each map, and their distribution.

        With drawn edges each map counts as the number of its edges, whatever was drawn of them.
        """
        b, heads, n = piece.valid.shape
        state = CurvatureState.none(Means(piece.head_count, self._resamplings, self._seed))
        sums = np.zeros((5, b, heads))  # drawn, total, square, negative, how far below 0
        if self._edges == "all" or (n <= ALL_EDGES_UP_TO and not isinstance(self._edges, int)):
            found = self._solve(piece.attention, piece.valid, "all", state)
            self._add(sums, found, found.places(), None, piece, state)
            population = sums[0]
            state.edges += found.edges
        else:  # one by one: the draw depends on the sample, not on the batch
            population = np.stack([self._draw(piece, s, sums, state) for s in range(b)])
            state.edges += int(population.sum())
        drawn, total, square, negative, below = sums
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(drawn > 0, population / drawn, 0.0)
        count = drawn * scale
        totals = {"mean": total * scale, "distance_to_one": (drawn - total) * scale, "negative_share": negative * scale}
        totals["negative_mass"] = below * scale  # mean of max(0, -kappa): how deep, and not only how many
        state.square[piece.heads] += (square * scale).sum(axis=0)
        state.error.add(piece.heads, population, drawn, _variance(sums))
        state.means.add(piece.numbers, piece.heads, Moments(count, totals))
        return state

    def _draw(self, piece: Piece, s: int, sums: np.ndarray, state: CurvatureState) -> np.ndarray:
        """Solve drawn edges of the maps of one sample, round by round; returns how many edges they have.

        The first round also solves what an example shows, so that a map is prepared once for both. Later rounds are for
        the heads alone whose interval is still too wide.
        """
        attention, valid, asked = piece.attention[s], piece.valid[s], self._edges
        possible = possible_edges(attention.cpu().numpy(), valid, self.rule)
        heads, n, _ = possible.shape
        population = possible.sum((-1, -2)).astype(np.float64)
        place = [self._seed, piece.layer, piece.first + s]
        order = [draw_edges(possible[k], [*place, piece.heads.start + k]) for k in range(heads)]
        care = self.care.get(piece.layer, np.ones(piece.head_count))[piece.heads]
        done = np.zeros(heads, dtype=np.int64)
        wanted = np.full(heads, asked.pilot if isinstance(asked, Precision) else SAMPLE if asked == "auto" else asked)
        also = edges_to_show(attention, valid) if self._shows(piece, s) else None
        while True:
            some = np.flatnonzero(wanted > done)
            drawn = np.zeros((len(some), n, n), dtype=bool)
            for mask, k in zip(drawn, some, strict=True):
                mask.ravel()[order[k][done[k] : wanted[k]]] = True
            solved = drawn if also is None else drawn | also
            if solved.any():
                found = self._solve(attention[some], valid[some], solved, state)
                k, i, j = found.places().T
                where = np.stack([np.full(len(k), s), some[k], i, j], axis=1)
                self._add(sums, found, where, drawn[k, i, j], piece, state)
            if not isinstance(asked, Precision) or time.monotonic() > self.deadline:
                return population
            done, also = wanted, None
            wanted = more_edges(asked, sums[0, s], _variance(sums[:, s]), population, done, care)
            if np.array_equal(wanted, done):
                return population

    def _shows(self, piece: Piece, s: int) -> bool:
        """Whether an example may show this sample: it is one of the first, and a map of all of it."""
        number = int(piece.numbers[s])
        return number < self.showing and int((piece.numbers == number).sum()) == 1

    def _add(
        self, sums: np.ndarray, result: Curvature, where: np.ndarray, drawn: np.ndarray | None, piece: Piece,
        state: CurvatureState,
    ) -> None:  # fmt: skip
        """Add the finite values at ``where`` (e, 4), as sample, head, i, j; those that were ``drawn``, or all."""
        _, b, heads = sums.shape
        kappa, status = result.column("kappa"), result.column("status")
        for s in range(b if self.showing else 0):
            if self._shows(piece, s):
                mine, number = where[:, 0] == s, int(piece.numbers[s])
                place, values = where[mine, 1:] + np.array([piece.heads.start, 0, 0]), kappa[mine]
                if number in state.shown:  # of an earlier round
                    before = state.shown[number]
                    place, values = np.concatenate([before[0], place]), np.concatenate([before[1], values])
                state.shown[number] = place, values
        if drawn is not None:
            where, kappa, status = where[drawn], kappa[drawn], status[drawn]
        good = np.isfinite(kappa)
        kappa, head = kappa[good], where[good, 1]
        cell = where[good, 0] * heads + head
        for k, values in enumerate((None, kappa, kappa**2, kappa < 0, np.maximum(0.0, -kappa))):
            sums[k] += np.bincount(cell, values, minlength=b * heads).reshape(b, heads)
        state.add(result, kappa, head + piece.heads.start, status)

    def merge(self, one: CurvatureState, other: CurvatureState) -> CurvatureState:
        """Both together."""
        return one.merge(other)

    def rows(self, states: Sequence[CurvatureState], heads: slice, level: float) -> Iterator[Row]:
        """Means with intervals; of one layer also spread, extremes and quantiles (to within a bin) without."""
        means = {row.statistic: row for row in mean_rows([state.means for state in states], heads, level)}
        width = joint_half_width([state.error for state in states], heads, level)
        for statistic, row in means.items():
            open_width = width if not statistic.startswith("negative") or width == 0 else float("nan")
            yield replace(row, half_width=open_width)
        if len(states) > 1:
            return
        state, mean = states[0], means["mean"]
        low, high = state.low[heads], state.high[heads]
        some = bool(np.isfinite(low).any())
        found = {
            "min": float(np.nanmin(low)) if some else np.nan,
            "max": float(np.nanmax(high)) if some else np.nan,
            "std": np.sqrt(max(0.0, state.square[heads].sum() / mean.count - mean.value**2)) if mean.count else np.nan,
        }
        drawn = np.maximum(state.histogram[heads].sum(axis=1), 1)  # of each head: heads count as all their edges
        at = quantiles((state.error.population[heads] / drawn) @ state.histogram[heads], _LEVELS)
        found |= {f"q{round(100 * q):02d}": value for q, value in zip(_LEVELS, at, strict=True)}
        for statistic, value in found.items():
            yield Row(statistic, float(value), np.nan, np.nan, mean.count, half_width=0.0 if width == 0 else np.nan)

    def resampled(self, state: CurvatureState) -> dict[str, np.ndarray]:
        """Totals and counts (2, r) of the layer, by statistic."""
        return {name: state.means.estimate(name)[1].sum(axis=1) for name in state.means.statistics}

    def notes(self, states: Sequence[CurvatureState]) -> list[str]:
        """Says when values under this convention say next to nothing."""
        degenerate = any(state.degenerate for state in states)
        return [f"convention '{self.convention}' is degenerate on some maps"] if degenerate else []

    def _solve(self, attention: Any, valid: np.ndarray, edges: Any, state: CurvatureState) -> Curvature:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = ollivier_ricci(attention, self.rule, edges=edges, mask=valid, threads=self._threads)
        for warning in caught:
            if issubclass(warning.category, DegenerateCurvatureWarning):
                state.degenerate = True
            else:
                warnings.warn(warning.message, warning.category, stacklevel=2)
        return result


def _variance(sums: np.ndarray) -> np.ndarray:
    """Variance among the drawn edges, from their number, total and sum of squares."""
    drawn, total, square = sums[:3]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(drawn > 1, np.maximum(0.0, square - total**2 / drawn) / (drawn - 1), 0.0)


@register_lens("curvature")
def _make(settings: LensSettings) -> Sequence[Lens]:
    return [
        CurvatureLens(
            rule, settings.edges, threads=settings.threads, resamplings=settings.resamplings, seed=settings.seed
        )
        for rule in settings.conventions
    ]
