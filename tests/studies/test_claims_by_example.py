"""Claims that an example decides: Figure 2, assumption A4, the Ricci flow, and the direction of Lemma 4.2."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

import geoattn as ga


def curvature(graph: nx.Graph) -> np.ndarray:
    """Ollivier-Ricci curvature of all edges, of the walk without laziness, by linear programs of its own."""
    from scipy.optimize import linprog

    distance = dict(nx.all_pairs_shortest_path_length(graph))
    found = []
    for u, v in graph.edges:
        left, right = list(graph[u]), list(graph[v])
        cost = np.array([[distance[a][b] for b in right] for a in left], dtype=float)
        rows = np.kron(np.eye(len(left)), np.ones(len(right)))
        columns = np.kron(np.ones(len(left)), np.eye(len(right)))
        mass = np.r_[np.full(len(left), 1 / len(left)), np.full(len(right), 1 / len(right))]
        found.append(1 - linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=mass).fun)
    return np.array(found)


def test_figure_2_tree_grid_and_complete_graph() -> None:
    """R4: inside a tree curvature is negative, in a grid 0, in a complete graph positive."""
    tree = nx.random_regular_graph(3, 200, seed=1)  # a tree near most of its edges
    assert np.median(curvature(tree)) < -0.5
    assert curvature(nx.grid_2d_graph(7, 7, periodic=True)) == pytest.approx(0, abs=1e-9)
    assert curvature(nx.complete_graph(8)).min() > 0.5


def test_assumption_a4_needs_symmetric_attention() -> None:
    """R14: I + H x A diagonal in one orthogonal basis makes A symmetric; attention of a trained model is not."""
    model = ga.load_model("lvit-digits").eval()
    data = ga.load_data("digits", split="test")
    with torch.no_grad(), ga.capture(model) as record:
        model(data.pixels()[:8])
    for call in record:
        maps = call.attention()
        asymmetry = (maps - maps.mT).flatten(-2).norm(dim=-1) / maps.flatten(-2).norm(dim=-1)
        assert float(asymmetry.mean()) > 0.3


def test_ricci_flow_flattens_a_graph() -> None:
    """R44: two cliques joined by a bridge: the flow makes the curvature of its edges more alike."""
    graph = nx.barbell_graph(5, 0)
    lengths = nx.to_numpy_array(graph)
    before, after = (ga.ricci_flow(lengths, "grc-0.5", iterations=k, step=0.3).kappa for k in (1, 30))
    assert np.nanstd(after) < np.nanstd(before)
    assert np.nanmin(after) > np.nanmin(before)


def test_lemma_4_2_favours_higher_curvature() -> None:
    """R45: by Bauer, Jost and Liu 1 - lambda_1 <= 2 - k, with k the smallest curvature: the bound falls as k rises.

    A smaller bound on 1 - lambda_1 is a larger one on lambda_1, the smallest eigenvalue of attention, which is what
    Lemma 4.2 wants. The experiments of the paper say that lower curvature trains faster.
    """
    for graph in (nx.complete_graph(6), nx.cycle_graph(6), nx.petersen_graph(), nx.grid_2d_graph(4, 4, periodic=True)):
        walk = nx.to_numpy_array(graph)
        walk /= walk.sum(1, keepdims=True)
        smallest = np.linalg.eigvals(walk).real.min()
        assert 1 - smallest <= 2 - curvature(graph).min() + 1e-9
