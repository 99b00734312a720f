"""The sparse engine against POT, HiGHS and an exact integer solver on 10,000 hostile sparse graphs.

Every edge of a small graph is compared with POT, one with HiGHS and one with the exact solver
(tests/curvature/references/exact.py), by the rules of tests/curvature/comparison.py. The bound is 1e-9 * max(1,
|kappa|).
"""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

import geoattn as ga
from geoattn.curvature import Status
from geoattn.graph.sparse_build import build_sparse
from geoattn.graph.sparse_inputs import read_sparse
from tests.curvature.comparison import TOLERANCE, Tally, agree, error
from tests.curvature.references.exact import Problem, Rule, floyd_warshall, problem
from tests.curvature.sparse.graphs import as_rows, random_sparse

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

PRESETS = [ga.Convention.of(name) for name in ("markov", "hop", "grc-0.5", "grc-0.6")]
CONVENTIONS = [
    *PRESETS,
    *(convention.but(direction="directed") for convention in PRESETS),
    ga.Convention.of("grc-0.6").but(floor=0.0),
    ga.Convention.of("grc-0.6").but(floor=0.0, direction="max", measure="uniform", alpha=0.0),
]
GRAPHS = 625  # of each of the 16 families


def pattern(rng: np.random.Generator, n: int, degree: float) -> np.ndarray:
    return np.triu(rng.random((n, n)) < min(1.0, degree / n), 1)


def both(upper: np.ndarray) -> np.ndarray:
    return upper + upper.T


def tree(rng: np.random.Generator, n: int) -> np.ndarray:
    found = np.zeros((n, n))
    for v in range(1, n):
        found[int(rng.integers(max(0, v - 4), v)), v] = 1.0
    return found


def orders(low: float, high: float):
    return lambda rng, n: both(pattern(rng, n, 4) * 10.0 ** rng.uniform(low, high, (n, n)))


def hub(rng: np.random.Generator, n: int) -> np.ndarray:
    """All nodes at one or two hubs, pendants among them."""
    found = pattern(rng, n, 1.5) * rng.uniform(0.05, 1.0, (n, n))
    for v in range(int(rng.integers(1, 3))):
        found[v, v + 1 :] = rng.uniform(0.05, 1.0, n - v - 1)
    return both(found)


