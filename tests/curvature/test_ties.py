"""Families of maps full of ties: values against POT, and no pair that stalls. benchmarks/ties.py has the times."""

from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn.curvature import Status
from geoattn.curvature.transport import Transport, solve_pairs
from geoattn.graph.build import build_graphs
from geoattn.graph.shortest_paths import shortest_paths
from tests.curvature.comparison import TOLERANCE, error
from tests.curvature.references.exact import problem
from tests.curvature.tie_families import TIES, tie_family
from tests.graphs import symmetric

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def compare(name: str, n: int, seed: int, edges: int) -> None:
    attention, convention = tie_family(name, n, seed)
    result = ga.ollivier_ricci(attention, convention, edges=edges, seed=seed)
    if convention.alpha == "limit":  # POT has no limit: near it the curvature is linear in alpha
        near = convention.but(alpha=0.999)
        graph = problem(attention, near)
    else:
        graph = problem(attention, convention)
    assert len(result.index) == edges
    for (x, y), ours, status in zip(result.index, result.kappa, result.status, strict=True):
        reference, expected = graph.kappa(x, y, "pot")
        if convention.alpha == "limit":
            reference *= 1000
        assert Status(int(status)).name.lower() == expected, (name, n, seed, x, y)
        assert error(ours, reference) <= (1e-6 if convention.alpha == "limit" else TOLERANCE), (x, y, ours, reference)
    assert not np.isnan(result.max_gap)
    assert result.max_gap <= 1e-9


@pytest.mark.parametrize("name", TIES)
def test_values_of_short_maps(name):
    for n, seed in ((12, 0), (33, 1), (66, 2)):
        compare(name, n, seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("n", [130, 257, 300, 450, 700])
def test_values_of_long_maps(name, n):
    for seed in range(3):
        compare(name, n, seed, 6)


def solved_both_ways(attention: np.ndarray, convention: ga.Convention, edges: int = 60) -> tuple[Transport, Transport]:
    """Values alone, which maps of few distances find on sets, and values with potentials, which come from a tree."""
    graphs = build_graphs(attention[None], convention)
    pairs = np.argwhere(graphs.edges[0]).astype(np.int32)
    pairs = np.ascontiguousarray(pairs[:: max(1, len(pairs) // edges)])
    offsets = np.array([0, len(pairs)])
    values, others = (solve_pairs(graphs, pairs, offsets, threads=threads) for threads in (1, 3))
    for one, other in ((values.w1, others.w1), (values.gap, others.gap), (values.status, others.status)):
        np.testing.assert_array_equal(one, other)  # the same bits, whatever the threads
    return values, solve_pairs(graphs, pairs, offsets, potentials=True)


def agree(values: Transport, trees: Transport) -> None:
    np.testing.assert_array_equal(values.status, trees.status)
    assert not np.any(values.status == Status.STALLED)
    np.testing.assert_allclose(values.kappa, trees.kappa, rtol=1e-11, atol=1e-11)
    assert np.nanmax(values.gap, initial=0.0) <= 1e-11


@pytest.mark.parametrize("name", TIES)
def test_values_on_sets_are_those_of_trees(name):
    for n, seed in ((5, 0), (17, 1), (70, 2), (140, 3)):
        agree(*solved_both_ways(*tie_family(name, n, seed)))


@pytest.mark.parametrize("measure", ["markov", "uniform", "exponential"])
def test_a_long_path_has_more_distances_than_are_kept(measure):
    """A path of 160 tokens with a few long jumps, of whose distances 16 are kept as sets."""
    n = 160
    jumps = np.zeros((n, n))
    for a, b in ((0, 60), (20, 120), (40, 159), (30, 90), (70, 140), (10, 105), (50, 130)):
        jumps[a, b] = jumps[b, a] = 1.0
    attention = np.eye(n, k=1) + np.eye(n, k=-1) + jumps
    attention /= attention.sum(axis=1, keepdims=True)
    farthest = shortest_paths(np.where(attention > 0, 1.0, np.inf)).max()
    assert 16 < farthest <= n // 4  # more than are kept, and still few
    for convention in (ga.Convention(length="hop", measure=measure), ga.Convention(length="hop", alpha="limit")):
        agree(*solved_both_ways(attention, convention, 200))


def test_lengths_of_very_different_size_share_no_level():
    """Lengths 1, 2 and 1e9 or 1e14: distances that differ by one must not be taken for the same one."""
    rng = np.random.default_rng(5)
    for far in (1e9, 1e14):
        lengths = symmetric(rng.choice([1.0, 2.0, far], size=(40, 40), p=[0.02, 0.02, 0.96]))
        agree(*solved_both_ways(lengths, ga.Convention.of("grc-0.5"), 100))


def test_one_way_maps_name_the_same_unreachable_pairs():
    rng = np.random.default_rng(6)
    for n in (20, 75):
        attention = np.triu(rng.random((n, n)) < 0.15) + 1e-3 * np.eye(n)
        attention /= attention.sum(axis=1, keepdims=True)
        values, trees = solved_both_ways(attention, ga.Convention(direction="directed", length="hop"), 200)
        agree(values, trees)
        assert np.any(values.status == Status.UNREACHABLE)
