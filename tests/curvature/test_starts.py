"""Short maps start each pair from a tree made for it, unless they are flat: no value depends on the other pairs."""

from dataclasses import replace

import numpy as np
import ot
import pytest

import geoattn as ga
from geoattn.graph.build import build_graphs
from geoattn.graph.shortest_paths import shortest_paths

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.errors.DegenerateCurvatureWarning")


def attention(kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if kind == "ties":
        logits = 3.0 * rng.integers(0, 3, size=(n, n))
    elif kind == "hubs":  # shortest ways of many steps, over a few tokens
        logits = 2.5 * rng.normal(size=(n, 4)) @ rng.normal(size=(4, n)) / 2
    else:
        logits = {"flat": 0.1, "soft": 1.5, "sharp": 4.0}[kind] * rng.normal(size=(n, n))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("convention", ["markov", "grc-0.6"])
@pytest.mark.parametrize("kind", ["soft", "sharp", "hubs"])
@pytest.mark.parametrize("n", [9, 32, 33, 65, 66, 130])
def test_no_pair_depends_on_another(convention, kind, n):
    a = attention(kind, n)
    together = ga.ollivier_ricci(a, convention)
    rng = np.random.default_rng(0)
    for i, j in rng.choice(n, size=(6, 2)):
        if i == j:
            continue
        wanted = np.zeros((n, n), dtype=bool)
        wanted[i, j] = wanted[j, i] = True
        alone = ga.ollivier_ricci(a, convention, edges=wanted)
        np.testing.assert_array_equal(alone.column("w1"), together.w1[min(i, j), max(i, j)])


@pytest.mark.parametrize("kind", ["flat", "soft", "sharp", "hubs", "ties"])
@pytest.mark.parametrize("n", [2, 3, 5, 32, 33, 65, 129, 208, 257])
def test_values_against_pot(kind, n):
    a = attention(kind, n)
    rules = replace(ga.Convention.of("grc-0.6"), floor=0.0)
    result = ga.ollivier_ricci(a, rules, edges=min(5, n * (n - 1) // 2), seed=2)
    graphs = build_graphs(a[None], rules)
    distances = shortest_paths(graphs.lengths[0])
    scale = distances.max()
    for (i, j), value in zip(result.places(), result.column("w1"), strict=True):
        expected = (
            ot.emd2(graphs.measures[0, i], graphs.measures[0, j], distances / scale, numItermax=10_000_000) * scale
        )
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-13 * scale)
    assert result.max_gap <= 1e-9


def test_two_equal_measures_cost_nothing():
    # No node gives, none takes: the tree has nothing to go by. Token 0 is a hub, so that most edges are not essential.
    a = np.tile([0.9, 0.05, 0.03, 0.015, 0.005], (5, 1))
    equal = ga.ollivier_ricci(a, "markov")
    apart = ~np.eye(5, dtype=bool)
    np.testing.assert_array_equal(equal.w1[apart], 0.0)
    np.testing.assert_array_equal(equal.kappa[apart], 1.0)
