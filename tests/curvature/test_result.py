"""The result of a computation: file, summary, table and band agree with its values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import geoattn as ga
from geoattn import Convention
from tests.graphs import draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def test_round_trip_through_a_file(tmp_path: Path):
    a = draw("with_zeros", 6, 4).reshape(2, 2, 6, 6)
    cases = [
        ("grc-0.5", "all"), ("markov", 4), (Convention(alpha="limit", heads="mean"), "all"),
        (Convention(direction="directed", alpha=0.25), np.int64(5)),
    ]  # fmt: skip
    for convention, edges in cases:
        result = ga.ollivier_ricci(a, convention, edges=edges, seed=np.int64(3))
        result.save(tmp_path / "c.npz")
        again = ga.curvature.Curvature.load(tmp_path / "c.npz")
        for name in ("kappa", "w1", "distance", "gap", "status", "index"):
            np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
        assert again.convention == result.convention
        assert again.shape == result.shape
        assert again.edges == result.edges
        assert again.settings == result.settings
        assert again.summary() == result.summary()
        assert result.to_pandas().equals(again.to_pandas())
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_summary_table_and_values_agree():
    a = draw("causal", 7, 3)
    for edges in ("all", 9):
        result = ga.ollivier_ricci(a, edges=edges)
        table, summary = result.to_pandas(), result.summary()
        np.testing.assert_array_equal(table["kappa"], result.values())
        assert summary["mean"] == pytest.approx(table["kappa"].mean())
        assert summary["distance_to_one"] == pytest.approx((1 - table["kappa"]).mean())
        assert summary["negative_share"] == (table["kappa"] < 0).mean()
        assert summary["edges"] == 63
        assert summary["values"] == len(table) == (63 if edges == "all" else 27)
        assert list(table.columns) == ["graph", "i", "j", "kappa", "w1", "distance", "gap", "status"]
        assert (table["i"] < table["j"]).all()
        np.testing.assert_allclose(1 - table["w1"] / table["distance"], table["kappa"], rtol=1e-13)


@pytest.mark.parametrize(
    ("family", "convention", "level", "sample"),
    [("softmax-3", "markov", 0.9, 60), ("ties", "hop", 0.9, 40), ("softmax-3", "markov", 0.5, 30)],
)
def test_the_band_covers_the_distribution_at_its_level(family, convention, level, sample):
    """Seeded: of 100 samples at most as many miss as the level allows, with room for chance at three deviations."""
    a = draw(family, 30, 1)[0]
    if family == "ties":
        a[:20] = a[0]  # many equal values
    whole = np.sort(ga.ollivier_ricci(a, convention).values())
    misses = 0
    for seed in range(100):
        x, low, high = ga.ollivier_ricci(a, convention, edges=sample, seed=seed).band(level)
        assert (low <= high).all()
        assert (np.diff(x) >= 0).all()
        truth = np.searchsorted(whole, x + 1e-12, side="right") / len(whole)
        before = np.searchsorted(whole, x - 1e-12, side="left") / len(whole)
        # at the values, and just before them: there the empirical function is that of the value before
        steps = np.concatenate([[high[0] - (low[0] + high[0]) / 2], high[:-1]])
        misses += bool(((truth < low - 1e-12) | (truth > high + 1e-12) | (before > np.minimum(1, steps) + 1e-12)).any())
    allowed = 100 * (1 - level)
    assert misses <= allowed + 3 * np.sqrt(allowed * level)


def test_the_band_of_everything_has_no_width():
    result = ga.ollivier_ricci(draw("softmax-1", 9, 1)[0])
    x, low, high = result.band()
    np.testing.assert_array_equal(low, high)
    assert low[-1] == 1
    np.testing.assert_allclose(np.unique(result.values()), x)


def test_axes_have_the_names_of_what_they_are():
    """Attention of one layer has samples and heads, not layers."""
    a = draw("softmax-1", 5, 6)
    four, five = a.reshape(2, 3, 5, 5), a.reshape(1, 2, 3, 5, 5)
    assert list(ga.ollivier_ricci(four).to_pandas().columns[:4]) == ["sample", "head", "i", "j"]
    assert list(ga.ollivier_ricci(five).to_pandas().columns[:3]) == ["layer", "sample", "head"]
    named = ga.ollivier_ricci(four, edges=2).to_pandas(axes=("layer", "head"))
    assert list(named.columns[:2]) == ["layer", "head"]
    assert list(ga.spectrum(four).to_pandas().columns[:2]) == ["sample", "head"]
    assert list(ga.spectrum(four).to_pandas(axes=("layer", "head")).columns[:2]) == ["layer", "head"]
    for axes in (("head",), ("a", "a"), ("i", "j"), "sample"):
        with pytest.raises(ga.GeoattnError, match="axes must hold 2 different names"):
            ga.ollivier_ricci(four).to_pandas(axes)
