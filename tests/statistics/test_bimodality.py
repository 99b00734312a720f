"""The dip: against its definition, a peer, tables, and what a test must do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import geoattn as ga
from geoattn.statistics.histograms import EDGES, count_values
from geoattn.statistics.modes import two_modes
from geoattn.statistics.sample_size import effective_size
from geoattn.statistics.unimodality import bimodality, dip, knots_of_values
from tests.statistics.references.samples import samples

RECORD = json.loads((Path(__file__).parent / "references" / "dips.json").read_text())


def counts_of(values: np.ndarray) -> np.ndarray:
    return count_values(values, np.zeros(len(values), dtype=np.int64), 1)[0]


def two(n: int, share: float = 0.5, apart: float = 0.8, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    high = round(n * share)
    return np.clip(np.concatenate([rng.normal(0, 0.1, n - high), rng.normal(apart, 0.1, high)]), -1, 1)


# ---- the statistic


def by_definition(values: np.ndarray) -> float:
    """Min over unimodal U of sup |F - U|: a linear programme for each place of the mode, where U may jump."""
    x, low, high, _ = knots_of_values(values)
    m = len(x)
    return min(_programme(x, low, high, i) for i in range(m))


def _programme(x: np.ndarray, low: np.ndarray, high: np.ndarray, i: int) -> float:
    m = len(x)
    rows, limits = [], []  # unknowns: U at x (at the mode: just before it), U at the mode, t

    def at_most(limit: float, **terms: float) -> None:
        row = np.zeros(m + 2)
        for name, factor in terms.items():
            row[{"mode": m, "t": m + 1}.get(name, -1) if not name[1:].isdigit() else int(name[1:])] += factor
        rows.append(row)
        limits.append(limit)

    for k in range(m):
        at_most(low[k], **{f"u{k}": 1, "t": -1})
        at_most(-low[k] if k == i else -high[k], **{f"u{k}": -1, "t": -1})
    at_most(high[i], mode=1, t=-1)
    at_most(-high[i], mode=-1, t=-1)
    at_most(0, **{f"u{i}": 1, "mode": -1})
    left = [f"u{k}" for k in range(i + 1)]
    right = ["mode", *(f"u{k}" for k in range(i + 1, m))]
    for names, places, sign in ((left, x[: i + 1], 1), (right, x[i:], -1)):
        for a, b in itertools.pairwise(names):
            at_most(0, **{a: 1, b: -1})
        for (a, b, c), (p, q, r) in zip(
            zip(names, names[1:], names[2:], strict=False),
            zip(places, places[1:], places[2:], strict=False),
            strict=True,
        ):
            at_most(0, **{a: -sign / (q - p), b: sign * (1 / (q - p) + 1 / (r - q)), c: -sign / (r - q)})
    result = linprog(np.eye(m + 2)[-1], A_ub=np.array(rows), b_ub=np.array(limits), bounds=[(0, 1)] * (m + 2))
    return float(result.fun) if result.status == 0 else np.inf


@pytest.mark.parametrize("seed", range(12))
def test_the_dip_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 12))
    for values in (rng.normal(size=n), two(2 * n, seed=seed), rng.integers(0, 5, n + 2).astype(float)):
        assert dip(values) == pytest.approx(max(by_definition(values), 0.5 / len(values)), abs=1e-9)


@pytest.mark.parametrize("name", RECORD["dips"])
def test_the_dip_is_that_of_diptest(name):
    assert dip(samples()[name]) == pytest.approx(RECORD["dips"][name], abs=1e-12)


@pytest.mark.parametrize("n", [4, 5, 10, 101])
def test_closed_forms(n):
    assert dip(np.arange(float(n))) == pytest.approx(0.5 / n)  # as unimodal as n values can be
    clumps = np.concatenate([np.linspace(0, 1e-7, n), np.linspace(1 - 1e-7, 1, n)])
    assert dip(clumps) == pytest.approx(0.25, abs=1e-5)  # two points
    assert dip(np.full(n, 2.0)) == 0.5 / n


def test_a_spike_on_the_only_mode_is_no_second_one():
    """U may jump at its mode, and nowhere else."""
    values = np.concatenate([np.linspace(-1, 1, 351), np.zeros(150)])
    assert dip(values) < 0.01
    assert bimodality(values).p_value > 0.5
    aside = np.concatenate([np.random.default_rng(0).normal(0, 0.1, 400), np.full(172, 0.9)])
    assert bimodality(aside).p_value < 0.01


@given(st.lists(st.floats(-100, 100, width=16), min_size=4, max_size=30), st.floats(0.01, 50), st.floats(-50, 50))
def test_laws(values, scale, shift):
    """Neither place, scale, direction nor order matter; between 1/(2n) and 1/4."""
    x = np.array(values)
    found = dip(x)
    assert 0.5 / len(x) - 1e-12 <= found <= 0.25 + 1e-12 or len(np.unique(x)) < 3
    assert dip(-x[::-1]) == pytest.approx(found, abs=1e-9)
    moved = scale * x + shift
    if len(np.unique(moved)) == len(np.unique(x)):
        assert dip(moved) == pytest.approx(found, abs=1e-7)


# ---- the test


@pytest.mark.parametrize("n", [20, 100, 200, 1000, 10000])
def test_p_values_are_those_of_the_tables(n):
    """Two uniform blocks whose dip is at the tabulated critical value."""
    for level in (0.5, 0.9, 0.95, 0.99):
        wanted = RECORD["critical"][f"{n} {level}"]
        half = np.linspace(0, 1, n // 2)
        low, high = 0.0, 5.0
        for _ in range(60):
            gap = (low + high) / 2
            low, high = (gap, high) if dip(np.concatenate([half, 1 + gap + half])) < wanted else (low, gap)
        p = bimodality(np.concatenate([half, 1 + high + half])).p_value
        assert p == pytest.approx(1 - level, abs=max(0.008, 0.3 * min(level, 1 - level)))


def test_the_level_is_kept_on_uniform_and_more_than_kept_on_normal_samples():
    rng = np.random.default_rng(1)
    uniform = np.array([bimodality(rng.random(120)).p_value for _ in range(400)])
    assert 0.02 <= (uniform < 0.05).mean() <= 0.085
    normal = np.array([bimodality(rng.normal(size=120)).p_value for _ in range(100)])
    assert (normal < 0.05).mean() <= 0.02


def test_power():
    assert bimodality(two(500)).p_value < 0.001
    assert bimodality(two(500, apart=0.1)).p_value > 0.1
    assert bimodality(two(2000, share=0.1)).p_value < 0.01 < 0.05 < bimodality(two(60, share=0.1)).p_value
    assert dip(two(2000, share=0.1)) <= 0.05 + 0.5 / 2000


def test_dependent_values_count_once():
    """Ten copies with a little noise are no new evidence."""
    rng = np.random.default_rng(3)
    values = np.repeat(rng.random(60), 10) + 1e-6 * rng.random(600)
    naive, honest = bimodality(values), bimodality(values, independent=60)
    assert naive.p_value < 0.05 < honest.p_value
    assert (naive.dip, honest.n, honest.independent) == (honest.dip, 600, 60)


def test_the_effective_size_is_that_of_the_groups_when_they_are_all_alike():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 20)
    copies = np.repeat(rng.random(200), 20)
    assert 100 <= effective_size(copies, groups) <= 250
    alone = [effective_size(np.random.default_rng(s).random(4000), groups) for s in range(5)]
    assert np.mean(alone) > 2400
    half = np.repeat(rng.normal(size=200), 20) + rng.normal(size=4000)
    assert 200 < effective_size(half, groups) < 1200


def test_the_level_is_kept_on_dependent_values():
    """Uniform margins, equal within pairs of groups of ten up to a part: naive p-values are far too small."""
    naive, honest = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(50), 10)
        values = np.where(rng.random(500) < 0.7, np.repeat(rng.random(50), 10), rng.random(500)) + 1e-7 * rng.random(
            500
        )
        naive.append(bimodality(values, resamples=500).p_value < 0.05)
        size = effective_size(values, groups) // 10 * 10  # few sizes, so that few nulls are drawn
        honest.append(bimodality(values, independent=size, resamples=200).p_value < 0.05)
    assert np.mean(naive) > 0.5
    assert np.mean(honest) < 0.1


def test_histograms_agree_with_samples():
    for values in (two(4000), two(4000, share=0.2), np.random.default_rng(0).normal(0.3, 0.1, 4000)):
        sample, binned = bimodality(values), bimodality(counts=counts_of(values))
        assert binned.dip == pytest.approx(sample.dip, abs=0.004)
        assert (binned.p_value < 0.01) == (sample.p_value < 0.01)
        assert binned.settings["binned"]
        assert binned.n == 4000


def test_far_tails_and_the_open_bin():
    values = np.concatenate([two(1000), [-50.0, -3e5, -1e9]])
    assert bimodality(counts=counts_of(values)).p_value < 0.001
    assert bimodality(counts=counts_of(np.full(500, 0.205))).p_value > 0.5
    assert bimodality(counts=counts_of(np.array([-1e8, -1e8, 0.5, 0.5, 0.5]))).dip > 0.1


def test_deterministic_and_modal_interval():
    values = two(500, share=0.3)
    assert bimodality(values, seed=2) == bimodality(values, seed=2)
    low, high = bimodality(values).modal
    assert -0.3 < low <= high < 0.3  # around the larger of the two


# ---- the places of the modes


@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_two_modes_are_found_where_they_are(share, binned):
    values = two(5000, share)
    found = two_modes(counts=counts_of(values)) if binned else two_modes(values)
    assert (found.low, found.high) == pytest.approx((0.0, 0.8), abs=0.12)
    assert found.low < found.valley < found.high
    assert found.share_above == pytest.approx(share, abs=0.02)
    assert 0 < found.depth <= 1


def test_the_critical_bandwidth_of_two_spikes_is_known():
    """Two equal spikes at distance s have two modes while the bandwidth is below s / 2."""
    values = np.concatenate([np.zeros(50), np.ones(50)])
    found = two_modes(values)
    assert found.bandwidth == pytest.approx(0.5, rel=0.01)
    assert (found.spread, found.share_above) == pytest.approx((0.5, 0.5), abs=0.01)


def test_outliers_are_no_mode():
    """Three percent far below, in a clump: a mode only when so few are enough."""
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(0.4, 0.1, 2000), rng.normal(-0.9, 0.01, 60)])
    assert two_modes(values).low > 0.1
    assert two_modes(values, least=0.01).low == pytest.approx(-0.9, abs=0.05)


def test_one_mode_needs_less_smoothing_than_two():
    one, apart = two_modes(np.random.default_rng(0).normal(size=2000)), two_modes(two(2000))
    assert one.bandwidth / one.spread < 0.5 < apart.bandwidth / apart.spread


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bimodality(), "either values or counts"),
        (lambda: bimodality([1.0] * 5, counts=counts_of(np.ones(5))), "either values or counts"),
        (lambda: bimodality([1.0, 2.0, 3.0]), "at least 4 values"),
        (lambda: bimodality([1.0, np.nan, 2.0, 3.0]), "not all finite"),
        (lambda: bimodality(np.ones((4, 4))), r"\(n,\)"),
        (lambda: bimodality(counts=np.zeros(len(EDGES) - 1, dtype=int)), "got 0"),
        (lambda: bimodality(counts=np.zeros(5, dtype=int)), "by EDGES"),
        (lambda: bimodality(two(50), independent=51), "from 4 to the 50"),
        (lambda: bimodality(two(50), resamples=3), "resamples"),
        (lambda: two_modes(np.ones(9)), "all but 0.002 of the values equal 1"),
        (lambda: two_modes(), "either values or counts"),
        (lambda: two_modes(two(50), least=0.5), "below 0.5"),
        (lambda: effective_size(two(50), np.zeros(50, int)), "at least 2 groups"),
        (lambda: effective_size(two(50), np.zeros(5, int)), "one label for each of the 50"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ga.GeoattnError, match=words):
        make()
