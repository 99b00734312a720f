"""Laws that hold for every attention: checked on drawn ones."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoattn as ga
from geoattn.curvature.transport import pairs_of, solve_pairs
from geoattn.graph.build import build_graphs
from geoattn.graph.shortest_paths import shortest_paths

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

CONVENTIONS = [*("markov", "hop", "grc-0.5", "grc-0.6"), ga.Convention(length="1/w"), ga.Convention(alpha="limit")]
conventions = st.sampled_from(CONVENTIONS).map(ga.Convention.of)


@st.composite
def attentions(draw: st.DrawFn, most: int = 9) -> np.ndarray:
    """Softmax attention: flat to one-hot, with zeros, and with coarse logits so that ties are common."""
    n = draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = draw(st.sampled_from([0.1, 1.0, 5.0])) * rng.standard_normal((n, n))
    if draw(st.booleans()):
        logits = np.round(logits)
    weights = np.exp(logits) * (rng.random((n, n)) > draw(st.sampled_from([0.0, 0.3])))
    weights[np.arange(n), np.arange(n)] += 1e-3
    return weights / weights.sum(-1, keepdims=True)


@given(attentions(), conventions, st.integers(0, 1000))
def test_permutation_equivariance(a: np.ndarray, convention: ga.Convention, seed: int) -> None:
    p = np.random.default_rng(seed).permutation(len(a))
    np.testing.assert_allclose(
        ga.ollivier_ricci(a[np.ix_(p, p)], convention).kappa,
        ga.ollivier_ricci(a, convention).kappa[np.ix_(p, p)],
        rtol=1e-10,
        atol=1e-10,
    )


@given(attentions(), conventions)
def test_symmetric_and_at_most_one(a: np.ndarray, convention: ga.Convention) -> None:
    result = ga.ollivier_ricci(a, convention)
    np.testing.assert_array_equal(result.kappa, result.kappa.T)
    assert result.max_gap < 1e-9
    if convention.alpha != "limit":
        assert (result.values() <= 1 + 1e-12).all()


@given(attentions(), st.sampled_from([1e-6, 0.1, 7.0, 1e6]))
def test_scaling_all_lengths_changes_nothing(a: np.ndarray, factor: float) -> None:
    graphs = build_graphs(a[None], ga.Convention.of("markov"))
    scaled = dataclasses.replace(graphs, lengths=graphs.lengths * factor)
    pairs = pairs_of(graphs.edges)
    one, two = solve_pairs(graphs, *pairs), solve_pairs(scaled, *pairs)
    np.testing.assert_allclose(one.kappa, two.kappa, rtol=1e-10, atol=1e-10)


@given(attentions(), conventions)
def test_potentials_are_lipschitz_and_prove_the_value(a: np.ndarray, convention: ga.Convention) -> None:
    graphs = build_graphs(a[None], convention.but(floor=0.0))
    distances = shortest_paths(graphs.lengths[0])
    solved = solve_pairs(graphs, *pairs_of(graphs.edges), potentials=True)
    assert solved.potentials is not None
    for e in np.flatnonzero(solved.status == 0):
        p, (x, y) = solved.potentials[e], solved.pairs[e]
        known = np.isfinite(p)
        climb = p[known][:, None] - p[known][None]
        assert (climb <= distances[np.ix_(known, known)] * (1 + 1e-9) + 1e-12).all()
        moved = (graphs.measures[0, x] - graphs.measures[0, y])[known] @ p[known] + solved.idle * (p[x] - p[y])
        assert moved == pytest.approx(solved.w1[e], rel=1e-9, abs=1e-12)


@given(attentions(), st.integers(1, 12), st.integers(0, 99))
def test_a_sample_is_part_of_the_whole(a: np.ndarray, count: int, seed: int) -> None:
    whole, sample = ga.ollivier_ricci(a), ga.ollivier_ricci(a, edges=count, seed=seed)
    assert sample.index is not None
    assert len(sample.kappa) == min(count, whole.edges) == len(sample.index)
    np.testing.assert_allclose(sample.kappa, whole.kappa[tuple(sample.index.T)], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(sample.index, ga.ollivier_ricci(a, edges=count, seed=seed).index)


@given(attentions(), st.integers(1, 5))
def test_padding_is_not_there(a: np.ndarray, padding: int) -> None:
    n, m = len(a), len(a) + padding
    padded = np.full((m, m), np.nan)
    padded[:n, :n] = a
    result = ga.ollivier_ricci(padded, mask=np.arange(m) < n)
    np.testing.assert_allclose(result.kappa[:n, :n], ga.ollivier_ricci(a).kappa, rtol=1e-10, atol=1e-10)
    assert np.isnan(result.kappa[n:]).all()
    assert (result.status[n:] == ga.Status.MISSING_TOKEN).all()


def test_threads_and_batches_change_no_bit() -> None:
    a = np.random.default_rng(1).dirichlet(np.full(70, 0.3), size=(3, 70))
    one, two = ga.ollivier_ricci(a, threads=1), ga.ollivier_ricci(a, threads=2)
    single = np.stack([ga.ollivier_ricci(x, threads=2).kappa for x in a])
    np.testing.assert_array_equal(one.kappa, two.kappa)
    np.testing.assert_array_equal(one.kappa, single)


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    a = np.random.default_rng(1).dirichlet(np.ones(6), size=(2, 2, 6))
    for edges in ("all", 4):
        result = ga.ollivier_ricci(a, "grc-0.5", edges=edges)
        result.save(tmp_path / "c.npz")
        again = ga.Curvature.load(tmp_path / "c.npz")
        np.testing.assert_array_equal(again.kappa, result.kappa)
        assert again.convention == result.convention
        assert again.summary() == result.summary()
        assert result.to_pandas().equals(again.to_pandas())
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_the_band_covers_the_distribution_at_its_level() -> None:
    a = np.random.default_rng(5).dirichlet(np.full(40, 0.2), size=40)
    whole = np.sort(ga.ollivier_ricci(a).values())
    misses = 0
    for seed in range(100):
        x, low, high = ga.ollivier_ricci(a, edges=60, seed=seed).band(0.9)
        truth = np.searchsorted(whole, x, side="right") / len(whole)
        misses += bool(((truth < low - 1e-12) | (truth > high + 1e-12)).any())
    assert misses <= 18  # 10 expected at most; 18 is beyond the 99 % quantile of that


def test_shortest_paths_with_tiny_lengths() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 7, 40, 600):
        lengths = np.triu(10.0 ** rng.uniform(-300, 0, (n, n)), 1)
        lengths = np.where(rng.random((n, n)) < 0.3, np.inf, lengths)
        lengths = np.triu(lengths, 1) + np.triu(lengths, 1).T
        expected = np.where(np.eye(n, dtype=bool), 0.0, np.where(lengths == 0, np.inf, lengths))
        ours = shortest_paths(expected)
        for k in range(n):
            np.minimum(expected, expected[:, k : k + 1] + expected[k : k + 1], out=expected)
        np.testing.assert_allclose(ours, expected, rtol=1e-12)
