"""The experiments give the outcomes that are known: small in the normal suite, as published in the slow one."""

from __future__ import annotations

import functools
import itertools
import json
import math
import time
from typing import NamedTuple

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.experiments import (
    FIGURES,
    Check,
    Experiment,
    experiment_names,
    experiments,
    register,
    run_experiment,
)
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.staircase import energy_staircase


def failures(experiment) -> str:
    table = experiment.to_pandas()
    return table[~table.passed].to_string()


class Run(NamedTuple):
    experiment: Experiment
    progress: list[float]
    seconds: float  # of the processor: others may use it too


@functools.cache
def in_small_form(name: str) -> Run:
    seen, start = [], time.process_time()
    experiment = run_experiment(name, size="small", progress=lambda done, total: seen.append(done / total))
    return Run(experiment, seen, time.process_time() - start)


@pytest.mark.parametrize("name", experiment_names())
def test_small(name):
    experiment = in_small_form(name).experiment
    assert experiment.passed, failures(experiment)
    assert experiment.name == name
    assert len(experiment.title) > 20
    assert experiment.checks


@pytest.mark.parametrize("entry", experiments().values(), ids=experiments())
def test_entry_says_what_it_shows_and_where_that_is_from(entry):
    assert entry.shows.endswith(".")
    assert "arXiv" in entry.reference
    assert len(entry.source) > 40


def test_a_name_registers_once():
    def again(*, small, seed, progress):
        """It is there already."""

    with pytest.raises(GeoattnError, match="two experiments"):
        register("causal", reference="", source="")(again)
    with pytest.raises(GeoattnError, match="docstring"):
        register("new", reference="", source="")(lambda **_: None)


@pytest.mark.parametrize("name", experiment_names())
def test_saved(name, tmp_path):
    """The file holds what the result holds."""
    experiment = in_small_form(name).experiment
    experiment.save(tmp_path / "first.npz")
    with np.load(tmp_path / "first.npz") as file:
        header = json.loads(str(file["header"]))
        assert [c["passed"] for c in header["checks"]] == [c.passed for c in experiment.checks]
        assert {k.removeprefix("table:") for k in file.files if k.startswith("table:")} == set(experiment.table)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", experiment_names())
def test_as_published(name, record_property):
    experiment = run_experiment(name)
    record_property("checks", experiment.to_pandas().to_dict("records"))
    assert experiment.passed, failures(experiment)


@pytest.mark.parametrize("name", experiment_names())
def test_progress_rises_to_the_end(name):
    seen = in_small_form(name).progress
    assert seen == sorted(seen)
    assert seen[0] < 1
    assert seen[-1] == 1


def stairs_of(experiment) -> dict[tuple[float, float], list[dict[str, float]]]:
    """Stages in order, of each beta and run."""
    rows = [dict(zip(experiment.table, row, strict=True)) for row in zip(*experiment.table.values(), strict=True)]
    stairs: dict[tuple[float, float], list[dict[str, float]]] = {}
    for row in rows:
        stairs.setdefault((row["beta"], row["run"]), []).append(row)
    return stairs


def check_metastable(experiment, runs: int, seconds: float, limit: float) -> None:
    """Plateaus of ever fewer clusters, ever higher, and most of them many times as long as all the time before."""
    assert experiment.passed, failures(experiment)
    stairs = stairs_of(experiment)
    assert len(stairs) == 2 * runs
    long = {9.0: [], 25.0: []}
    for (beta, _), stages in stairs.items():
        counts = [stage["clusters"] for stage in stages]
        assert counts == list(range(int(counts[0]), 0, -1))  # one merger at a time, down to one cluster
        assert (np.diff([stage["energy"] for stage in stages]) > 0).all()
        assert stages[-1]["energy"] == pytest.approx(1.0, abs=1e-12)
        assert all(s["log t until"] == t["log t from"] for s, t in itertools.pairwise(stages))
        long[beta].append(sum(s["log t until"] - s["log t from"] > math.log(10) for s in stages[:-1]))
    assert np.median(long[9.0]) >= 2
    assert min(long[25.0]) >= 3
    assert seconds < limit


def test_metastable_shows_the_staircase():
    run = in_small_form("metastable")
    check_metastable(run.experiment, 4, run.seconds, 20.0)


