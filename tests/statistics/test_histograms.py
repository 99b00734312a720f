"""Counts in fixed bins: they add up, and quantiles from them are those of the values to within a bin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoattn.statistics import count_values, quantiles

values_above = st.lists(st.floats(-0.995, 1.0), min_size=1, max_size=60).map(np.array)


def counts_of(values: np.ndarray) -> np.ndarray:
    return count_values(values, np.zeros(len(values), dtype=int), 1)[0]


@given(values_above, st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5).map(np.array))
def test_a_quantile_lies_in_the_bin_of_a_value(values: np.ndarray, levels: np.ndarray) -> None:
    """Also where bins between the values are empty."""
    found = quantiles(counts_of(values), levels)
    # rounding of level * count may choose either neighbour where a level falls between two values
    low = np.quantile(values, np.clip(levels - 1e-12, 0, 1), method="inverted_cdf")
    high = np.quantile(values, np.clip(levels + 1e-12, 0, 1), method="higher")
    assert (found >= low - 0.0101).all()
    assert (found <= high + 0.0101).all()
    assert (np.abs(found[:, None] - values) < 0.0101).any(axis=1).all()


def test_an_empty_stretch_holds_no_quantile() -> None:
    counts = counts_of(np.repeat([-0.5, 0.2, 0.8], [10, 30, 60]))
    levels = np.array([0.0, 0.05, 0.1, 0.25, 0.5, 0.7, 1.0])
    np.testing.assert_allclose(quantiles(counts, levels), [-0.5, -0.495, -0.49, 0.205, 0.8 + 0.01 / 6, 0.805, 0.81])


def test_a_tail_below_minus_one_has_wider_bins() -> None:
    values = -np.geomspace(1.5, 1e4, 200)
    levels = np.linspace(0.05, 0.95, 7)
    np.testing.assert_allclose(quantiles(counts_of(values), levels), np.quantile(values, levels), rtol=0.07)


def test_no_value_has_no_quantile() -> None:
    assert np.isnan(quantiles(counts_of(np.empty(0)), np.array([0.5]))).all()


@given(values_above, st.integers(0, 60))
def test_counts_of_parts_add_up(values: np.ndarray, at: int) -> None:
    np.testing.assert_array_equal(counts_of(values[:at]) + counts_of(values[at:]), counts_of(values))


@pytest.mark.parametrize("value", [0.29, 0.57, -0.29, 1.0, 1.0 + 1e-15, -1.0])
def test_a_border_belongs_to_the_bin_above_and_one_to_the_last(value: float) -> None:
    place = int(np.flatnonzero(counts_of(np.array([value])))[0])
    left = quantiles(counts_of(np.array([value])), np.array([0.0]))[0]
    assert left == pytest.approx(min(value, 0.99), abs=1e-9)
    assert counts_of(np.array([value]))[place] == 1
