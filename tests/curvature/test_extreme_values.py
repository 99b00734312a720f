"""Lengths, masses and weights of extreme size, distances of zero, and mass that has no way."""

from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from tests.curvature.comparison import GRC, TOLERANCE, error
from tests.curvature.references.exact import problem
from tests.graphs import draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def far_cluster(far: float) -> np.ndarray:
    """Tokens 0 and 1, and a cluster at the distance `far` in which their masses differ; all masses are 1/8 or 1/2."""
    rng = np.random.default_rng(0)
    weights = np.zeros((8, 8))
    weights[0, 1] = 5
    weights[0, 2:5] = weights[1, 5:8] = far
    weights[2:, 2:] = rng.uniform(5, 9, size=(6, 6))
    return np.triu(weights, 1) + np.triu(weights, 1).T


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e12, 1e15, 1e17, 1e20, 1e25])
def test_small_lengths_far_away(far):
    """W1 is made in a cluster whose lengths vanish beside its distance from the pair."""
    weights = far_cluster(far)
    for preset in GRC:
        result = ga.ollivier_ricci(weights, preset)
        reference, _ = problem(weights, preset).kappa(0, 1, "exact")
        assert error(result.kappa[0, 1], reference) <= TOLERANCE
        assert result.gap[0, 1] <= 1e-9


@pytest.mark.parametrize("far", [1e10, 1e20, 1e27, 1e40, 1e80])
def test_a_token_that_no_measure_knows(far):
    """A neighbour at a distance where exp(-length^2) is 0 takes no part, however far it is."""
    weights = np.array([[0.0, 0.1, far, 0.3], [0.1, 0.0, 0.0, 0.2], [far, 0.0, 0.0, 0.0], [0.3, 0.2, 0.0, 0.0]])
    for preset in GRC:
        result = ga.ollivier_ricci(weights, preset)
        for x, y in ((0, 1), (0, 3), (1, 3)):
            reference, _ = problem(weights, preset).kappa(x, y, "exact")
            assert error(result.kappa[x, y], reference) <= TOLERANCE
            assert result.gap[x, y] <= 1e-9


@pytest.mark.parametrize("tiny", [1e-10, 1e-20, 1e-26, 1e-30, 1e-33, 1e-100])
def test_small_masses_far_away(tiny):
    """With length 1/w a mass t lies at the distance 2/t and counts in full."""
    attention = np.array([[0.5, 0.5, tiny, 0], [0.5, 0.25, 0, 0.25], [0, 0, 1, 0], [0, 0, 0, 1]])
    convention = Convention(length="1/w")
    result = ga.ollivier_ricci(attention, convention)
    graph = problem(attention, convention)
    for x, y in graph.pairs():
        if tiny <= 1e-30 and result.status[x, y] == Status.UNCERTAIN:  # beyond the precision of masses: no value
            assert np.isnan(result.kappa[x, y])
        else:
            assert error(result.kappa[x, y], graph.kappa(x, y, "exact")[0]) <= TOLERANCE


@pytest.mark.parametrize("length", ["-log w", "hop", "1-w"])
@pytest.mark.parametrize("mass", [0.25, 4e-7, 1e-12])
def test_mass_without_a_way(mass, length):
    """With `min` token 2 has no edge, but token 0 looks at it: no transport can serve that mass, however small."""
    attention = np.array([[0.5, 0.5 - mass, mass], [0.5, 0.5, 0], [0, 0, 1]])
    result = ga.ollivier_ricci(attention, Convention(direction="min", length=length))
    assert result.status[0, 1] == Status.UNREACHABLE
    assert np.isnan(result.kappa[0, 1])


def test_same_mass_without_a_way():
    """Mass that both measures have elsewhere stays there: W1 = 0."""
    attention = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0, 0, 1]])
    result = ga.ollivier_ricci(attention, Convention(direction="min"))
    assert result.status[0, 1] == Status.SOLVED
    assert result.kappa[0, 1] == 1


def test_zero_distances_have_no_curvature():
    """One-hot rows that point at each other: a status instead of a number; their neighbours are solved."""
    attention = np.array([[0, 1.0, 0, 0], [1.0, 0, 0, 0], [0.25, 0.25, 0, 0.5], [0, 0.5, 0.5, 0]])
    result = ga.ollivier_ricci(attention, "markov")
    assert result.status[0, 1] == Status.ZERO_DISTANCE
    assert np.isnan(result.kappa[0, 1])
    assert result.distance[0, 1] == 0
    assert (result.status[2, [0, 1, 3]] == Status.SOLVED).all()
    # tokens 0 and 1 coincide, so d(0, 2) = d(1, 2)
    assert result.distance[0, 2] == result.distance[1, 2]
    assert str(Status.ZERO_DISTANCE)


def test_below_the_floor_curvature_is_zero():
    weights = np.array([[0, 1e-8, 0.5], [1e-8, 0, 0.4], [0.5, 0.4, 0]])
    result = ga.ollivier_ricci(weights, "grc-0.6")
    assert result.kappa[0, 1] == 0
    assert result.status[0, 1] == Status.BELOW_FLOOR
    # 0.6.1 divides by the distance, 0.5.3.2 by the length of the edge: a short cut makes the difference
    weights = np.array([[0, 4e-8, 0.5], [4e-8, 0, 5e-8], [0.5, 5e-8, 0]])
    assert ga.ollivier_ricci(weights, "grc-0.6").status[0, 2] == Status.BELOW_FLOOR
    assert ga.ollivier_ricci(weights, "grc-0.5").status[0, 2] == Status.SOLVED


@pytest.mark.parametrize("large", [1e20, 1e39, 1e100, 1e160, 1e200, 1e250])
def test_large_weights(large):
    """exp(-w^2) is 0 without a word (warnings are errors), and no sum overflows."""
    weights = draw("thousands", 5, 1)[0] / 5e3 * large
    result = ga.ollivier_ricci(weights, "grc-0.6")
    reference = problem(weights, "grc-0.6")
    for x, y in reference.pairs():
        assert error(result.kappa[x, y], reference.kappa(x, y, "exact")[0]) <= TOLERANCE


def test_weights_too_large_for_sums():
    weights = draw("thousands", 5, 1)[0] * 1e300
    with pytest.raises(ga.GeoattnError, match="overflow"):
        ga.ollivier_ricci(weights, "grc-0.6")
