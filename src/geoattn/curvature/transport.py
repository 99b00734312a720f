"""The exact solver's Python side: graphs and pairs in, transport distances with certificates out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn import _native
from geoattn.graph.build import Graphs
from geoattn.graph.shortest_paths import default_threads

__all__ = ["Status", "Transport", "all_edges", "pairs_at", "solve_pairs"]

# Lin-Lu-Yau: with this much extra mass on the pair itself, more than twice what the measures move, every optimal
# potential falls by d(x, y) from x to y, so the last linear piece of alpha -> W1 is reached exactly.
IDLE_MASS = 4.0


class Status(IntEnum):
    """The outcome for a pair of tokens; ``str()`` puts it into words.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> result = ga.ollivier_ricci(np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.2, 0.8]]))
    >>> status = ga.curvature.Status(result.status[0, 2])
    >>> status.name, str(status)
    ('NO_EDGE', 'no edge between the two tokens')
    >>> result.summary_of_status()
    {'solved': 2}
    """

    SOLVED = 0
    NO_EDGE = 1
    MISSING_TOKEN = 2
    UNREACHABLE = 3
    ZERO_DISTANCE = 4
    BELOW_FLOOR = 5
    STALLED = 6
    UNCERTAIN = 7

    def __str__(self) -> str:
        """The sentence for humans."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.SOLVED: "solved, with a certificate",
    Status.NO_EDGE: "no edge between the two tokens",
    Status.MISSING_TOKEN: "a token of the pair is padding",
    Status.UNREACHABLE: "no path takes one measure to the other",
    Status.ZERO_DISTANCE: "the tokens are at distance 0, where curvature is not defined",
    Status.BELOW_FLOOR: "shorter than the floor of the convention, which sets curvature to 0",
    Status.STALLED: "the solver reached its pivot limit; no value",
    Status.UNCERTAIN: "lengths or masses span too many orders of magnitude to certify 1e-9; no value",
}


@dataclass(frozen=True)
class Transport:
    """Transport distances of pairs (x, y) grouped by graph, with what proves and differentiates them.

    ``gap`` is the relative duality gap: (cost of the flow - certified lower bound) / max(W1, D). It bounds the error of
    kappa = 1 - W1 / D relative to max(1, W1 / D), rounding included.
    """

    pairs: Int[np.ndarray, "e 2"]
    offsets: Int[np.ndarray, " g1"]
    w1: Float[np.ndarray, " e"]
    denominator: Float[np.ndarray, " e"]
    distance: Float[np.ndarray, " e"]
    gap: Float[np.ndarray, " e"]
    status: UInt8[np.ndarray, " e"]
    trees: Int[np.ndarray, "e n"] | None
    potentials: Float[np.ndarray, "e n"] | None
    idle: float

    @property
    def kappa(self) -> Float[np.ndarray, " e"]:
        """1 - W1 / D (Lin-Lu-Yau: the idle mass taken out), 0 below the floor, NaN where there is no value."""
        kappa = 1.0 + self.idle - self.w1 / self.denominator  # W1 is NaN wherever the denominator is 0
        if np.count_nonzero(self.status):
            kappa[self.status == Status.BELOW_FLOOR.value] = 0.0
        return kappa

    @property
    def net_w1(self) -> Float[np.ndarray, " e"]:
        """W1 between the measures; in the Lin-Lu-Yau limit the cost of the moves that the idle mass allows."""
        return self.w1 - self.idle * self.distance if self.idle else self.w1


def all_edges(
    graphs: Graphs,
) -> tuple[Int[np.ndarray, " e"], Int[np.ndarray, "e 2"], Int[np.ndarray, " g1"]]:
    """Flat places in (g, n, n), pairs and offsets of all ``graphs.edges``, natively: a small map feels more."""
    places, pairs, offsets = _native.list_edges(np.ascontiguousarray(graphs.lengths), graphs.convention.directed)
    # buffers of long long, which NumPy takes for another type of that size
    return places.view(np.int64), pairs, offsets.view(np.int64)


def pairs_at(
    places: Int[np.ndarray, " e"], graphs: int, n: int
) -> tuple[Int[np.ndarray, "e 2"], Int[np.ndarray, " g1"]]:
    """Pairs and offsets of ascending flat places in (g, n, n)."""
    offsets = np.searchsorted(places, np.arange(graphs + 1) * (n * n))
    pairs = np.empty((len(places), 2), dtype=np.int32)
    rows = places // n  # x = rows % n and y = places % n, but NumPy takes longer for % than for all of this
    pairs[:, 0], pairs[:, 1] = rows - rows // n * n, places - rows * n
    return pairs, offsets


def solve_pairs(
    graphs: Graphs,
    pairs: Int[np.ndarray, "e 2"],
    offsets: Int[np.ndarray, " g1"],
    *,
    tolerance: float = 0.0,
    threads: int | None = None,
    trees: bool = False,
    potentials: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Transport:
    """W1 of the given pairs: time about n^2 per pair on complete graphs, memory n^2 per thread.

    Exact, or with ``tolerance`` the middle of an interval of kappa that is no wider, with half its width in ``gap``.
    """
    count, n = len(pairs), graphs.lengths.shape[-1]
    convention = graphs.convention
    w1, denominator, distance, gap = np.full((4, count), np.nan)
    result = Transport(
        pairs, offsets, w1, denominator, distance, gap,
        np.full(count, Status.STALLED.value, dtype=np.uint8),
        np.empty((count, n), dtype=np.int32) if trees else None,
        np.full((count, n), np.nan) if potentials else None,
        IDLE_MASS if convention.alpha == "limit" else 0.0,
    )  # fmt: skip
    _native.solve(
        np.ascontiguousarray(graphs.lengths),
        np.ascontiguousarray(graphs.measures),
        pairs, offsets, w1, denominator, distance, gap, result.status, result.trees, result.potentials,
        directed=convention.directed,
        per_length=convention.denominator == "length",
        floor=convention.floor,
        idle=result.idle,
        tolerance=tolerance,
        threads=threads or default_threads(),
        progress=progress,
    )  # fmt: skip
    return result
