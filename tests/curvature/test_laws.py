"""Laws that hold for every attention, on drawn ones: the hostile families of tests/graphs.py among them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from geoattn.curvature.transport import all_edges, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from tests.curvature.drawn_attention import PRESETS, UNDIRECTED, attentions, conventions, same
from tests.curvature.references.exact import floyd_warshall
from tests.graphs import ATTENTION, WEIGHTS, draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


@given(attentions(), conventions, st.integers(0, 1000))
def test_permutation_equivariance(a, convention, seed):
    p = np.random.default_rng(seed).permutation(len(a))
    one, two = ga.ollivier_ricci(a[np.ix_(p, p)], convention), ga.ollivier_ricci(a, convention)
    same(one.kappa, two.kappa[np.ix_(p, p)])
    np.testing.assert_array_equal(one.status, two.status[np.ix_(p, p)])


@given(attentions(), conventions)
def test_symmetric_and_at_most_one(a, convention):
    result = ga.ollivier_ricci(a, convention)
    if not convention.directed:
        np.testing.assert_array_equal(result.kappa, result.kappa.T)
        np.testing.assert_array_equal(result.status, result.status.T)
    assert result.max_gap < 1e-9
    if convention.alpha == "limit":
        assert (result.values() <= 2 + 1e-12).all()  # 1 + 1 / (n - 1) and less, but 2 for two tokens
    else:
        assert (result.values() <= 1 + 1e-12).all()
    assert np.isnan(np.diagonal(result.kappa)).all()


@given(attentions(), st.sampled_from(UNDIRECTED))
def test_direction_of_a_pair_does_not_matter(a, convention):
    """(x, y) and (y, x) of an undirected graph, both solved."""
    graphs = build_graphs(a[None], convention)
    _, pairs, offsets = all_edges(graphs)
    assume(len(pairs))
    there = solve_pairs(graphs, pairs, offsets)
    back = solve_pairs(graphs, np.ascontiguousarray(pairs[:, ::-1]), offsets)
    same(there.kappa, back.kappa)
    np.testing.assert_array_equal(there.status, back.status)


@given(attentions(), conventions, st.sampled_from([1e-200, 1e-30, 1e-6, 0.1, 7.0, 1e6, 1e30, 1e150]))
def test_scaling_all_lengths_changes_nothing(a, convention, factor):
    """The measures are kept. Powers of two would be no test at all; these round every length."""
    graphs = build_graphs(a[None], convention.but(floor=0.0))
    with np.errstate(over="ignore"):
        scaled = dataclasses.replace(graphs, lengths=graphs.lengths * factor)
    pairs = all_edges(graphs)[1:]
    one, two = solve_pairs(graphs, *pairs), solve_pairs(scaled, *pairs)
    same(one.kappa, two.kappa)
    np.testing.assert_array_equal(one.status, two.status)
    np.testing.assert_allclose(one.w1 * factor, two.w1, rtol=1e-9, atol=1e-12 * factor)


@given(attentions(), st.sampled_from(UNDIRECTED), st.sampled_from([1.0, 1e6, 1e12]))
def test_a_far_leaf_without_mass_changes_nothing(a, convention, far):
    """Neither the widths of the integers nor the precision of the potentials show in the values."""
    graphs = build_graphs(a[None], convention)
    n = len(a)
    lengths = np.full((1, n + 1, n + 1), np.inf)
    lengths[:, :n, :n] = graphs.lengths
    lengths[0, n, 0] = lengths[0, 0, n] = far
    measures = np.zeros((1, n + 1, n + 1))
    measures[:, :n, :n] = graphs.measures
    measures[0, n, n] = 1
    pairs = all_edges(graphs)[1:]
    larger = Graphs(lengths, measures, np.where(np.isfinite(lengths), 1.0, 0.0), convention)
    one, two = solve_pairs(graphs, *pairs), solve_pairs(larger, *pairs)
    np.testing.assert_array_equal(one.status, two.status)
    same(one.kappa, two.kappa)


@given(attentions(6), attentions(6), st.sampled_from(UNDIRECTED[:4]))
def test_components_do_not_know_of_each_other(a, b, convention):
    n, m = len(a), len(b)
    both = np.zeros((n + m, n + m))
    both[:n, :n], both[n:, n:] = a, b
    result = ga.ollivier_ricci(both, convention)
    same(result.kappa[:n, :n], ga.ollivier_ricci(a, convention).kappa)
    same(result.kappa[n:, n:], ga.ollivier_ricci(b, convention).kappa)
    assert np.isnan(result.kappa[:n, n:]).all()


@given(attentions(), st.sampled_from([0.1, 0.5, 0.9]))
def test_laziness_interpolates(a, alpha):
    """W1 is convex and 1-Lipschitz in the measures: kappa_alpha >= (1 - alpha) kappa_0."""
    plain = ga.ollivier_ricci(a).kappa
    lazy = ga.ollivier_ricci(a, Convention(alpha=alpha)).kappa
    known = np.isfinite(plain)
    assert (lazy[known] >= (1 - alpha) * plain[known] - 1e-10).all()
    assert (np.isfinite(lazy) == known).all()


@given(attentions(), conventions)
def test_potentials_are_lipschitz_and_prove_the_value(a, convention):
    graphs = build_graphs(a[None], convention.but(floor=0.0))
    distances = floyd_warshall(graphs.lengths[0])
    solved = solve_pairs(graphs, *all_edges(graphs)[1:], potentials=True)
    assert solved.potentials is not None
    for e in np.flatnonzero(solved.status == Status.SOLVED):
        p, (x, y) = solved.potentials[e], solved.pairs[e]
        known = np.isfinite(p)
        assert known[[x, y]].all()
        climb = p[known][:, None] - p[known][None]
        assert (climb <= distances[np.ix_(known, known)] * (1 + 1e-12) + 1e-12).all()
        move = graphs.measures[0, x] - graphs.measures[0, y]
        assert (move[~known] == 0).all()
        value = move[known] @ p[known] + solved.idle * (p[x] - p[y])
        assert value == pytest.approx(solved.w1[e], rel=1e-10, abs=1e-12)
        assert solved.gap[e] <= 1e-10
        assert solved.distance[e] == pytest.approx(distances[x, y], rel=1e-12)


@pytest.mark.parametrize("family", [*ATTENTION, *WEIGHTS])
def test_the_gap_is_small_on_every_family(family):
    """No family of more or less usual range needs more than 1e-10."""
    for n in (3, 8, 20):
        batch = draw(family, n, 5, seed=2)
        for convention in PRESETS if family in ATTENTION else PRESETS[2:]:
            result = ga.ollivier_ricci(batch, convention)
            assert result.max_gap <= (1e-9 if family.startswith("powers-large") else 1e-10)
            solved = result.status == Status.SOLVED
            assert (result.gap[solved] >= 0).all()
            assert np.isnan(result.gap[~solved]).all()


def test_measures_and_graphs_are_left_alone():
    """Neither the solver nor the front door writes to its input."""
    a = draw("softmax-1", 8, 3)
    kept = a.copy()
    graphs = build_graphs(a, Convention.of("markov"))
    lengths, measures = graphs.lengths.copy(), graphs.measures.copy()
    solve_pairs(graphs, *all_edges(graphs)[1:])
    ga.ollivier_ricci(a, mask=np.ones((3, 8), bool))
    np.testing.assert_array_equal(a, kept)
    np.testing.assert_array_equal(graphs.lengths, lengths)
    np.testing.assert_array_equal(graphs.measures, measures)