@pytest.mark.slow
def test_metastable_at_full_size_in_less_than_a_minute(record_property):
    """About 25 seconds of one core; it was 143 when the runs were summed one after the other."""
    start = time.process_time()
    experiment = run_experiment("metastable")
    record_property("seconds", time.process_time() - start)
    check_metastable(experiment, 16, time.process_time() - start, 60.0)


def test_all_published_ones_are_there():
    assert set(FIGURES.values()) <= set(experiment_names())


def test_a_check_can_fail():
    assert Check.near("x", 1.0, 1.0, 0.0).passed
    assert not Check.near("x", 1.1, 1.0, 0.05).passed
    assert not Check.least("x", math.nan, 0.0).passed


def test_bad_input():
    with pytest.raises(GeoattnError, match="experiment must be one of"):
        run_experiment("figure-8")
    with pytest.raises(GeoattnError, match="size"):
        run_experiment("split", size="huge")


@pytest.mark.parametrize("flow", ["SA", "USA"])
def test_time_of_a_merger(flow):
    """Two tokens: the time of the integral, also where it is e^60."""
    from scipy.integrate import quad

    start, glue = 1.0, 1e-3
    for beta in (5.0, 130.0):
        run = energy_staircase([0.0, start], beta, flow=flow, glue=glue)

        def integrand(p: float, beta: float = beta) -> float:
            shift = beta * (1 - math.cos(start))
            slow = math.exp(beta * (1 - math.cos(p)) - shift)
            if flow == "USA":
                return slow / math.sin(p)
            return (math.exp(-shift) + slow) / (2 * math.sin(p))

        value, _ = quad(integrand, glue, start, limit=1000, epsrel=1e-10, points=[0.01, 0.1, 0.9])
        expected = math.log(value) + beta * (1 - math.cos(start))
        assert run.log_t[0] == pytest.approx(expected, abs=2e-3)


def test_mergers_around_the_circle_happen_when_the_flow_has_them():
    """Five tokens with masses all around the circle: in `simulate` one more gap has shrunk to the glue each time."""
    angles, weights, beta, glue = np.array([0.3, 1.5, 2.9, 4.4, 6.1]), np.array([0.3, 0.1, 0.2, 0.15, 0.25]), 4.0, 1e-3
    stair = energy_staircase(angles, beta, weights=weights, flow="SA", glue=glue, arc="whole")
    assert [len(masses) for masses in stair.masses] == [5, 4, 3, 2, 1]
    start = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], -1))
    times = np.exp(stair.log_t[:3])  # the last is at 1770
    run = simulate(start, beta=beta, weights=weights, method="adaptive", until=times[-1], save=times, observe=())
    for k, x in enumerate(run.tokens.numpy()):
        around = np.sort(np.arctan2(x[:, 1], x[:, 0]))
        gaps = np.sort(np.diff(around, append=around[0] + 2 * math.pi))
        # glued tokens count from their centre of mass: exact for the first merger, to a tenth for the others
        assert gaps[k] == pytest.approx(glue, rel=1e-4 if k == 0 else 0.1)


def test_the_circle_has_no_first_token():
    """A turn changes nothing, also when it moves a close pair across the angle 0."""
    angles = np.array([0.1, 0.4, 2.0, 4.0])
    here, there = (energy_staircase(angles + turn, 20.0, arc="whole") for turn in (0.0, -0.2))
    np.testing.assert_allclose(there.log_t, here.log_t, rtol=1e-6)
    np.testing.assert_allclose(there.plateau, here.plateau, rtol=1e-6)
    half = energy_staircase(angles[:3], 20.0)
    np.testing.assert_allclose(energy_staircase(angles[:3], 20.0, arc="whole").log_t, half.log_t, rtol=1e-9)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_evenly_spaced_tokens_rest(count):
    with pytest.raises(GeoattnError, match="rest where they are"):
        energy_staircase(2 * math.pi * np.arange(count) / count, 5.0, arc="whole")


def test_only_the_closest_pair_moves():
    """At large beta the first to merge are the closest two, along the arc between them."""
    run = energy_staircase([0.0, 0.5, 0.9, 1.6], 500.0)
    assert run.masses[1] == (0.25, 0.5, 0.25)
    np.testing.assert_allclose(run.plateau, run.heights, atol=1e-6)
    with pytest.raises(GeoattnError, match="half circle"):
        energy_staircase([0.0, 3.5], 10.0)
    with pytest.raises(GeoattnError, match="weights"):
        energy_staircase([0.0, 1.0], 10.0, weights=[1.0, 1.0])
