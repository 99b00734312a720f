"""Threads, batches, samples of edges and masks change no value."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.drawn_attention import PRESETS, attentions, conventions, same
from tests.graphs import draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


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


@pytest.mark.parametrize("convention", ["markov", "grc-0.6", ga.Convention(direction="directed")])
def test_wanted_edges_have_the_values_of_all_edges(convention):
    attention = draw("softmax-3", 9, 3)
    everything = ga.ollivier_ricci(attention, convention)
    wanted = np.zeros((3, 9, 9), dtype=bool)
    wanted[0, 3, 1] = wanted[2, 2, 5] = True
    chosen = ga.ollivier_ricci(attention, convention, edges=wanted)
    directed = everything.convention.directed
    assert chosen.index.tolist() == ([[0, 3, 1], [2, 2, 5]] if directed else [[0, 1, 3], [2, 2, 5]])
    np.testing.assert_allclose(chosen.kappa, everything.kappa[tuple(chosen.index.T)], rtol=1e-12)
    assert chosen.edges == everything.edges
    with pytest.raises(ga.GeoattnError, match=r"broadcast to \(3, 9, 9\); got shape \(2, 9, 9\)"):
        ga.ollivier_ricci(attention, convention, edges=wanted[:2])
