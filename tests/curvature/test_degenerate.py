"""When the distribution of the curvatures says nothing: by quantiles, whichever way they were found."""

from __future__ import annotations

import numpy as np
import pytest

from geoattn.curvature.result import why_degenerate
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention


@pytest.mark.parametrize("count", [3, 4, 5, 99, 100, 101, 102, 103, 1000])
@pytest.mark.parametrize("width", [0.0, 0.009, 0.0101, 0.011, 0.03, 1.0])
def test_the_quantiles_decide(count: int, width: float):
    rng = np.random.default_rng([count, int(width * 1e4)])
    status = np.zeros(count, np.uint8)
    for outliers in (0, 1, 2, count // 50, count // 2):
        kappa = 0.5 + width * rng.random(count)
        kappa[:outliers] -= 0.05 * rng.random()
        kappa[count - outliers // 2 :] += 0.05
        for values in (kappa, rng.permutation(kappa)):
            low, middle, high = np.quantile(values, (0.01, 0.5, 0.99))
            why = why_degenerate(values, status, Convention.of("markov"))
            assert bool(why) == (high - low < 0.01)
            if why:
                assert f"within {high - low:.2g} of each other, around {middle:.4g}" in why


def test_values_below_the_floor_are_counted_among_all_edges():
    kappa = np.array([0.0, 0.0, 0.0, 0.3, np.nan])
    status = np.array([Status.BELOW_FLOOR] * 3 + [Status.SOLVED, Status.UNREACHABLE], np.uint8)
    assert why_degenerate(kappa, status, Convention.of("grc-0.6")).startswith("60% of the edges are shorter")
