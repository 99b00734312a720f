"""Paired statistics over runs: against SciPy, by coverage, and on Simpson's paradox."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

import geoattn as ga
from geoattn.statistics.association import paired_difference, rank_correlation


def pairs(n: int, slope: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, slope * x + rng.normal(size=n)


# ---- rank correlation


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_spearman(ties):
    x, y = pairs(30, 0.7, 0)
    if ties:
        x, y = np.round(x), np.round(y)
    found = rank_correlation(x, y)
    assert found.correlation == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.low < found.correlation < found.high
    assert (found.runs, found.groups, found.method) == (30, 1, "bootstrap over runs")


def test_only_ranks_matter():
    x, y = pairs(20, 0.7, 1)
    one, two = rank_correlation(x, y), rank_correlation(np.exp(x), y**3)
    assert one == two
    assert rank_correlation(x, -y).correlation == pytest.approx(-one.correlation)


def test_the_permutation_p_value_is_the_exact_one():
    x, y = np.arange(6.0), np.array([0.0, 2, 1, 3, 5, 4])
    own = stats.spearmanr(x, y).statistic
    all_of_them = [abs(stats.spearmanr(x, p).statistic) >= own - 1e-9 for p in itertools.permutations(y)]
    assert rank_correlation(x, y, resamples=20_000).p_value == pytest.approx(np.mean(all_of_them), abs=0.005)


def test_level_and_coverage():
    truth = 6 / np.pi * np.arcsin(0.5 / np.sqrt(1.25) / 2)  # of normal variables with correlation 0.447
    held, significant = [], []
    for seed in range(150):
        found = rank_correlation(*pairs(40, 0.5, seed), resamples=400)
        held.append(found.low <= truth <= found.high)
        significant.append(rank_correlation(*pairs(15, 0.0, seed), resamples=400).p_value < 0.05)
    assert 0.88 <= np.mean(held) <= 0.99
    assert np.mean(significant) <= 0.1


def test_groups_undo_simpsons_paradox():
    """Within each data set more curvature goes with less rho; between data sets the other way round."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["mnist", "cifar", "fashion"], 12)
    level = np.repeat([0.0, 5.0, 10.0], 12)
    x = rng.normal(size=36)
    y = level - x + 0.5 * rng.normal(size=36)
    x = x + level
    assert rank_correlation(x, y).correlation > 0.5
    within = rank_correlation(x, y, groups)
    assert within.correlation < -0.5
    assert within.high < 0
    assert within.p_value < 0.001
    assert within.groups == 3
    shuffled = np.random.default_rng(1).permutation(36)
    assert rank_correlation(x[shuffled], y[shuffled], groups[shuffled]).correlation == pytest.approx(within.correlation)


def test_a_number_that_never_changes_has_no_correlation():
    found = rank_correlation([1.0] * 6, np.arange(6.0))
    assert np.isnan([found.correlation, found.low, found.high, found.p_value]).all()
    assert found.method.startswith("none")


def test_resamples_without_spread_are_counted():
    found = rank_correlation([0.0, 0, 0, 0, 1], [0.0, 1, 2, 3, 9], resamples=1000)
    assert "constant left out" in found.method


# ---- paired differences


def test_interval_and_sign_test_are_those_of_scipy():
    a, b = pairs(12, 0.9, 3)
    found = paired_difference(a, b + 0.8)
    reference = stats.ttest_rel(b + 0.8, a).confidence_interval()
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert found.difference == pytest.approx((b + 0.8 - a).mean())
    assert found.p_value == pytest.approx(stats.binomtest(found.up, 12).pvalue)
    assert found.up + found.down == 12
    assert found.bootstrap_low < found.difference < found.bootstrap_high
    assert found.bootstrap_high - found.bootstrap_low < found.high - found.low
    back = paired_difference(b + 0.8, a)
    assert (back.difference, back.low) == pytest.approx((-found.difference, -found.high))
    assert (back.up, back.down, back.p_value) == (found.down, found.up, found.p_value)


def test_ties_are_left_out_of_the_sign_test():
    found = paired_difference([1.0] * 8, [1.0, 1.0, 2, 2, 2, 2, 2, 2])
    assert (found.up, found.down, found.ties) == (6, 0, 2)
    assert found.p_value == pytest.approx(2**-5)
    assert paired_difference([1.0] * 4, [1.0] * 4).p_value == 1.0


def test_pairs_see_what_independent_samples_do_not():
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 1.0, 10)
    a, b = seeds, seeds + 0.1 + 0.02 * rng.normal(size=10)
    assert paired_difference(a, b).low > 0
    assert stats.ttest_ind(a, b).pvalue > 0.5


def test_deterministic():
    x, y = pairs(12, 0.5, 3)
    assert rank_correlation(x, y, seed=1) == rank_correlation(x, y, seed=1)
    assert paired_difference(x, y, seed=1) == paired_difference(x, y, seed=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rank_correlation([1, 2, 3], [1, 2, 3]), "at least 4 runs"),
        (lambda: rank_correlation([1, 2, 3, 4], [1, 2, 3]), "same runs; got 4 and 3"),
        (lambda: rank_correlation([1, 2, 3, np.nan], [1, 2, 3, 4]), "run 3 has nan"),
        (lambda: rank_correlation(["a"] * 4, [1, 2, 3, 4]), "x must be numbers"),
        (lambda: rank_correlation([1, 2, 3, 4], [1, 2, 3, 4], ["a", "a", "a", "b"]), "group b has one run"),
        (lambda: rank_correlation([1, 2, 3, 4], [1, 2, 3, 4], ["a"]), "one label for each of the 4"),
        (lambda: paired_difference([1, 2], [1, 2]), "at least 4 runs"),
        (lambda: paired_difference([1, 2, 3, 4], [1, 2, 3, 4], level=1.0), "level"),
        (lambda: paired_difference([1, 2, 3, 4], [1, 2, 3, 4], resamples=1), "resamples"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ga.GeoattnError, match=words):
        make()
