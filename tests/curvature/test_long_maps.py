"""Maps of more than a thousand tokens take another search: over lists of short edges. Its values are the same."""

from dataclasses import replace

import numpy as np
import ot
import pytest

import geoattn as ga
from geoattn.graph.build import build_graphs
from geoattn.graph.shortest_paths import shortest_paths

N = 1040


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def attention(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "ties":  # a few values only: thousands of edges become tight at once
        return softmax(rng.integers(0, 3, size=(N, N)).astype(float))
    if kind == "uniform":
        return np.full((N, N), 1 / N)
    if kind == "sharp":
        return softmax(4 * rng.normal(size=(N, N)))
    if kind == "causal":
        return softmax(np.where(np.tri(N) > 0, rng.normal(size=(N, N)), -np.inf))
    x = rng.normal(size=(N, 16))
    return softmax(x @ x.T / 4)


@pytest.mark.filterwarnings("ignore::geoattn._core.errors.DegenerateCurvatureWarning")
@pytest.mark.parametrize(
    ("kind", "convention", "direction"),
    [
        ("tokens", "markov", "mean"), ("sharp", "markov", "mean"), ("ties", "markov", "mean"),
        ("uniform", "grc-0.6", "mean"), ("tokens", "grc-0.6", "mean"), ("tokens", "markov", "directed"),
        ("causal", "markov", "mean"),
    ],
)  # fmt: skip
def test_values_against_pot(kind, convention, direction):
    rules = ga.Convention.of(convention)
    if direction != "mean":
        rules = replace(rules, direction=direction)
    a = attention(kind)
    result = ga.ollivier_ricci(a, rules, edges=4, seed=1)
    graphs = build_graphs(a[None], rules)
    distances = shortest_paths(graphs.lengths[0], directed=direction == "directed")
    places, w1 = result.places(), result.column("w1")
    assert np.isfinite(w1).all()
    assert result.max_gap <= 1e-9
    for (i, j), value in list(zip(places, w1, strict=True))[:4]:
        expected = ot.emd2(graphs.measures[0, i], graphs.measures[0, j], distances, numItermax=10_000_000)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-13)
