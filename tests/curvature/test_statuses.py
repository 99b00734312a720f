"""Statuses: zero distances, mass in other parts of the graph, rounding that is not mass, subnormal weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.comparison import TOLERANCE, error
from tests.curvature.references.exact import problem
from tests.curvature.sparse.graphs import as_rows, random_sparse
from tests.graphs import rows

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


@pytest.mark.parametrize("length", ["-log w", "1-w"])
@pytest.mark.parametrize("measure", ["uniform", "exponential", "markov"])
def test_a_length_of_its_own_beside_a_distance_of_zero(measure, length):
    """Divided by the length of the edge, a pair at distance 0 has a value wherever its edge is longer than 0."""
    convention = Convention(direction="directed", denominator="length", length=length, measure=measure)
    rng = np.random.default_rng(0)
    solved = 0
    for n in (3, 4, 5, 7):
        for _ in range(12):
            weights = rng.choice([0.0, 0.5, 1.0], size=(n, n))  # a weight of 1 is a length of 0
            if measure == "markov":
                weights = rows(weights * (rng.random((n, n)) < 0.4))
            result = ga.ollivier_ricci(weights, convention)
            graph = problem(weights, convention)
            for x, y in graph.pairs():
                reference, expected = graph.kappa(x, y, "exact")
                assert Status(int(result.status[x, y])).name.lower() == expected, (x, y, weights)
                assert error(result.kappa[x, y], reference) <= TOLERANCE
                solved += expected == "solved" and result.distance[x, y] == 0
                assert (result.status[x, y] == Status.ZERO_DISTANCE) == (graph.lengths[x, y] == 0)
    assert solved or measure == "markov", "no pair at distance 0 with a longer edge was drawn"


def two_parts(move: float) -> np.ndarray:
    """With `min`: tokens 0 and 1 are one part, 2 and 3 another; 0 looks at 2 and 1 at 3."""
    return np.array([[0.5, 0.5 - move, move, 0], [0.5, 0.5 - move, 0, move], [0, 0, 0.4, 0.6], [0, 0, 0.7, 0.3]])


@pytest.mark.parametrize("alpha", [0.0, 0.3, "limit"])
@pytest.mark.parametrize("move", [0.25, 1e-3, 1e-9])
def test_mass_moves_within_another_part(move, alpha):
    """Nothing leaves a part, but within it mass moves at its cost: here from token 2 to token 3."""
    convention = Convention(direction="min", alpha=alpha)
    result = ga.ollivier_ricci(two_parts(move), convention)
    assert result.status[0, 1] == Status.SOLVED
    share = 1.0 if alpha == "limit" else 1 - float(alpha)
    between = -np.log(0.6)
    near = 0.0 if alpha == "limit" else float(alpha) * result.distance[0, 1]  # the rows agree on tokens 0 and 1
    assert result.w1[0, 1] == pytest.approx(share * move * between + near, rel=1e-9, abs=1e-14)
    sparse = ga.ollivier_ricci(torch.from_numpy(two_parts(move)).to_sparse(), convention)
    assert sparse.kappa[0] == pytest.approx(result.kappa[0, 1], abs=1e-9)


def test_what_cannot_balance_is_unreachable():
    attention = two_parts(0.25)
    attention[1] = [0.5, 0.25, 0.05, 0.2]
    assert ga.ollivier_ricci(attention, Convention(direction="min")).status[0, 1] == Status.SOLVED
    attention[1] = [0.5, 0.3, 0.0, 0.2]
    result = ga.ollivier_ricci(attention, Convention(direction="min"))
    assert result.status[0, 1] == Status.UNREACHABLE
    assert np.isnan(result.kappa[0, 1])
    assert np.isnan(result.w1[0, 1])


@pytest.mark.parametrize("direction", ["min", "product"])
def test_other_parts_against_the_exact_solver(direction):
    """Random maps of several parts; statuses and values follow exact arithmetic."""
    rng = np.random.default_rng(0)
    convention = Convention(direction=direction)
    moved = 0
    for _ in range(60):
        n = int(rng.integers(6, 11))
        part = np.sort(rng.integers(0, 3, n))
        # each token looks at each part before its own with a quarter; nobody looks back: `min` and `product` cut that
        attention = np.zeros((n, n))
        for x in range(n):
            for other in range(part[x] + 1):
                members = np.flatnonzero(part == other)
                own = (rng.random(len(members)) + 0.1) * (rng.random(len(members)) < 0.8) + 1e-3
                share = 1 - 0.25 * len(set(part[part < part[x]])) if other == part[x] else 0.25
                attention[x, members] = share * own / own.sum()
        attention = rows(attention)
        result = ga.ollivier_ricci(attention, convention)
        graph = problem(attention, convention)
        for x, y in graph.pairs():
            reference, expected = graph.kappa(x, y, "pot")
            assert Status(int(result.status[x, y])).name.lower() == expected
            assert error(result.kappa[x, y], reference) <= 1e-8
            elsewhere = part != part[x]
            moved += expected == "solved" and (attention[x] != attention[y])[elsewhere].any()
    assert moved, "no pair moves mass in another part"


def test_the_gradient_of_mass_in_another_part():
    attention = two_parts(0.2)
    attention[1] = [0.4, 0.4, 0, 0.2]  # at no kink: the rows differ at tokens 0 and 1 too
    weights = torch.tensor(attention, dtype=torch.float64)
    convention = Convention(direction="min")

    def kappa(x: torch.Tensor) -> torch.Tensor:
        return ga.curvature.edge_curvature(x, convention).sum()

    # along directions that keep the rows on the simplex and the parts balanced
    for row, (a, b) in ((2, (2, 3)), (3, (2, 3)), (0, (0, 1))):
        step = torch.zeros(4, 4, dtype=torch.float64)
        step[row, a], step[row, b] = 1e-6, -1e-6
        x = weights.clone().requires_grad_()
        (grad,) = torch.autograd.grad(kappa(x), x)
        slope = (kappa(weights + step) - kappa(weights - step)) / 2e-6
        assert float((grad * step).sum() / 1e-6) == pytest.approx(float(slope), abs=1e-5)


def test_rounding_is_not_mass():
    """Directed graphs whose rows are shares of whole numbers: both engines agree on what is unreachable."""
    convention = Convention(direction="directed")
    pairs = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        matrix = random_sparse(rng, int(rng.integers(4, 14)), rng.uniform(1.5, 4), kind="ties")
        dense, sparse = ga.ollivier_ricci(as_rows(matrix), convention), ga.ollivier_ricci(matrix, convention)
        np.testing.assert_array_equal(sparse.status, dense.column("status"), err_msg=f"seed {seed}")
        pairs += len(sparse.status)
    assert pairs > 5000


TINY = 5e-324  # the smallest number above 0


@pytest.mark.parametrize("measure", ["markov", "uniform", "exponential"])
@pytest.mark.parametrize("direction", ["mean", "max", "min", "product", "directed"])
def test_what_an_edge_is(direction, measure):
    """An edge is a pair whose S, as float64 holds it, is above 0: in lengths, measures and lists of edges alike."""
    convention = Convention(direction=direction, measure=measure, length="-log w")
    rng = np.random.default_rng(1)
    for _ in range(40):
        weights = rng.choice([0.0, TINY, 3 * TINY, 1e-310, 1e-160, 0.25, 0.5], size=(5, 5))
        weights[np.arange(5), np.arange(5)] += 0.25
        attention = weights / weights.sum(axis=1, keepdims=True)
        a, t = attention, attention.T
        s = {"mean": (a + t) * 0.5, "max": np.maximum(a, t), "min": np.minimum(a, t), "product": a * t, "directed": a}
        edge = (s[direction] > 0) & ~np.eye(5, dtype=bool)
        graphs = ga.graph.build_graphs(attention[None], convention)
        np.testing.assert_array_equal(np.isfinite(graphs.lengths[0]), edge)
        if measure == "uniform":
            np.testing.assert_array_equal(graphs.measures[0] > 0, edge | np.diag(~edge.any(axis=1)))
        result = ga.ollivier_ricci(attention, convention)
        np.testing.assert_array_equal(
            result.status != Status.NO_EDGE, edge if direction == "directed" else edge | edge.T
        )
        sparse = ga.ollivier_ricci(torch.from_numpy(attention).to_sparse(), convention)
        np.testing.assert_array_equal(sparse.index, result.places())
        both = np.isfinite(sparse.kappa) & np.isfinite(result.column("kappa"))
        np.testing.assert_allclose(sparse.kappa[both], result.column("kappa")[both], atol=1e-9)
