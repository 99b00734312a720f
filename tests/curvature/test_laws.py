"""Laws that hold for every attention, on drawn ones: the hostile families of tests/graphs.py among them."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from geoattn.curvature.transport import all_edges, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from geoattn.graph.shortest_paths import shortest_paths
from tests.curvature.references.exact import floyd_warshall
from tests.graphs import ATTENTION, WEIGHTS, draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

PRESETS = ("markov", "hop", "grc-0.5", "grc-0.6")
UNDIRECTED = [
    *map(Convention.of, PRESETS),
    Convention(length="1/w"),
    Convention(length="1-w", direction="max"),
    Convention(alpha="limit"),
    Convention(measure="uniform", alpha=0.3),
]
CONVENTIONS = [
    *UNDIRECTED,
    Convention(direction="directed"),
    Convention(direction="directed", length="hop"),
    Convention(direction="directed", alpha="limit"),
]
conventions = st.sampled_from(CONVENTIONS)
# Their answers hang on the last bit of a weight (a length of -log(1 - 1e-15), masses over 30 orders): not for laws that
# change the order of sums.
FRAGILE = {"nearly_mutual", "wide_rows", "wide_sparse_rows", "softmax-10", "softmax-30"}
SOLID = {"rtol": 1e-9, "atol": 1e-10}


@st.composite
def attentions(draw_: st.DrawFn, most: int = 9) -> np.ndarray:
    """Softmax attention, flat to one-hot, with zeros, with coarse logits so that ties come; or a hostile family."""
    n, seed = draw_(st.integers(2, most)), draw_(st.integers(0, 2**32 - 1))
    family = draw_(st.sampled_from([None, *(f for f in ATTENTION if f not in FRAGILE)]))
    if family is not None:
        return draw(family, n, 1, seed)[0]
    rng = np.random.default_rng(seed)
    logits = draw_(st.sampled_from([0.1, 1.0, 5.0])) * rng.standard_normal((n, n))
    if draw_(st.booleans()):
        logits = np.round(logits)
    weights = np.exp(logits) * (rng.random((n, n)) > draw_(st.sampled_from([0.0, 0.3])))
    weights[np.arange(n), np.arange(n)] += 1e-3
    return weights / weights.sum(-1, keepdims=True)


def same(one: np.ndarray, two: np.ndarray) -> None:
    np.testing.assert_allclose(one, two, **SOLID)


# ---- symmetry and scale


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


# ---- the certificate


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


# ---- threads, batches, samples, masks


@pytest.mark.parametrize("family", ["softmax-1", "ties", "with_zeros", "causal_sharp", "levels"])
@pytest.mark.parametrize("convention", [*PRESETS, "directed"])
def test_threads_change_no_bit(family, convention):
    convention = Convention(direction="directed") if convention == "directed" else convention
    for n, count in ((9, 5), (50, 1), (65, 2)):
        a = draw(family, n, count)
        results = [ga.ollivier_ricci(a, convention, threads=t) for t in (1, 2, 3, 7)]
        for other, name in itertools.product(results[1:], ("kappa", "w1", "distance", "gap", "status")):
            np.testing.assert_array_equal(getattr(other, name), getattr(results[0], name), err_msg=name)


def test_threads_change_no_bit_of_a_sample():
    a = draw("ties", 150, 2)
    one, two = (ga.ollivier_ricci(a, edges=40, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one.kappa, two.kappa)
    np.testing.assert_array_equal(one.index, two.index)


@pytest.mark.parametrize("convention", PRESETS)
def test_a_batch_is_one_by_one(convention):
    a = np.stack([draw(family, 12, 2) for family in ("softmax-1", "ties", "few")]).reshape(3, 2, 12, 12)
    batch = ga.ollivier_ricci(a, convention)
    for index in np.ndindex(3, 2):
        one = ga.ollivier_ricci(a[index], convention)
        np.testing.assert_allclose(batch.kappa[index], one.kappa, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(batch.status[index], one.status)


def test_batches_larger_than_a_chunk(monkeypatch):
    """The pieces in which a batch is worked through do not show, in samples either."""
    a = draw("with_zeros", 7, 12).reshape(3, 4, 7, 7)
    for convention in ("markov", "hop", Convention(heads="mean")):
        whole = [ga.ollivier_ricci(a, convention), ga.ollivier_ricci(a, convention, edges=3, seed=5)]
        with monkeypatch.context() as patch:
            patch.setattr("geoattn.curvature.ollivier._CHUNK_BYTES", 7 * 7 * 8 * 5)
            pieces = [ga.ollivier_ricci(a, convention), ga.ollivier_ricci(a, convention, edges=3, seed=5)]
        for one, two in zip(whole, pieces, strict=True):
            np.testing.assert_array_equal(one.kappa, two.kappa)
            np.testing.assert_array_equal(one.status, two.status)
        np.testing.assert_array_equal(whole[1].index, pieces[1].index)


def test_heads_may_be_averaged():
    a = draw("softmax-1", 6, 8).reshape(2, 4, 6, 6)
    averaged = ga.ollivier_ricci(a, Convention(heads="mean"))
    assert averaged.shape == (2, 6, 6)
    same(averaged.kappa, ga.ollivier_ricci(a.mean(axis=1)).kappa)


@given(attentions(), conventions, st.integers(1, 12), st.integers(0, 99))
def test_a_sample_is_part_of_the_whole(a, convention, count, seed):
    whole, sample = ga.ollivier_ricci(a, convention), ga.ollivier_ricci(a, convention, edges=count, seed=seed)
    assert sample.index is not None
    assert len(sample.kappa) == min(count, whole.edges) == len(sample.index)
    assert sample.edges == whole.edges
    assert len(np.unique(sample.index, axis=0)) == len(sample.index)
    same(sample.kappa, whole.kappa[tuple(sample.index.T)])
    np.testing.assert_array_equal(sample.status, whole.status[tuple(sample.index.T)])
    again = ga.ollivier_ricci(a, convention, edges=count, seed=seed)
    np.testing.assert_array_equal(sample.index, again.index)
    np.testing.assert_array_equal(sample.kappa, again.kappa)


def test_samples_differ_by_seed_and_by_graph():
    a = np.stack([draw("softmax-1", 20, 1)[0]] * 3)
    one, two = (ga.ollivier_ricci(a, edges=10, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.index, two.index)
    by_graph = [one.index[one.index[:, 0] == g, 1:] for g in range(3)]
    assert not np.array_equal(by_graph[0], by_graph[1])
    # every edge has its chance
    seen = {tuple(e) for seed in range(60) for e in ga.ollivier_ricci(a[0], edges=20, seed=seed).index}
    assert len(seen) == 190


@given(attentions(), conventions, st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_padding_is_not_there(a, convention, padding, anywhere, seed):
    """NaN in padded rows and columns does not matter; the rest is the result on the submatrix."""
    n, m = len(a), len(a) + padding
    real = np.sort(np.random.default_rng(seed).permutation(m)[:n]) if anywhere else np.arange(n)
    padded = np.full((m, m), np.nan)
    padded[np.ix_(real, real)] = a
    mask = np.isin(np.arange(m), real)
    result = ga.ollivier_ricci(padded, convention, mask=mask)
    alone = ga.ollivier_ricci(a, convention)
    same(result.kappa[np.ix_(real, real)], alone.kappa)
    np.testing.assert_array_equal(result.status[np.ix_(real, real)], alone.status)
    assert np.isnan(result.kappa[~mask]).all()
    assert (result.status[~mask] == Status.MISSING_TOKEN).all()
    assert (result.status[:, ~mask] == Status.MISSING_TOKEN).all()
    sample = ga.ollivier_ricci(padded, convention, mask=mask, edges=3)
    assert mask[sample.index].all()


def test_masks_of_a_batch_spread_over_heads():
    a = draw("softmax-1", 6, 6).reshape(2, 3, 6, 6)
    mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    a[1, :, :, 4:] = 0
    a[1] /= a[1].sum(-1, keepdims=True)
    result = ga.ollivier_ricci(a, mask=mask)
    for head in range(3):
        same(result.kappa[0, head], ga.ollivier_ricci(a[0, head]).kappa)
        same(result.kappa[1, head, :4, :4], ga.ollivier_ricci(a[1, head, :4, :4]).kappa)
    one_by_one = ga.ollivier_ricci(a, mask=np.repeat(mask[:, None], 3, axis=1).astype(int))
    np.testing.assert_array_equal(result.kappa, one_by_one.kappa)


# ---- results


def test_round_trip_through_a_file(tmp_path: Path):
    a = draw("with_zeros", 6, 4).reshape(2, 2, 6, 6)
    cases = [
        ("grc-0.5", "all"), ("markov", 4), (Convention(alpha="limit", heads="mean"), "all"),
        (Convention(direction="directed", alpha=0.25), np.int64(5)),
    ]  # fmt: skip
    for convention, edges in cases:
        result = ga.ollivier_ricci(a, convention, edges=edges, seed=np.int64(3))
        result.save(tmp_path / "c.npz")
        again = ga.curvature.Curvature.load(tmp_path / "c.npz")
        for name in ("kappa", "w1", "distance", "gap", "status", "index"):
            np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
        assert again.convention == result.convention
        assert again.shape == result.shape
        assert again.edges == result.edges
        assert again.settings == result.settings
        assert again.summary() == result.summary()
        assert result.to_pandas().equals(again.to_pandas())
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_summary_table_and_values_agree():
    a = draw("causal", 7, 3)
    for edges in ("all", 9):
        result = ga.ollivier_ricci(a, edges=edges)
        table, summary = result.to_pandas(), result.summary()
        np.testing.assert_array_equal(table["kappa"], result.values())
        assert summary["mean"] == pytest.approx(table["kappa"].mean())
        assert summary["distance_to_one"] == pytest.approx((1 - table["kappa"]).mean())
        assert summary["negative_share"] == (table["kappa"] < 0).mean()
        assert summary["edges"] == 63
        assert summary["values"] == len(table) == (63 if edges == "all" else 27)
        assert list(table.columns) == ["graph", "i", "j", "kappa", "w1", "distance", "gap", "status"]
        assert (table["i"] < table["j"]).all()
        np.testing.assert_allclose(1 - table["w1"] / table["distance"], table["kappa"], rtol=1e-13)


@pytest.mark.parametrize(
    ("family", "convention", "level", "sample"),
    [("softmax-3", "markov", 0.9, 60), ("ties", "hop", 0.9, 40), ("softmax-3", "markov", 0.5, 30)],
)
def test_the_band_covers_the_distribution_at_its_level(family, convention, level, sample):
    """Seeded: of 100 samples at most as many miss as the level allows, with room for chance at three deviations."""
    a = draw(family, 30, 1)[0]
    if family == "ties":
        a[:20] = a[0]  # many equal values
    whole = np.sort(ga.ollivier_ricci(a, convention).values())
    misses = 0
    for seed in range(100):
        x, low, high = ga.ollivier_ricci(a, convention, edges=sample, seed=seed).band(level)
        assert (low <= high).all()
        assert (np.diff(x) >= 0).all()
        truth = np.searchsorted(whole, x + 1e-12, side="right") / len(whole)
        before = np.searchsorted(whole, x - 1e-12, side="left") / len(whole)
        # at the values, and just before them: there the empirical function is that of the value before
        steps = np.concatenate([[high[0] - (low[0] + high[0]) / 2], high[:-1]])
        misses += bool(((truth < low - 1e-12) | (truth > high + 1e-12) | (before > np.minimum(1, steps) + 1e-12)).any())
    allowed = 100 * (1 - level)
    assert misses <= allowed + 3 * np.sqrt(allowed * level)


def test_the_band_of_everything_has_no_width():
    result = ga.ollivier_ricci(draw("softmax-1", 9, 1)[0])
    x, low, high = result.band()
    np.testing.assert_array_equal(low, high)
    assert low[-1] == 1
    np.testing.assert_allclose(np.unique(result.values()), x)


# ---- shortest paths


@given(st.integers(2, 12), st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.4, 0.8]))
def test_shortest_paths_against_dijkstra(n, seed, directed, missing):
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** rng.uniform(-300, 3, (n, n))
    lengths[rng.random((n, n)) < 0.1] = 0.0
    lengths[rng.random((n, n)) < missing] = np.inf
    if not directed:
        lengths = np.triu(lengths, 1) + np.triu(lengths, 1).T
    ours = shortest_paths(lengths, directed=directed)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(
        (i, j, lengths[i, j]) for i in range(n) for j in range(n) if i != j and lengths[i, j] < np.inf
    )
    expected = np.full((n, n), np.inf)
    for i, reached in nx.all_pairs_dijkstra_path_length(graph):
        for j, d in reached.items():
            expected[i, j] = d
    np.testing.assert_allclose(ours, expected, rtol=1e-13)


@pytest.mark.parametrize("n", [63, 64, 65, 513, 600])
@pytest.mark.parametrize("directed", [False, True])
def test_shortest_paths_of_large_graphs(n, directed):
    """Above 512 nodes in tiles and threads."""
    rng = np.random.default_rng(n)
    lengths = np.where(rng.random((n, n)) < 0.98, np.inf, 10.0 ** rng.uniform(-300, 0, (n, n)))
    if not directed:
        lengths = np.minimum(lengths, lengths.T)
    one, two = (shortest_paths(lengths, directed=directed, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, floyd_warshall(lengths), rtol=1e-12)
    assert np.isfinite(one).any()


def test_the_smallest_weights_count():
    """1e-300 as a weight and as a length."""
    lengths = np.array([[0, 1e-300, 5.0], [1e-300, 0, 1.0], [5.0, 1.0, 0]])
    np.testing.assert_array_equal(shortest_paths(lengths)[0], [0, 1e-300, 1.0])
    attention = np.array([[1.0, 1e-300, 0], [1e-300, 0.5, 0.5], [0, 0.5, 0.5]])
    result = ga.ollivier_ricci(attention, "markov")
    assert result.distance[0, 1] == pytest.approx(300 * np.log(10))
    assert result.status[0, 2] == Status.NO_EDGE
    # a path 0 - 1 - 2: all mass crosses the first edge, half of it the second
    assert result.kappa[0, 1] == pytest.approx(-0.5 * np.log(2) / (300 * np.log(10)), rel=1e-9)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        (np.array([[0, -1.0], [-1.0, 0]]), "negative"),
        (np.array([[0, np.nan], [np.nan, 0]]), "NaN"),
        (np.array([[0, 1.0], [2.0, 0]]), "symmetric"),
    ],
)
def test_shortest_paths_refuse_bad_lengths(lengths, words):
    with pytest.raises(ga.GeoattnError, match=words):
        shortest_paths(lengths)
