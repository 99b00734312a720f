"""Families of maps full of ties: values against POT, and no pair that stalls. benchmarks/ties.py has the times."""

from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn.curvature import Status
from tests.curvature.comparison import TOLERANCE, error
from tests.curvature.references.exact import problem
from tests.curvature.tie_families import TIES, tie_family

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def compare(name: str, n: int, seed: int, edges: int) -> None:
    attention, convention = tie_family(name, n, seed)
    result = ga.ollivier_ricci(attention, convention, edges=edges, seed=seed)
    if convention.alpha == "limit":  # POT has no limit: near it the curvature is linear in alpha
        near = convention.but(alpha=0.999)
        graph = problem(attention, near)
    else:
        graph = problem(attention, convention)
    assert len(result.index) == edges
    for (x, y), ours, status in zip(result.index, result.kappa, result.status, strict=True):
        reference, expected = graph.kappa(x, y, "pot")
        if convention.alpha == "limit":
            reference *= 1000
        assert Status(int(status)).name.lower() == expected, (name, n, seed, x, y)
        assert error(ours, reference) <= (1e-6 if convention.alpha == "limit" else TOLERANCE), (x, y, ours, reference)
    assert not np.isnan(result.max_gap)
    assert result.max_gap <= 1e-9


@pytest.mark.parametrize("name", TIES)
def test_values_of_short_maps(name):
    for n, seed in ((12, 0), (33, 1), (66, 2)):
        compare(name, n, seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("n", [130, 257, 300, 450, 700])
def test_values_of_long_maps(name, n):
    for seed in range(3):
        compare(name, n, seed, 6)
