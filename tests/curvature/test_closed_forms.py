"""Curvatures known in closed form: on well-known graphs, as limits, and through both ways to compute them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn import Convention
from geoattn.curvature import Status
from geoattn.curvature.complete import all_hops_one
from geoattn.curvature.transport import all_edges, solve_pairs
from geoattn.graph.build import build_graphs
from tests.curvature.references.exact import problem
from tests.graphs import draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.75, 0.9)
WALK = Convention(length="hop", measure="uniform")
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def values(graph: nx.Graph, alpha: float | str, **changes: object) -> np.ndarray:
    """Curvatures of the simple random walk with laziness alpha, edge by edge in the order of the nodes."""
    return ga.ollivier_ricci(graph, WALK.but(alpha=alpha, **changes)).values()


def by_edge(graph: nx.Graph, alpha: float | str) -> dict[tuple, float]:
    result = ga.ollivier_ricci(graph, WALK.but(alpha=alpha))
    order = {node: k for k, node in enumerate(graph.nodes)}
    kappa = {frozenset(pair): value for pair, value in zip(result.index.tolist(), result.kappa.tolist(), strict=True)}
    return {(u, v): kappa[frozenset((order[u], order[v]))] for u, v in graph.edges}


# ---- graphs


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 3, 5, 10, 65])
def test_complete(n, alpha):
    """The measures differ in |alpha - (1 - alpha)/(n - 1)|, over a distance of 1."""
    expected = 1 - abs(alpha - (1 - alpha) / (n - 1))
    np.testing.assert_allclose(values(nx.complete_graph(n), alpha), expected, **CLOSE)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [6, 7, 12, 101, 300])
def test_long_cycle_is_flat(n, alpha):
    np.testing.assert_allclose(values(nx.cycle_graph(n), alpha), 0, **CLOSE)


@pytest.mark.parametrize("alpha", [1 / 3, 0.5, 0.75, 0.9])
@pytest.mark.parametrize(("n", "flat"), [(3, 3 / 2), (4, 1), (5, 1 / 2)])
def test_short_cycle(n, flat, alpha):
    """From alpha = 1/3 on kappa is (1 - alpha) times the Lin-Lu-Yau curvature on a graph of degree 2."""
    np.testing.assert_allclose(values(nx.cycle_graph(n), alpha), (1 - alpha) * flat, **CLOSE)


def test_short_cycle_without_laziness():
    np.testing.assert_allclose(values(nx.cycle_graph(3), 0.0), 1 / 2, **CLOSE)
    np.testing.assert_allclose(values(nx.cycle_graph(4), 0.0), 0, **CLOSE)
    np.testing.assert_allclose(values(nx.cycle_graph(5), 0.0), 0, **CLOSE)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("leaves", [2, 3, 6, 20, 200])
def test_star(leaves, alpha):
    """Centre c with k leaves, edge to leaf x.

    m_x = alpha at x, the rest at c; m_c = alpha at c, (1 - alpha)/k at each leaf.

    The k - 1 other leaves take (1 - alpha)(k - 1)/k over distances of 1 from the centre; x gives up or takes the
    difference of alpha and (1 - alpha)/k.
    """
    share = (1 - alpha) / leaves
    w1 = (leaves - 1) * share + abs(alpha - share)
    np.testing.assert_allclose(values(nx.star_graph(leaves), alpha), 1 - w1, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [3, 4, 8, 50, 300])
def test_path(n, alpha):
    """Flat inside. At the end the flow over the edge is |(1 - alpha)/2 - alpha|, over the next one (1 - alpha)/2."""
    kappa = by_edge(nx.path_graph(n), alpha)
    ends = 1 - (abs((1 - alpha) / 2 - alpha) + (1 - alpha) / 2)
    for (u, v), value in kappa.items():
        expected = ends if u == 0 or v == n - 1 else 0.0
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12), (u, v)


@pytest.mark.parametrize("alpha", [*ALPHAS])
@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 6, 8])
def test_hypercube(dimension, alpha):
    """Mass moves along the matching of neighbours; only the pair itself may do better."""
    expected = 1 - ((dimension - 1) * (1 - alpha) / dimension + abs(alpha - (1 - alpha) / dimension))
    np.testing.assert_allclose(values(nx.hypercube_graph(dimension), alpha), expected, **CLOSE)


@pytest.mark.parametrize("alpha", [0.5, 0.75, "limit"])
def test_trees(alpha):
    """kappa_LLY(x, y) = 2/d_x + 2/d_y - 2 on trees; from alpha = 1/2 on kappa is (1 - alpha) times it."""
    factor = 1.0 if alpha == "limit" else 1 - alpha
    for seed in range(10):
        graph = nx.random_labeled_tree(30, seed=seed)
        for (u, v), value in by_edge(graph, alpha).items():
            expected = factor * (2 / graph.degree[u] + 2 / graph.degree[v] - 2)
            assert value == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_grids_and_tori_are_flat(alpha):
    torus = nx.grid_2d_graph(7, 9, periodic=True)
    np.testing.assert_allclose(values(torus, alpha), 0, **CLOSE)
    for (u, v), value in by_edge(nx.grid_2d_graph(8, 8), alpha).items():
        if all(2 <= k <= 5 for k in (*u, *v)):  # away from the border
            assert value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("side", [2, 3, 8, 40])
def test_complete_bipartite(side):
    """K_{a,a}: all of m_x lies one step from all of m_y; from alpha = 1/(a + 1) on (1 - alpha) 2/a."""
    graph = nx.complete_bipartite_graph(side, side)
    np.testing.assert_allclose(values(graph, 0.0), 0, **CLOSE)
    for alpha in (0.5, 0.9):
        np.testing.assert_allclose(values(graph, alpha), (1 - alpha) * 2 / side, rtol=1e-11)


def test_petersen():
    """Cubic, no triangles, no squares: -1/3 without laziness, Lin-Lu-Yau curvature 0."""
    np.testing.assert_allclose(values(nx.petersen_graph(), 0.0), -1 / 3, **CLOSE)
    np.testing.assert_allclose(values(nx.petersen_graph(), "limit"), 0, **CLOSE)


# ---- the limit of Lin, Lu and Yau


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        *((nx.complete_graph(n), n / (n - 1)) for n in (2, 3, 5, 9, 40)),
        (nx.cycle_graph(4), 1.0),
        (nx.cycle_graph(5), 0.5),
        *((nx.cycle_graph(n), 0.0) for n in (6, 7, 12, 301)),
        *((nx.hypercube_graph(d), 2 / d) for d in (2, 3, 4, 5, 8)),
        (nx.star_graph(1), 2.0),
        *((nx.star_graph(k), 2 / k) for k in (2, 5, 100)),
        (nx.octahedral_graph(), 1.0),  # degree 4, two triangles on an edge: (2 + 2) / 4
    ],
    ids=str,
)
def test_limit_of_transitive_graphs(graph, expected):
    np.testing.assert_allclose(values(graph, "limit"), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "family", ["softmax-0.3", "softmax-3", "ties", "mutual", "with_zeros", "causal", "duplicates", "tree"]
)
@pytest.mark.parametrize(
    "convention",
    [
        Convention(),
        Convention(length="hop"),
        Convention(length="w", measure="exponential"),
        Convention(direction="directed"),
    ],
    ids=lambda c: c.name,
)
def test_limit_is_that_of_lazier_and_lazier_walks(family, convention):
    """kappa_alpha / (1 - alpha) no longer changes close to alpha = 1; the reference computes it without rounding."""
    for attention in draw(family, 6, 4):
        limit = ga.ollivier_ricci(attention, convention.but(alpha="limit"))
        graph = problem(attention, convention.but(alpha=0.96875))  # 31/32: exact in binary
        for x, y in graph.pairs():
            reference, status = graph.kappa(x, y, "exact")
            assert Status(int(limit.status[x, y])).name.lower() == status
            assert limit.kappa[x, y] == pytest.approx(reference * 32, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.6"])
def test_limit_against_large_alpha(preset):
    attention = draw("softmax-1", 12, 3)
    convention = Convention.of(preset)
    limit = ga.ollivier_ricci(attention, convention.but(alpha="limit")).values()
    for alpha, close in ((0.9, 1e-12), (0.999, 1e-10)):
        lazy = ga.ollivier_ricci(attention, convention.but(alpha=alpha)).values() / (1 - alpha)
        np.testing.assert_allclose(lazy, limit, rtol=close, atol=close)


def test_limit_may_exceed_one():
    assert values(nx.complete_graph(3), "limit") == pytest.approx([1.5] * 3)


# ---- hop on complete graphs


FULL = ["softmax-0.1", "softmax-3", "softmax-30", "uniform", "equal_rows", "ties", "wide_rows", "sink", "selfish"]


@pytest.mark.parametrize("n", [2, 3, 17, 48, 65])
@pytest.mark.parametrize("family", FULL)
def test_hop_on_a_complete_graph_is_one_minus_total_variation(family, n):
    """By the closed form, and by the general kernel on the same graphs."""
    batch = draw(family, n, 2)
    expected = 1 - np.abs(batch[:, :, None] - batch[:, None]).sum(-1) / 2
    expected[:, np.arange(n), np.arange(n)] = np.nan
    result = ga.ollivier_ricci(batch, "hop")
    np.testing.assert_allclose(result.kappa, expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(result.distance[np.isfinite(expected)], 1)

    graphs = build_graphs(batch, Convention.of("hop"))
    assert all_hops_one(graphs)
    solved = solve_pairs(graphs, *all_edges(graphs)[1:])
    g, x, y = np.nonzero(graphs.edges)
    np.testing.assert_allclose(solved.kappa, expected[g, x, y], rtol=1e-13, atol=1e-14)
    assert solved.gap.max() < 1e-12


@pytest.mark.parametrize(
    "weights",
    [
        draw("block_diagonal", 6, 1)[0],  # two cliques: not one
        draw("with_zeros", 6, 1)[0],
        draw("few", 6, 1)[0],
        np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]),
    ],
)
def test_closed_form_is_not_used_where_it_does_not_hold(weights):
    assert not all_hops_one(build_graphs(weights[None], Convention.of("hop")))


def test_closed_form_with_tokens_that_see_only_themselves():
    """A clique and isolated tokens: still one hop between all that have an edge."""
    attention = np.eye(6)
    attention[:4, :4] = draw("softmax-1", 4, 1)[0]
    result = ga.ollivier_ricci(attention, "hop")
    np.testing.assert_array_equal(result.kappa[:4, :4], ga.ollivier_ricci(attention[:4, :4], "hop").kappa)
    assert np.isnan(result.kappa[4:]).all()


# ---- two tokens, by hand


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.5", "grc-0.6"])
def test_two_tokens(preset):
    """m_x and m_y differ in |a - b| of mass over the whole distance; grc moves nothing at alpha = 1/2."""
    a, b = 0.7, 0.1  # weight of token 0 in the rows of 0 and 1
    result = ga.ollivier_ricci(np.array([[a, 1 - a], [b, 1 - b]]), preset)
    expected = 1.0 if preset.startswith("grc") else 1 - abs(a - b)
    assert result.kappa[0, 1] == pytest.approx(expected, rel=1e-14)


def test_three_tokens_by_hand():
    """-log w: S01 = 0.5, S12 = 0.25, S02 = 0.0625 (longer than the way over 1, 0.125): d = log 2 (1, 2, 3)."""
    s01, s12, s02 = 0.5, 0.25, 0.0625
    attention = np.array([[1 - s01 - s02, s01, s02], [s01, 1 - s01 - s12, s12], [s02, s12, 1 - s02 - s12]])
    result = ga.ollivier_ricci(attention, "markov")
    np.testing.assert_allclose(result.distance[[0, 1, 0], [1, 2, 2]] / np.log(2), [1, 2, 3], rtol=1e-14)
    # a path 0 - 1 - 2: the flow over an edge is the mass on one side of it
    flow01 = attention[:, 0]
    flow12 = attention[:, 2]
    for x, y, length in ((0, 1, 1), (1, 2, 2), (0, 2, 3)):
        w1 = abs(flow01[x] - flow01[y]) * 1 + abs(flow12[x] - flow12[y]) * 2
        assert result.kappa[x, y] == pytest.approx(1 - w1 / length, rel=1e-13)
