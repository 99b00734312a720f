"""The bootstrap by clusters: whole clusters come or stay away, and copies of a run bring no certainty."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from geoattn._core.errors import GeoattnError
from geoattn.statistics.association import rank_correlation
from geoattn.statistics.clusters import cluster_counts, weighted_rank_correlations


def test_clusters_come_as_wholes() -> None:
    labels = np.array([3, 3, 1, 1, 1, 2])
    counts = cluster_counts(labels, resamples=500, seed=1)
    for name in (1, 2, 3):
        own = counts[:, labels == name]
        assert (own == own[:, :1]).all()
    assert (counts[:, [0, 2, 5]].sum(1) == 3).all()  # as many clusters as there are
    assert counts.mean(0) == pytest.approx(np.ones(6), abs=0.15)


def test_weighted_ranks_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 12).astype(float), rng.normal(size=12)
    groups = np.repeat([0, 1], 6)
    counts = rng.integers(0, 4, (20, 12))
    found = weighted_rank_correlations(x, y, groups, counts)
    for row, value in zip(counts, found, strict=True):
        a, b = [], []
        for g in (0, 1):
            rows = np.repeat(np.flatnonzero(groups == g), row[groups == g])
            ranks = [stats.rankdata(v[rows]) for v in (x, y)]
            a.append(ranks[0] - ranks[0].mean())
            b.append(ranks[1] - ranks[1].mean())
        one, other = np.concatenate(a), np.concatenate(b)
        assert value == pytest.approx((one @ other) / np.sqrt((one @ one) * (other @ other)))


def test_each_run_its_own_cluster_is_the_bootstrap_over_runs() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    plain, own = rank_correlation(x, y), rank_correlation(x, y, clusters=np.arange(40))
    assert own.correlation == plain.correlation
    assert (own.low, own.high) == pytest.approx((plain.low, plain.high), abs=0.03)
    assert "40 clusters" in own.method


def test_copies_of_a_run_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=15)
    y = x + 2 * rng.normal(size=15)
    once = rank_correlation(x, y)
    many = [np.repeat(v, 6) + 1e-6 * rng.normal(size=90) for v in (x, y)]
    naive, whole = rank_correlation(*many), rank_correlation(*many, clusters=np.repeat(np.arange(15), 6))
    assert naive.high - naive.low < 0.6 * (once.high - once.low)
    assert whole.high - whole.low == pytest.approx(once.high - once.low, rel=0.15)
    assert naive.p_value < whole.p_value


def test_few_clusters_give_no_interval() -> None:
    found = rank_correlation(np.arange(12.0), np.arange(12.0), clusters=np.arange(12) % 3)
    assert found.correlation == 1
    assert np.isnan([found.low, found.high, found.p_value]).all()
    assert "3 clusters are too few" in found.method


def test_bad_clusters() -> None:
    with pytest.raises(GeoattnError, match="one label for each of the 4 runs"):
        rank_correlation([1, 2, 3, 4], [1, 2, 3, 4], clusters=[1, 2])
    with pytest.raises(GeoattnError, match="one label for each observation"):
        cluster_counts([])
