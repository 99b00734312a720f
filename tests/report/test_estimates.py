from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

import geoattn as ga
from geoattn.report.estimates import Estimate, by_layer, depth_change, depth_trend, of_row, ratios, variance_link


@pytest.mark.parametrize(
    ("estimate", "sign"),
    [
        (Estimate(0.1, 0.05, 0.2), 1),
        (Estimate(-0.1, -0.2, -0.05), -1),
        (Estimate(0.1, -0.05, 0.2), 0),
        (Estimate(0.1), 0),
        (Estimate(0.0, 0.0, 0.0), 0),
    ],
)
def test_a_sign_is_clear_only_when_the_interval_is_on_one_side(estimate, sign):
    assert estimate.sign == sign


def test_rows_are_those_of_the_table(digits):
    for layer in (None, 0, 7):
        expected = digits.value("distance_to_one", layer=layer, convention="hop")
        found = of_row(digits, "distance_to_one", "hop", layer)
        assert (found.value, found.low, found.high) == expected
    assert [e.value for e in by_layer(digits, "variance", "", "weights")] == [
        digits.value("variance", layer=k, lens="weights")[0] for k in range(8)
    ]
    with pytest.raises(ga.GeoattnError, match="no row for curvature, hop, nonsense, layer 0"):
        of_row(digits, "nonsense", "hop", 0)


def test_the_change_with_depth_is_paired(digits):
    change = depth_change(digits, "markov")
    first, last = (of_row(digits, "distance_to_one", "markov", k) for k in (0, 7))
    assert change.value == pytest.approx(last.value - first.value)
    assert change.low < change.value < change.high
    resampled = ratios(digits, (0, 7), "distance_to_one", "markov")
    low, high = np.quantile(resampled[1] - resampled[0], [0.025, 0.975])
    assert (change.low, change.high) == pytest.approx((low, high))


@pytest.mark.parametrize("convention", ["markov", "grc-0.5"])
def test_rank_correlations_are_those_of_scipy(digits, convention):
    distance = [e.value for e in by_layer(digits, "distance_to_one", convention)]
    mean = [e.value for e in by_layer(digits, "mean", convention)]
    variance = [e.value for e in by_layer(digits, "variance", "", "weights")]
    assert depth_trend(digits, convention).value == pytest.approx(spearmanr(range(8), distance).statistic)
    assert variance_link(digits, convention).value == pytest.approx(spearmanr(variance, mean).statistic)
    resampled = ratios(digits, range(8), "distance_to_one", convention)
    expected = [spearmanr(range(8), column).statistic for column in resampled.T]
    low, high = np.quantile(expected, [0.025, 0.975])
    assert depth_trend(digits, convention).low == pytest.approx(low)
    assert depth_trend(digits, convention).high == pytest.approx(high)


def test_few_layers_have_no_trend_and_one_sample_no_interval(hostile):
    assert depth_trend(hostile, "markov") is None
    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=1)
    one = ga.profile(model, data)
    assert np.isfinite(depth_change(one, "markov").value)
    assert depth_change(one, "markov").sign == 0
    assert np.isnan(depth_trend(one, "markov").low)


def test_resamplings_that_drew_no_sample_have_no_trend(digits):
    """They counted as a correlation of +1: the order of NaN is that of the layers."""
    drawn = np.arange(digits.settings["resamplings"]) % 4 != 0
    some = replace(digits, resampled={key: both * drawn for key, both in digits.resampled.items()})
    resampled = ratios(digits, range(8), "distance_to_one", "markov")[:, drawn]
    expected = [spearmanr(range(8), column).statistic for column in resampled.T]
    trend = depth_trend(some, "markov")
    assert (trend.low, trend.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))
    link, before = variance_link(some, "markov"), variance_link(digits, "markov")
    assert link.high == pytest.approx(before.high, abs=0.1)


def test_two_samples_have_the_interval_of_the_resamplings_that_saw_one():
    profile = ga.profile(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2))
    seen = ratios(profile, range(8), "distance_to_one", "markov")
    seen = seen[:, np.isfinite(seen).all(axis=0)]
    expected = [spearmanr(range(8), column).statistic for column in seen.T]
    trend = depth_trend(profile, "markov")
    assert seen.shape[1] < 1000
    assert (trend.low, trend.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))


def test_layers_that_are_all_alike_have_no_trend(digits):
    """As of uniform attention: the order of equal values was that of the layers."""
    table = digits.table.copy()
    table.loc[table["statistic"] == "distance_to_one", "value"] = 0.5
    assert depth_trend(replace(digits, table=table), "markov") is None
