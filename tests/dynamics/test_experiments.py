"""The experiments give the outcomes that are known: small in the normal suite, as published in the slow one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from geoattn.dynamics.experiments import Check, experiment_names, run_experiment
from geoattn.dynamics.staircase import energy_staircase
from geoattn.errors import GeoattnError

PUBLISHED = ("one-token", "split", "split-picture", "repulsion", "four-tokens", "density", "negative", "indefinite")


def failures(experiment) -> str:
    table = experiment.to_pandas()
    return table[~table.passed].to_string()


@pytest.mark.parametrize("name", experiment_names())
def test_small(name):
    experiment = run_experiment(name, size="small")
    assert experiment.passed, failures(experiment)
    assert experiment.name == name
    assert len(experiment.title) > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", experiment_names())
def test_as_published(name, record_property):
    experiment = run_experiment(name)
    record_property("checks", experiment.to_pandas().to_dict("records"))
    assert experiment.passed, failures(experiment)


def test_all_published_ones_are_there():
    assert set(PUBLISHED) <= set(experiment_names())


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


def test_only_the_closest_pair_moves():
    """At large beta the first to merge are the closest two, along the arc between them."""
    run = energy_staircase([0.0, 0.5, 0.9, 1.6], 500.0)
    assert run.masses[1] == (0.25, 0.5, 0.25)
    np.testing.assert_allclose(run.plateau, run.heights, atol=1e-6)
    with pytest.raises(GeoattnError, match="half circle"):
        energy_staircase([0.0, 3.5], 10.0)
    with pytest.raises(GeoattnError, match="weights"):
        energy_staircase([0.0, 1.0], 10.0, weights=[1.0, 1.0])
