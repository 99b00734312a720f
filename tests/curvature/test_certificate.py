"""The gap is never smaller than what the potentials prove, whichever way it was found.

The kernel takes short cuts to a certificate. Here every pair is proved once more, from all distances, with sums that do
not round.
"""

import math

import numpy as np
import pytest

from geoattn.curvature.transport import Status, all_edges, solve_pairs
from geoattn.graph.build import build_graphs
from geoattn.graph.convention import Convention
from geoattn.graph.shortest_paths import shortest_paths


def attention(kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    logits = {
        "flat": lambda: rng.normal(size=(n, n)),
        "sharp": lambda: 4 * rng.normal(size=(n, n)),
        "ties": lambda: 3.0 * rng.integers(0, 3, size=(n, n)),
        # closer than the count can tell (1e-6 of the longest distance), and farther than rounding
        "nearly ties": lambda: 3.0 * rng.integers(0, 3, size=(n, n)) + 1e-8 * rng.normal(size=(n, n)),
        "short and long": lambda: 12 * rng.normal(size=(n, n)),
    }[kind]()
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("convention", ["markov", "grc-0.6"])
@pytest.mark.parametrize("kind", ["flat", "sharp", "ties", "nearly ties", "short and long"])
@pytest.mark.parametrize("n", [5, 33, 65, 66, 140, 258])
def test_the_potentials_prove_the_gap(convention, kind, n):
    graphs = build_graphs(attention(kind, n)[None], Convention.of(convention).but(floor=0.0))
    _, pairs, _ = all_edges(graphs)
    chosen = np.sort(np.random.default_rng(1).choice(len(pairs), size=min(30, len(pairs)), replace=False))
    pairs = np.ascontiguousarray(pairs[chosen])
    solved = solve_pairs(graphs, pairs, np.array([0, len(pairs)]), potentials=True)
    distances, measures = shortest_paths(graphs.lengths[0]), graphs.measures[0]
    assert solved.potentials is not None
    values = np.flatnonzero(solved.status == Status.SOLVED)
    assert len(values) > 0
    for e in values:
        p = solved.potentials[e]
        difference = measures[pairs[e, 0]] - measures[pairs[e, 1]]
        moved = math.fsum(np.maximum(difference, 0.0))
        beyond = max(0.0, float((p[:, None] - p - distances).max()))  # how far p is from feasible
        proved = math.fsum(difference * (p - p[pairs[e, 0]])) - beyond * moved
        scale = max(solved.w1[e], solved.denominator[e])
        assert solved.w1[e] - proved <= solved.gap[e] * scale + 1e-15 * distances.max()
        assert solved.gap[e] <= 1e-11


@pytest.mark.parametrize("n", [65, 197, 257])
def test_the_gap_of_a_plain_map_is_rounding(n):
    graphs = build_graphs(attention("flat", n)[None], Convention.of("grc-0.6"))
    _, pairs, _ = all_edges(graphs)
    some = np.ascontiguousarray(pairs[:: len(pairs) // 200])
    gap = solve_pairs(graphs, some, np.array([0, len(some)])).gap
    assert gap.max() < n * 1e-15


def test_a_small_w1_is_proved_to_its_own_size():
    """Sharp maps under grc-0.6: W1 is 1e-11, where an absolute tolerance of 1e-12 would show."""
    n = 300
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, n, 64))
    logits = 4 * q @ k.T / 8
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    graphs = build_graphs((weights / weights.sum(axis=1, keepdims=True))[None], Convention.of("grc-0.6").but(floor=0.0))
    _, pairs, _ = all_edges(graphs)
    pairs = np.ascontiguousarray(pairs[np.argsort(graphs.lengths[0][tuple(pairs.T)])[:40]])  # the shortest edges
    solved = solve_pairs(graphs, pairs, np.array([0, len(pairs)]), potentials=True)
    assert (solved.status == Status.SOLVED).all()
    assert solved.potentials is not None
    lengths = graphs.lengths[0].astype(np.longdouble)
    for e, (x, y) in enumerate(pairs):
        p = solved.potentials[e].astype(np.longdouble)
        difference = graphs.measures[0, x].astype(np.longdouble) - graphs.measures[0, y]
        beyond = max(0.0, float((p[:, None] - p - lengths).max()))
        lower = float((difference * (p - p[x])).sum()) - beyond * n  # n edges at most, a mass of one
        assert solved.w1[e] < 1e-4
        assert abs(solved.w1[e] - lower) <= 1e-9 * solved.w1[e]
