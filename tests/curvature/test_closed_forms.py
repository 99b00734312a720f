"""Graphs whose curvature is known: through the closed form, the general kernel and the Lin-Lu-Yau limit."""

import networkx as nx
import numpy as np
import pytest

import geoattn as ga
from geoattn.curvature.transport import pairs_of, solve_pairs
from geoattn.graph.build import build_graphs

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

LIN_LU_YAU = ga.Convention(length="hop", measure="uniform", alpha="limit")


def edge_values(graph: nx.Graph, convention: ga.Convention) -> dict[tuple[int, int], float]:
    kappa = ga.ollivier_ricci(graph, convention).kappa
    place = {v: k for k, v in enumerate(graph.nodes)}
    return {(u, v): kappa[place[u], place[v]] for u, v in graph.edges}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        *((nx.complete_graph(n), n / (n - 1)) for n in (2, 3, 5, 9)),
        (nx.cycle_graph(4), 1.0),
        (nx.cycle_graph(5), 0.5),
        *((nx.cycle_graph(n), 0.0) for n in (6, 7, 12)),
        *((nx.hypercube_graph(d), 2 / d) for d in (2, 3, 4, 5)),
    ],
)
def test_lin_lu_yau_of_transitive_graphs(graph: nx.Graph, expected: float) -> None:
    values = list(edge_values(graph, LIN_LU_YAU).values())
    np.testing.assert_allclose(values, expected, atol=1e-13)


@pytest.mark.parametrize("tree", [nx.star_graph(6), nx.path_graph(7), nx.balanced_tree(3, 3), nx.random_labeled_tree(25, seed=3)])
def test_lin_lu_yau_of_trees(tree: nx.Graph) -> None:
    for (u, v), kappa in edge_values(tree, LIN_LU_YAU).items():
        assert kappa == pytest.approx(2 / tree.degree[u] + 2 / tree.degree[v] - 2, abs=1e-13)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_lazy_walk_on_the_complete_graph(alpha: float, n: int) -> None:
    # the two measures differ by |alpha - (1 - alpha) / (n - 1)| on the two nodes themselves
    expected = 1 - abs(alpha - (1 - alpha) / (n - 1))
    convention = ga.Convention(length="hop", measure="uniform", alpha=alpha)
    np.testing.assert_allclose(list(edge_values(nx.complete_graph(n), convention).values()), expected, atol=1e-14)


def test_star_and_path_without_laziness() -> None:
    simple = ga.Convention(length="hop", measure="uniform")
    assert list(edge_values(nx.star_graph(5), simple).values()) == pytest.approx([0.0] * 5)
    assert list(edge_values(nx.path_graph(5), simple).values()) == pytest.approx([0.0] * 4)


@pytest.mark.parametrize("n", [2, 5, 17, 40])
def test_hop_on_a_complete_graph_is_one_minus_total_variation(n: int) -> None:
    attention = np.random.default_rng(n).dirichlet(np.ones(n), size=n)
    expected = 1 - np.abs(attention[:, None] - attention[None]).sum(-1) / 2
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_allclose(ga.ollivier_ricci(attention, "hop").kappa, expected, atol=1e-14)
    graphs = build_graphs(attention[None], ga.Convention.of("hop"))  # the same through the general kernel
    solved = solve_pairs(graphs, *pairs_of(graphs.edges))
    np.testing.assert_allclose(solved.kappa, expected[np.triu_indices(n, 1)], atol=1e-14)
    assert solved.gap.max() < 1e-13


def test_the_limit_is_reached_by_lazy_walks() -> None:
    attention = np.random.default_rng(0).dirichlet(np.ones(9), size=9)
    limit = ga.ollivier_ricci(attention, ga.Convention.of("markov").but(alpha="limit")).values()
    lazy = ga.ollivier_ricci(attention, ga.Convention.of("markov").but(alpha=0.999)).values() / 0.001
    np.testing.assert_allclose(lazy, limit, rtol=1e-9, atol=1e-9)
