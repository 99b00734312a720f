"""Compare edges of the exact engine with POT, HiGHS and the exact integer solver.

The bound is 1e-9 * max(1, |kappa|) everywhere. POT and HiGHS work in floating point with tolerances of their own and
miss it at times (weights over many orders of magnitude, lengths of 1e-15 beside lengths of 30): where one of them
disagrees, the exact solver decides, and it never may disagree.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.references.exact import Problem, problem
from tests.graphs import ATTENTION

PRESETS = ("markov", "hop", "grc-0.5", "grc-0.6")

GRC = ("grc-0.5", "grc-0.6")

TOLERANCE = 1e-9


def error(ours: float, reference: float) -> float:
    """|difference| / max(1, |kappa|); infinite unless both or neither are numbers."""
    if np.isnan(ours) or np.isnan(reference):
        return 0.0 if np.isnan(ours) and np.isnan(reference) else np.inf
    if np.isinf(reference):  # it overflowed, or gave up
        return np.inf
    return abs(ours - reference) / max(1.0, abs(reference))


class Tally(Counter):
    """Graphs, edges and comparisons by solver, and the largest error by convention and solver."""

    def __init__(self) -> None:
        super().__init__()
        self.worst: dict[str, float] = {}


def agree(
    graph: Problem, x: int, y: int, result: ga.curvature.Curvature, g: int, solver: str, where: str, tally: Tally
) -> None:
    """Compare one edge with one solver; a solver that disagrees is overruled only by the exact one."""
    ours, status = float(result.kappa[g, x, y]), Status(int(result.status[g, x, y])).name.lower()
    if status == "uncertain":  # not certified to 1e-9, so there must be no number; `finish` counts these
        assert np.isnan(ours), where
        tally["uncertain"] += 1
        return
    try:
        reference, expected = graph.kappa(x, y, solver)
    except ArithmeticError:  # the reference gave up
        reference, expected = np.inf, "solved"
    if (error(ours, reference) > TOLERANCE or status != expected) and solver != "exact":
        tally[f"{solver} overruled"] += 1
        reference, expected = graph.kappa(x, y, "exact")
        solver = "exact"
    assert status == expected, f"{where}, graph {g}, edge ({x}, {y}): {status}, {solver} says {expected}"
    off = error(ours, reference)
    assert off <= TOLERANCE, f"{where}, graph {g}, edge ({x}, {y}): {ours!r}, {solver} says {reference!r}"
    tally[solver] += 1
    name = f"{result.convention.name}, {solver}"
    tally.worst[name] = max(tally.worst.get(name, 0.0), float(off))


def compare(
    batch: np.ndarray,
    convention: str | Convention,
    where: str,
    tally: Tally,
    *,
    attention: object = None,
    highs: int = 1,
    exact: int = 1,
    sample: int | None = None,
) -> None:
    """Solve a batch (or `attention`: the same in another dtype); edges against POT, some against the others."""
    where = f"{where}, n = {batch.shape[-1]}, {convention if isinstance(convention, str) else convention.name}"
    result = ga.ollivier_ricci(batch if attention is None else attention, convention, threads=1)
    rng = np.random.default_rng(0)
    for g, matrix in enumerate(batch):
        graph = problem(matrix, convention)
        pairs = graph.pairs()
        edge = np.zeros(matrix.shape, bool)
        edge[tuple(pairs.T)] = True
        if graph.rule.direction != "directed":
            edge |= edge.T
        assert (edge == (result.status[g] != Status.NO_EDGE)).all(), f"{where}, graph {g}: other edges"
        assert (edge | np.isnan(result.kappa[g])).all(), f"{where}, graph {g}: a number without an edge"
        if sample is not None and len(pairs) > sample:
            pairs = rng.permutation(pairs)[:sample]
        jobs = [(x, y, "pot") for x, y in pairs]
        if len(pairs):
            jobs += [(*pairs[k], "highs") for k in rng.integers(0, len(pairs), highs)]
            jobs += [(*pairs[k], "exact") for k in rng.integers(0, len(pairs), exact)]
        for x, y, solver in jobs:
            agree(graph, x, y, result, g, solver, where, tally)
        tally["graphs"] += 1
        tally["edges"] += len(pairs)


def finish(tally: Tally) -> None:
    """The engine certifies every edge of these graphs."""
    assert tally["uncertain"] == 0
    assert tally["graphs"]


def presets_of(family: str) -> tuple[str, ...]:
    return PRESETS if family in ATTENTION else GRC


def counts_of(family: str, sizes: dict[int, int]) -> dict[int, int]:
    """Some families hold one or two graphs of each size."""
    most = {"uniform": 1, "ring": 2}.get(family, 10**9)
    return {n: min(count, most) for n, count in sizes.items()}


DIRECTED = {
    "-log w": Convention(direction="directed"),
    "hop": Convention(direction="directed", length="hop"),
    "1/w": Convention(direction="directed", length="1/w", alpha=0.3),
    "1-w": Convention(direction="directed", length="1-w"),
    "uniform": Convention(direction="directed", measure="uniform", alpha=0.3),
    "exponential": Convention(direction="directed", measure="exponential", length="w", alpha=0.5, floor=1e-7),
    "per length": Convention(direction="directed", denominator="length"),
}
