"""Pairs whose measures end early are solved on the first tokens alone: the same values, whoever asks for what else."""

from __future__ import annotations

import numpy as np
import ot
import pytest

from geoattn.curvature.transport import Status, Transport, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import shortest_paths

CONVENTIONS = {
    "markov": Convention.of("markov"),
    "directed": Convention.of("markov").but(direction="directed"),
    "limit": Convention.of("markov").but(alpha="limit"),
}


def causal(n: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """Rows that end with their own token."""
    logits = scale * np.random.default_rng(seed).standard_normal((n, n))
    weights = np.tril(np.exp(logits))
    return weights / weights.sum(-1, keepdims=True)


def some_pairs(graphs: Graphs, count: int, seed: int = 0) -> np.ndarray:
    pairs = np.argwhere(graphs.edges[0]).astype(np.int32)
    return np.ascontiguousarray(pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:count])])


def solve(graphs: Graphs, pairs: np.ndarray, **options: bool) -> Transport:
    return solve_pairs(graphs, pairs, np.array([0, len(pairs)]), threads=2, **options)


@pytest.mark.parametrize("n", [260, 331, 530, 610])
@pytest.mark.parametrize("name", CONVENTIONS)
def test_values_agree_with_those_that_come_with_potentials(n: int, name: str) -> None:
    graphs = build_graphs(causal(n, n)[None], CONVENTIONS[name])
    pairs = some_pairs(graphs, 60)
    short, whole = solve(graphs, pairs), solve(graphs, pairs, potentials=True)
    assert (short.status == whole.status).all()
    assert (short.status == Status.SOLVED).sum() > 10  # in a directed causal graph most pairs are out of reach
    np.testing.assert_allclose(short.kappa, whole.kappa, rtol=0, atol=1e-12)
    assert np.nanmax(short.gap) < 1e-11


@pytest.mark.parametrize("n", [300, 560])
def test_values_are_those_of_pot(n: int) -> None:
    graphs = build_graphs(causal(n, 1)[None], Convention.of("markov"))
    distances = np.ascontiguousarray(shortest_paths(graphs.lengths[0]))
    pairs = some_pairs(graphs, 12)
    for (x, y), w1 in zip(pairs, solve(graphs, pairs).w1, strict=True):
        one, other = graphs.measures[0, x].copy(), graphs.measures[0, y].copy()
        assert w1 == pytest.approx(ot.emd2(one, other, distances, numItermax=10**7), rel=1e-9)


def test_a_value_does_not_depend_on_the_other_pairs() -> None:
    graphs = build_graphs(causal(300, 2)[None], Convention.of("markov"))
    pairs = some_pairs(graphs, 40)
    together = solve(graphs, pairs)
    for k in range(0, 40, 7):
        alone = solve(graphs, pairs[k : k + 1])
        assert (alone.w1[0], alone.gap[0]) == (together.w1[k], together.gap[k])


def test_ways_over_later_tokens_count() -> None:
    """Two tokens that nothing joins but a later one: their distance is that over it."""
    n = 300
    attention = causal(n, 3)
    attention[1] = 0.0
    attention[1, 1] = 1.0  # token 1 does not see token 0
    attention[n - 1] = 1e-6
    attention[n - 1, :2] = 0.4
    attention /= attention.sum(-1, keepdims=True)
    graphs = build_graphs(attention[None], Convention.of("markov"))
    pairs = np.array([[0, 2], [1, 2], [1, 3], [2, 3]], dtype=np.int32)
    found = solve(graphs, pairs)
    distances = np.ascontiguousarray(shortest_paths(graphs.lengths[0]))
    near = -2 * np.log(attention[n - 1, 0] / 2)
    assert distances[0, 1] == pytest.approx(near)  # over the last token
    for (x, y), w1 in zip(pairs, found.w1, strict=True):
        expected = ot.emd2(graphs.measures[0, x].copy(), graphs.measures[0, y].copy(), distances)
        assert w1 == pytest.approx(expected, rel=1e-9)


def test_tokens_that_coincide() -> None:
    """Weight 1 between two tokens is length 0: they are one class, and the classes of a prefix are counted by it."""
    attention = causal(320, 4)
    attention[50] = 0.0
    attention[50, 49] = 1.0
    attention[49] = 0.0
    attention[49, 48] = 1.0
    convention = Convention.of("markov").but(direction="max")
    graphs = build_graphs(attention[None], convention)
    pairs = some_pairs(graphs, 80)
    short, whole = solve(graphs, pairs), solve(graphs, pairs, potentials=True)
    assert (short.status == whole.status).all()
    np.testing.assert_allclose(short.kappa, whole.kappa, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_very_long_maps_keep_no_distances() -> None:
    """Above 4,096 classes distances are summed along the way, on prefixes and on the whole map."""
    graphs = build_graphs(causal(4200, 5)[None], Convention.of("markov"))
    pairs = np.array([[100, 300], [900, 1500], [2000, 2600], [3900, 4190]], dtype=np.int32)
    short, whole = solve(graphs, pairs), solve(graphs, pairs, potentials=True)
    assert (short.status == Status.SOLVED).all()
    np.testing.assert_allclose(short.kappa, whole.kappa, rtol=0, atol=1e-12)
    assert np.nanmax(short.gap) < 1e-11
