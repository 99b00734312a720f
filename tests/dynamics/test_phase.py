"""The phase diagram against its theoretical curve, and the speed against plain NumPy."""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.dynamics import CASES, against_numpy, phase
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.closed_forms import clustering_time
from geoattn.dynamics.phase import phase_diagram


def test_high_dimension_follows_the_curve():
    """16 runs, d = 512, four values of beta up to 5: within 2 % of the quadrature."""
    diagram = phase_diagram([0.5, 2.0, 3.5, 5.0], [512], runs=16, until=14.0)
    assert np.abs(diagram.excess()).max() < 0.02
    assert diagram.curve[1] == pytest.approx(clustering_time(2.0))
    assert (np.diff(diagram.probability, axis=-1) > -0.02).all()
    table = diagram.to_pandas()
    assert table.columns.tolist() == ["d", "beta", "time", "spread", "curve", "excess"]


def test_low_dimension_is_not_the_limit_and_late_runs_are_nan():
    diagram = phase_diagram([1.0, 9.0], [2], runs=8, until=6.0, n=16)
    assert np.isnan(diagram.level()[0, 1])
    assert diagram.probability[0, 1, -1] < 0.5


def test_seeded():
    one, two = (phase_diagram([1.0], [4], n=6, runs=3, until=2.0, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.probability, two.probability)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": -1}, "n must be"),
        ({"dims": [1]}, "dims"),
        ({"betas": []}, "betas"),
        ({"betas": [np.nan]}, "betas"),
        ({"runs": 0}, "runs"),
        ({"until": 0.0}, "until"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(GeoattnError, match=message):
        phase_diagram(**{"betas": [1.0], "dims": [4], "n": 4, "runs": 2, "until": 1.0, **change})


def test_faster_than_numpy():
    """One drift of 10,000 tokens, d = 3, float64, one run: at least five times."""
    (row,) = against_numpy(repeats=1, cases=CASES[:1])
    assert row["largest_difference"] < 1e-12
    assert row["ratio"] > 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_diagram(record_property):
    """32 tokens, 20 values of beta, 6 dimensions, 64 runs each: under ten minutes of computing."""
    start = time.process_time()
    result = phase()
    record_property("result", result)
    assert time.process_time() - start < 2 * 600  # two cores
    assert result["largest excess, d = 512, beta <= 5"] < 0.02
