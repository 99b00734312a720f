"""Effects pooled over data sets when runs of one seed are alike: coverage by simulation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from geoattn.studies.engine.contrasts import Number, Runs, contrast_findings
from geoattn.studies.engine.pooling import pool, seed_bootstrap, t_test

_TIMES = 400


def draws(sets: int, seeds: int, shared: float) -> Iterator[dict[str, dict[int, float]]]:
    """Differences with mean 0; ``shared``: the part of their variance that is that of the seed."""
    rng = np.random.default_rng([sets, seeds])
    for _ in range(_TIMES):
        common = rng.normal(size=seeds)
        own = rng.normal(size=(sets, seeds))
        values = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
        yield {f"set {d}": dict(enumerate(row.tolist())) for d, row in enumerate(values)}


def share(inside: list[bool]) -> float:
    return float(np.mean(inside))


def test_observations_of_a_seed_are_not_independent() -> None:
    """With 20 seeds on 3 data sets: a t-test over all 60 is far too narrow, resampling whole seeds is not."""
    naive, clustered, primary = [], [], []
    for groups in draws(3, 20, 0.9):
        alone = t_test(np.array([v for values in groups.values() for v in values.values()]))
        naive.append(alone.low <= 0 <= alone.high)
        low, high = seed_bootstrap(groups, resamples=400)
        clustered.append(low <= 0 <= high)
        pooled = pool(groups)
        primary.append(pooled.low <= 0 <= pooled.high)
    assert share(naive) < 0.80
    assert share(clustered) == pytest.approx(0.94, abs=0.035)
    assert share(primary) > 0.93


@pytest.mark.parametrize(("sets", "seeds"), [(3, 3), (3, 5), (6, 3), (2, 6)])
def test_the_primary_interval_holds_with_few_seeds_and_the_bootstrap_is_too_narrow(sets: int, seeds: int) -> None:
    """That is why Student's t judges and the bootstrap stands beside it."""
    found = [(pool(groups), seed_bootstrap(groups, resamples=200)) for groups in draws(sets, seeds, 0.9)]
    covered = share([one.low <= 0 <= one.high for one, _ in found])
    assert covered > 0.88
    assert share([low <= 0 <= high for _, (low, high) in found]) < covered


def test_the_error_is_never_below_that_of_whole_seeds() -> None:
    groups = {name: {0: 1.0, 1: 2.0, 2: 3.0} for name in ("a", "b", "c")}  # copies bring nothing
    one, three = t_test(np.array([1.0, 2.0, 3.0])), pool(groups)
    assert three.error >= one.error * 0.999
    assert three.freedom == 2
    apart = {name: {3 * k + s: v for s, v in enumerate((1.0, 2.0, 3.0))} for k, name in enumerate("abc")}
    assert pool(apart).error < three.error


@pytest.mark.parametrize("between", [0.0, 1.0, 3.0])
def test_a_quiet_data_set_does_not_decide_alone(between: float) -> None:
    """Seeds of three data sets differ by 1, 0.2 and 4, around effects that differ between sets and are 0 on average."""
    rng = np.random.default_rng(5)
    wrong = []
    for _ in range(1500):
        groups = {
            f"set {d}": dict(enumerate((between * rng.normal() + noise * rng.normal(size=seeds)).tolist()))
            for d, (noise, seeds) in enumerate([(1.0, 6), (0.2, 5), (4.0, 5)])
        }
        wrong.append(pool(groups).p < 0.05)
    assert share(wrong) < 0.06


def test_pooled_mean_by_hand() -> None:
    found = pool({"a": {0: 1.0, 1: 3.0}, "b": {2: 5.0, 3: 7.0}})
    assert found.effect == 4.0
    assert found.error == pytest.approx(2.0)  # the means 2 and 6 have a variance of 8, over two data sets
    assert found.freedom == 1


def test_a_bootstrap_stands_beside_pooled_effects_only() -> None:
    pairs = [
        ({"data": d, "seed": s, "arm": a}, {"x": (1.0 + 0.1 * s) * (a == "up")})
        for d in ("one", "two")
        for s in range(4)
        for a in ("up", "down")
    ]
    rows = contrast_findings(Runs(pairs, lambda c: c["arm"]), {"x": Number("x", lambda r: r["x"])}, (("up", "down"),))
    for row in rows:
        assert (row.bootstrap_low is not None) == (row.data == "pooled")
    pooled = rows[-1]
    assert pooled.bootstrap_low is not None
    assert pooled.bootstrap_high is not None
    assert pooled.low < pooled.bootstrap_low < pooled.difference < pooled.bootstrap_high < pooled.high


def test_data_sets_with_one_seed_wait_for_a_second() -> None:
    groups = {"a": {0: 1.0, 1: 1.2}, "b": {0: 1.1, 1: 0.9}, "c": {0: 50.0}}
    assert pool(groups).effect == pytest.approx(1.05, abs=0.06)
    assert pool({"a": {0: 1.0}, "b": {0: 2.0}}) == t_test(np.array([1.0, 2.0]))
    assert seed_bootstrap({"a": {0: 1.0, 1: 1.2}, "b": {0: 1.1, 1: 0.9}}) == (-np.inf, np.inf)
