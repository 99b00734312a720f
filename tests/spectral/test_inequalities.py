"""Theorems are never violated; sharp cases are reached; what is no theorem fails where it is known to."""

from __future__ import annotations

import numpy as np
import pytest

import geoattn as ga
from geoattn.spectral.inequalities import assumed_bound, contraction_bound, neighbourhood_bound, smallest_curvature
from tests.graphs import draw

FAMILIES = ["softmax-0.3", "softmax-1", "softmax-3", "ties", "duplicates", "with_zeros", "mutual"]


def metrics(n: int, seed: int) -> list:
    points = np.random.default_rng(seed).standard_normal((n, 3))
    euclidean = np.linalg.norm(points[:, None] - points, axis=-1)
    return ["hop", "-log w", (euclidean + euclidean.T) / 2]


@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_eigenvalue_beyond_the_contraction(family: str, count: int) -> None:
    """With seven families and three metrics the slow size makes more than 10,000 maps."""
    theorems = 0
    for seed, a in enumerate(draw(family, 6, count)):
        for metric in metrics(6, seed):
            bound = contraction_bound(a, metric, alpha=[0.0, 0.5][seed % 2])
            if bound.theorem:
                theorems += 1
                assert bound.holds, str(bound)
    assert theorems >= count


@pytest.mark.parametrize("t", [1, 2, 3, 4])
@pytest.mark.parametrize("family", ["softmax-1", "softmax-3", "with_zeros", "causal"])
def test_bauer_jost_liu(family: str, t: int) -> None:
    seen = 0
    for a in draw(family, 7, 12):
        w = (a + a.T) / 2
        for bound in neighbourhood_bound(w, t):
            if bound.theorem:
                seen += 1
                assert bound.holds, str(bound)
    assert seen


@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_bipartite_graphs_have_no_even_neighbourhoods(t: int) -> None:
    path = np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1)
    for bound in neighbourhood_bound(path, t):
        assert bound.theorem == bool(t % 2)
        assert bound.holds or not bound.theorem


@pytest.mark.parametrize("n", [3, 6, 15])
def test_complete_graphs_are_sharp(n: int) -> None:
    """K_n: k = (n - 2)/(n - 1), all other eigenvalues of the Laplacian n/(n - 1) = 2 - k."""
    low, high = neighbourhood_bound(np.ones((n, n)) - np.eye(n))
    assert low.left == pytest.approx((n - 2) / (n - 1))
    assert high.left == pytest.approx(n / (n - 1))
    assert high.slack == pytest.approx(0, abs=1e-9)
    bound = contraction_bound((np.ones((n, n)) - np.eye(n)) / (n - 1))
    assert bound.slack == pytest.approx(0, abs=1e-9)


def test_two_states_are_sharp_for_any_metric() -> None:
    a = np.array([[0.7, 0.3], [0.4, 0.6]])
    for metric in ("hop", "-log w", np.array([[0.0, 5.0], [5.0, 0.0]])):
        bound = contraction_bound(a, metric)
        assert bound.left == pytest.approx(0.3)
        assert bound.slack == pytest.approx(0, abs=1e-9)


def test_curvature_of_any_metric_against_the_engine() -> None:
    a = draw("softmax-1", 8, 1)[0]
    hop = 1 - np.eye(8)
    assert smallest_curvature(a, hop) == pytest.approx(ga.ollivier_ricci(a, "hop").values().min(), rel=1e-12)


def test_a_pair_at_distance_zero_is_no_theorem() -> None:
    a = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4]])
    d = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    bound = contraction_bound(a, d)
    assert bound.missing == ("two tokens are at distance 0",)
    assert "no theorem here" in str(bound)


def test_what_is_no_metric_is_named() -> None:
    a = draw("softmax-1", 3, 1)[0]
    assert contraction_bound(a, np.array([[0, 1, 5], [1, 0, 1], [5, 1, 0.0]])).missing == (
        "the triangle inequality fails",
    )
    assert contraction_bound(a, np.array([[0, 1, 1], [2, 0, 1], [1, 1, 0.0]])).missing == (
        "not symmetric with a zero diagonal",
    )


def test_the_convention_of_the_paper_violates_what_it_assumes() -> None:
    """Two clusters that hardly see each other: the chain mixes slowly, and GraphRicciCurvature does not notice."""
    rng = np.random.default_rng(0)
    logits = 0.3 * rng.standard_normal((12, 12))
    same = np.arange(12)[:, None] // 6 == np.arange(12) // 6
    weights = np.exp(logits + 4.0 * same)
    a = weights / weights.sum(-1, keepdims=True)
    assumed = assumed_bound(a, "grc-0.5")
    assert not assumed.holds
    assert not assumed.theorem
    proved = assumed_bound(a, "hop")
    assert proved.holds
    assert proved.theorem


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: contraction_bound(np.eye(3)[None].repeat(2, 0)), "one map at a time"),
        (lambda: contraction_bound(np.eye(3), "euclid"), "metric must be"),
        (lambda: contraction_bound(np.eye(3), np.zeros((2, 2))), r"shape \(3, 3\)"),
        (lambda: contraction_bound(np.eye(3), alpha=1.0), "alpha"),
        (lambda: neighbourhood_bound(np.zeros((3, 3))), "no edge and no loop"),
        (lambda: neighbourhood_bound(np.ones((2, 3))), "shape"),
        (lambda: neighbourhood_bound(-np.ones((3, 3))), "not negative"),
        (lambda: neighbourhood_bound(np.ones((3, 3)), 0), "t must be"),
    ],
)
def test_bad_input(call, words: str) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        call()
