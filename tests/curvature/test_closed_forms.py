"""Curvatures known in closed form: on well-known graphs, as limits, and through both ways to compute them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn import Convention
from tests.curvature.references.exact import problem

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
    return {(u, v): float(result.kappa[order[u], order[v]]) for u, v in graph.edges}


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
    """Centre c with k leaves, edge to leaf x: m_x = alpha at x, the rest at c; m_c = alpha at c, (1 - alpha)/k at each leaf.

    The k - 1 other leaves take (1 - alpha)(k - 1)/k over distances of 1 from the centre; x gives up or takes the
    difference of alpha and (1 - alpha)/k.
    """
    share = (1 - alpha) / leaves
    w1 = (leaves - 1) * share + abs(alpha - share)
    np.testing.assert_allclose(values(nx.star_graph(leaves), alpha), 1 - w1, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [3, 4, 8, 50, 300])
def test_path(n, alpha):
    """Flat inside. At an end x (degree 1) with neighbour y: the flow over xy is |1/2 (1-alpha) - alpha|, over the next edge half."""
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


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("sides", [(3, 3), (2, 5), (20, 20)])
def test_complete_bipartite(sides, alpha):
    """K_{a,b}, x in the side of a tokens: m_x is uniform on the b others and the reverse; all cross distances are 1."""
    a, b = sides
    at_x, at_y = (1 - alpha) / a, (1 - alpha) / b  # mass of m_y on each node of x's side, of m_x on y's side
    # each side's surplus crosses once; what the point masses alpha save is on x and y themselves
    flow = abs(alpha - at_x) + (a - 1) * at_x
    back = abs(alpha - at_y) + (b - 1) * at_y
    crossing = 1 - 2 * alpha  # net mass from y's side to x's
    w1 = (
        (flow + back) / 2
        if alpha == 0
        else problem(nx.to_numpy_array(nx.complete_bipartite_graph(a, b)), WALK.but(alpha=alpha)).distances[0, a]
        - values(nx.complete_bipartite_graph(a, b), alpha)[0]
    )
    if alpha == 0:
        assert crossing == 1
        np.testing.assert_allclose(values(nx.complete_bipartite_graph(a, b), alpha), 1 - w1, **CLOSE)