FAMILIES = {
    "hub": hub,
    "hub of units": lambda rng, n: (hub(rng, n) > 0).astype(float),
    "hub of ties": lambda rng, n: np.ceil(hub(rng, n) * 3) / 3,
    "star over 300 orders": lambda rng, n: both(
        np.eye(1, n)[0][:, None] * (np.arange(n) > 0) * 10.0 ** rng.uniform(-300, 0, n)
    ),
    "tree": lambda rng, n: both(tree(rng, n) * rng.uniform(0.05, 1.0, (n, n))),
    "tree of units": lambda rng, n: both(tree(rng, n)),
    "ties": lambda rng, n: random_sparse(rng, n, 4, kind="ties").toarray(),
    "units, one way": lambda rng, n: (rng.random((n, n)) < min(1.0, 3 / n)).astype(float),
    "units of 0.3": lambda rng, n: 0.3 * both(pattern(rng, n, 4)),
    "weights": lambda rng, n: random_sparse(rng, n, 3).toarray(),
    "300 orders": orders(-300, 0),
    "300 orders, one way": lambda rng, n: (rng.random((n, n)) < 4 / n) * 10.0 ** rng.uniform(-300, 0, (n, n)),
    "lengths of 1e-15 beside 1": lambda rng, n: both(pattern(rng, n, 4) * rng.choice([1e-15, 1e-8, 1.0], (n, n))),
    "subnormal": lambda rng, n: both(pattern(rng, n, 4) * rng.choice([5e-324, 1e-310, 2e-308, 0.5], (n, n))),
    "two parts": lambda rng, n: both(pattern(rng, n, 5) * (np.arange(n)[:, None] < n // 2) * (np.arange(n) < n // 2)),
    "grid": lambda rng, n: both((np.eye(n, k=1) + np.eye(n, k=5)) * rng.integers(1, 3, (n, n))),
}


def compare(matrix: np.ndarray, convention: ga.Convention, where: str, tally: Tally, sample: int, exact: bool) -> None:
    """Edges against POT, one against HiGHS, one against the exact solver."""
    found = ga.ollivier_ricci(csr_array(matrix), convention, threads=1)
    graph = problem(as_rows(csr_array(matrix)) if convention.measure == "markov" else matrix, convention)
    np.testing.assert_array_equal(found.index, graph.pairs(), err_msg=where)
    result = SimpleNamespace(convention=convention)  # by places, as a dense result has it
    result.kappa, result.status = np.full((1, *matrix.shape), np.nan), np.zeros((1, *matrix.shape), np.uint8)
    for name in ("kappa", "status"):
        getattr(result, name)[0, found.index[:, 0], found.index[:, 1]] = getattr(found, name)
    rng = np.random.default_rng(0)
    pairs = found.index if len(found.index) <= sample else rng.permutation(found.index)[:sample]
    jobs = [(x, y, "pot") for x, y in pairs]
    if len(pairs):
        jobs.append((*pairs[rng.integers(len(pairs))], "highs"))
        if exact:
            jobs.append((*pairs[rng.integers(len(pairs))], "exact"))
    for x, y, solver in jobs:
        agree(graph, int(x), int(y), result, 0, solver, where, tally)  # type: ignore[arg-type]
    tally["graphs"] += 1
    tally["edges"] += len(pairs)


def fitting(family: str, convention: ga.Convention) -> ga.Convention:
    """The convention, without what a double cannot say, whoever computes it.

    A row that holds 1 - 1e-15 has a length -log w that is a rounding error. Masses have 16 digits: beside lengths of 1,
    a distance of 1e-12 has a curvature of 4.
    """
    if "orders" in family or family.startswith("lengths") or family == "subnormal":
        convention = convention.but(floor=max(convention.floor, 1e-5))
        return convention.but(length="w") if convention.length == "-log w" else convention
    return convention


def sweep(family: str, count: int, largest: int) -> Tally:
    tally = Tally()
    rng = np.random.default_rng(zlib.crc32(family.encode()))
    for k in range(count):
        n = int(rng.integers(3, largest))
        convention = fitting(family, CONVENTIONS[k % len(CONVENTIONS)])
        compare(FAMILIES[family](rng, n), convention, f"{family} {k}, {convention.name}", tally, 10**9, n < 14)
    return tally


@pytest.mark.parametrize("family", list(FAMILIES))
def test_some_hostile_graphs(family: str) -> None:
    tally = sweep(family, 10, 14)
    assert tally["uncertain"] == 0
    assert tally["graphs"] == 10


@pytest.mark.parametrize("family", [family for family in FAMILIES if fitting(family, PRESETS[0]) != PRESETS[0]])
def test_a_value_is_right_or_uncertain_where_doubles_run_out(family: str) -> None:
    """The conventions that `fitting` leaves out; the exact solver starts from the same lengths and measures."""
    rng = np.random.default_rng(1)
    found = {"right": 0, "uncertain": 0}
    for k in range(60):
        convention, matrix = (
            CONVENTIONS[k % len(CONVENTIONS)],
            csr_array(FAMILIES[family](rng, int(rng.integers(3, 14)))),
        )
        if fitting(family, convention) == convention:
            continue
        built = build_sparse(read_sparse(matrix, convention), convention)
        lengths = np.full(matrix.shape, np.inf)
        lengths[built.lengths.row, built.lengths.column] = built.lengths.value
        measures = built.measures.csr().toarray()
        graph = Problem(lengths, floyd_warshall(lengths), measures, Rule.of(convention))
        result = ga.ollivier_ricci(matrix, convention, threads=1)
        for (x, y), kappa, status in zip(result.index.tolist(), result.kappa, result.status, strict=True):
            if status == Status.UNCERTAIN:
                assert np.isnan(kappa)
                found["uncertain"] += 1
                continue
            reference, expected = graph.kappa(x, y, "exact")
            assert Status(int(status)).name.lower() == expected
            assert error(float(kappa), reference) <= TOLERANCE, f"{family} {k}, {convention.name}, edge ({x}, {y})"
            found["right"] += 1
    assert found["uncertain"] < 0.05 * found["right"]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_ten_thousand_hostile_graphs(family: str, record_property) -> None:
    assert GRAPHS * len(FAMILIES) == 10_000
    tally = sweep(family, GRAPHS, 30)
    record_property("compared", dict(tally))
    record_property("largest error", tally.worst)
    assert tally["uncertain"] == 0
    assert tally["graphs"] == GRAPHS
    assert tally["edges"] > GRAPHS


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_up_to_seven_hundred_nodes(family: str) -> None:
    tally = Tally()
    rng = np.random.default_rng(5)
    for n in (65, 130, 700):
        for convention in (fitting(family, CONVENTIONS[k]) for k in (0, 3, 7)):
            compare(FAMILIES[family](rng, n), convention, f"{family} {n}, {convention.name}", tally, 20, False)
    assert tally["uncertain"] == 0
