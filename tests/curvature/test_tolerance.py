"""Certified intervals: with a tolerance the bounds hold the exact value and are no further apart."""

from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn.graph import Convention

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

CONVENTIONS = [
    *map(Convention.of, ("markov", "hop", "grc-0.5", "grc-0.6")),
    Convention.of("markov").but(direction="directed"),
    Convention.of("markov").but(alpha="limit"),
    Convention.of("grc-0.6").but(alpha=0.1, floor=0.0),
    Convention.of("markov").but(measure="uniform", length="1/w", denominator="length"),
]


def softmax_maps(count: int, n: int, scale: float, causal: bool, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, n, causal])
    logits = scale * rng.normal(size=(count, n, n))
    if causal:
        logits = np.where(np.tril(np.ones((n, n), dtype=bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: f"{c.name}"[:60])
def test_intervals_hold_the_exact_value(convention: Convention) -> None:
    """About 10,000 edges over all conventions, none outside its interval, none wider than asked for."""
    bounded = 0
    for n, scale, causal in ((7, 3.0, False), (20, 1.0, True), (40, 4.0, False), (90, 2.0, False), (140, 5.0, True)):
        maps = softmax_maps(2, n, scale, causal, seed=3)
        exact = ga.ollivier_ricci(maps, convention, edges=90)
        for tolerance in (1e-3, 1e-2, 0.2):
            near = ga.ollivier_ricci(maps, convention, edges=90, tolerance=tolerance)
            np.testing.assert_array_equal(near.status, exact.status)
            known = np.isfinite(exact.kappa)
            assert (near.lower[known] <= exact.upper[known]).all()
            assert (near.upper[known] >= exact.lower[known]).all()
            assert ((near.upper - near.lower)[known] <= tolerance * (1 + 1e-12)).all()
            np.testing.assert_allclose(near.kappa[near.exact], exact.kappa[near.exact], atol=5e-9, rtol=5e-9)
            assert near.summary()["bounded"] == np.count_nonzero(~near.exact[known])
            bounded += near.summary()["bounded"]
    if convention.name.startswith("markov (") or convention.name == "markov":
        assert bounded > 0 or convention.measure == "uniform"  # the solver does stop early


def test_bounds_are_in_the_table_and_no_tolerance_is_exact() -> None:
    maps = softmax_maps(1, 60, 2.0, False, seed=0)[0]
    near = ga.ollivier_ricci(maps, tolerance=0.1)
    assert {"lower", "upper"} <= set(near.to_pandas().columns)
    exact = ga.ollivier_ricci(maps)
    assert "lower" not in exact.to_pandas().columns
    assert exact.exact[np.isfinite(exact.kappa)].all()
    assert exact.summary()["bounded"] == 0
    inside = np.isfinite(exact.kappa)
    assert (np.abs(near.kappa - exact.kappa)[inside] <= 0.05 + 1e-12).all()


def test_the_same_bits_from_one_thread_and_from_three() -> None:
    maps = softmax_maps(1, 150, 2.0, False, seed=1)[0]
    one, three = (ga.ollivier_ricci(maps, edges=200, tolerance=0.05, threads=threads) for threads in (1, 3))
    assert one.kappa.tobytes() == three.kappa.tobytes()
    assert one.gap.tobytes() == three.gap.tobytes()


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan"), float("inf"), "0.1", None, True])
def test_what_is_no_tolerance(tolerance: object) -> None:
    with pytest.raises(ga.GeoattnError, match="tolerance must be a finite number of at least 0"):
        ga.ollivier_ricci(np.full((3, 3), 1 / 3), tolerance=tolerance)  # type: ignore[arg-type]


def test_the_command_line_takes_it(tmp_path) -> None:
    import json

    from typer.testing import CliRunner

    from geoattn.cli.app import app

    np.save(tmp_path / "map.npy", softmax_maps(1, 60, 2.0, False, seed=0)[0])
    answer = CliRunner().invoke(app, ["curvature", str(tmp_path / "map.npy"), "--tolerance", "0.2", "--json"])
    assert answer.exit_code == 0, answer.output
    assert 1e-9 < json.loads(answer.output)["layers"][0]["max_gap"] <= 0.2
