"""Zeros and outliers left out: the rule, what it hides, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.statistics.trimming import trim


def test_fences_are_those_of_the_box_plot() -> None:
    values = np.concatenate([np.linspace(0.1, 0.9, 9), [0.0, 1e-12, 9.0, -9.0]])
    kept = trim(values)
    first, third = np.quantile(np.concatenate([np.linspace(0.1, 0.9, 9), [9.0, -9.0]]), [0.25, 0.75])
    assert kept.low == pytest.approx(first - 1.5 * (third - first))
    assert kept.high == pytest.approx(third + 1.5 * (third - first))
    np.testing.assert_allclose(kept.values, np.linspace(0.1, 0.9, 9))
    assert (kept.zero_share, kept.outlier_share, kept.hidden_share) == pytest.approx((2 / 13, 2 / 13, 4 / 13))


def test_negative_values_that_a_plot_hides_are_counted() -> None:
    kept = trim(np.concatenate([np.full(95, 0.5), np.full(5, -2.0)]))
    assert kept.negative_share_before == 0.05
    assert kept.negative_share == 0.0


def test_nothing_is_left_out_where_nothing_would_remain() -> None:
    assert trim(np.zeros(5)).values.tolist() == [0.0] * 5
    assert trim([0.3]).values.tolist() == [0.3]
    assert trim(np.arange(1.0, 50.0), reach=100).hidden_share == 0


@pytest.mark.parametrize("bad", [[], [np.nan], [[0.1]], ["a"], [np.inf]])
def test_bad_values(bad: Any) -> None:
    with pytest.raises(GeoattnError, match="finite numbers"):
        trim(bad)


@pytest.mark.parametrize("bad", [-1, True, np.nan, "far"])
def test_bad_reach(bad: Any) -> None:
    with pytest.raises(GeoattnError, match="reach"):
        trim([0.1, 0.2], reach=bad)
