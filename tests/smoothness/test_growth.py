from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn.smoothness.adversarial import adversarial_tokens
from geoattn.smoothness.growth import fit_power_law, lipschitz_growth
from geoattn.smoothness.local import local_lipschitz


def test_an_exact_law():
    n = np.array([2, 4, 8, 16])
    law = fit_power_law(n, 2.5 * n**0.25)
    assert law.exponent == pytest.approx(0.25)
    assert law.factor == pytest.approx(2.5)
    assert law.r2 == pytest.approx(1)
    assert law.high - law.low < 1e-9
    assert law.contains(law.exponent)


@pytest.mark.parametrize("repeats", [1, 5])
def test_the_interval_covers_at_its_level(repeats):
    """Noisy laws of exponent 1/4: of 60 intervals at 90 % about six miss; at most sixteen may."""
    rng = np.random.default_rng(0)
    n = np.repeat(2 ** np.arange(2, 12), repeats)
    hits = 0
    for seed in range(60):
        y = 3 * n**0.25 * np.exp(0.1 * rng.standard_normal(len(n)))
        law = fit_power_law(n, y, level=0.9, bootstrap=200, seed=seed)
        assert len(law.bootstrap) == 200
        hits += law.contains(0.25)
    assert 44 <= hits < 60


def test_worst_case_tokens_grow_like_a_root_and_zero_tokens_do_not():
    A = np.diag([-1.0, 0.3])
    worst = lipschitz_growth([adversarial_tokens(A, n, 4.5) for n in (11, 41, 161, 321)], A)
    assert worst.fit.exponent == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(worst.radius, 4.5)
    flat = lipschitz_growth([np.zeros((n, 2)) for n in (10, 40, 160)], A)
    assert flat.fit.exponent == pytest.approx(0, abs=1e-9)
    assert not flat.fit.contains(0.25)


def test_values_options_and_table():
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((n, 3)) for n in (5, 9, 9, 17)]
    A, V = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    growth = lipschitz_growth(clouds, A, V, causal=True, bootstrap=50)
    for k, x in enumerate(clouds):
        assert growth.value[k] == local_lipschitz(x, A, V, causal=True).value
        assert growth.rms[k] == pytest.approx(np.sqrt((x**2).sum(1).mean()))
    table = growth.to_pandas()
    assert list(table["n"]) == [5, 9, 9, 17]
    assert table["converged"].all()
    again = lipschitz_growth(clouds, A, V, causal=True, bootstrap=50)
    np.testing.assert_array_equal(again.fit.bootstrap, growth.fit.bootstrap)


def test_what_did_not_converge_is_not_in_the_fit():
    rng = np.random.default_rng(0)
    clouds = [np.zeros((5, 3)), np.zeros((9, 3)), rng.standard_normal((30, 3)) * 3]
    growth = lipschitz_growth(clouds, rng.standard_normal((3, 3)), iterations=2, tolerance=1e-10, bootstrap=20)
    np.testing.assert_array_equal(growth.converged, [True, True, False])
    assert np.isnan(growth.value[2])
    assert growth.fit.exponent == pytest.approx(0, abs=1e-9)


def test_bad_input():
    with pytest.raises(ga.GeoattnError, match="cloud 1 has"):
        lipschitz_growth([np.zeros((2, 2)), np.zeros(2)], np.eye(2))
    with pytest.raises(ga.GeoattnError, match="cloud 1: tokens must be finite"):
        lipschitz_growth([np.zeros((2, 2)), np.full((3, 2), np.nan)], np.eye(2))
    with pytest.raises(ga.GeoattnError, match="two different n"):
        lipschitz_growth([np.zeros((2, 2))], np.eye(2))
    with pytest.raises(ga.GeoattnError, match="positive and finite"):
        fit_power_law([1, 2], [1.0, 0.0])
    with pytest.raises(ga.GeoattnError, match="same length"):
        fit_power_law([1, 2], [1.0])
    with pytest.raises(ga.GeoattnError, match="level must be below 1"):
        fit_power_law([1, 2], [1.0, 2.0], level=1)
