"""The laws of conventions, for presets and for a user's own: ``check_convention(convention)``."""

from __future__ import annotations

import itertools
import json
import pickle
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geoattn as ga
from geoattn.curvature import Curvature, Status, edge_curvature
from geoattn.graph import build_graphs
from tests.graphs import draw

N = 6
CERTIFIED = 1e-9
#: Complete and sparse attention; rows sum to one.
MAPS = np.concatenate([draw("softmax-1", N, 2), draw("sparse_ties", N, 2)])


def check_convention(convention: ga.Convention) -> None:
    """All laws, on small maps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)  # of some conventions on some maps
        _describes_itself(convention)
        _heads_are_averaged_first(convention)
        each = convention.but(heads="each", name=convention.name)
        found = ga.ollivier_ricci(MAPS, each)
        _values_are_certified(each, found)
        _can_be_saved(each, found)
        _graphs_do_not_mix(each, found)
        _tokens_have_no_order(each, found)
        _padding_is_not_there(each)
        _weights_have_no_unit(each)
        _distances_are_not_above_lengths(each)
        _laziness_raises_curvature(each)
        _other_roads_agree(each, found)


def kappa_of(attention: Any, convention: ga.Convention, **options: Any) -> np.ndarray:
    return ga.ollivier_ricci(attention, convention, **options).kappa


def _describes_itself(convention: ga.Convention) -> None:
    record = json.loads(json.dumps(convention.as_dict()))
    assert ga.Convention(**record) == convention
    assert pickle.loads(pickle.dumps(convention)) == convention
    assert hash(convention.but(name=convention.name)) == hash(convention)
    assert convention.but(name=convention.name) == convention
    assert convention.name
    assert convention.name in repr(convention)
    sentence = convention.in_words()
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert convention.directed == (convention.direction == "directed")


def _heads_are_averaged_first(convention: ga.Convention) -> None:
    mean = convention.but(heads="mean")
    expected = kappa_of(MAPS.mean(0), convention.but(heads="each"))
    np.testing.assert_allclose(kappa_of(MAPS, mean), expected, rtol=0, atol=1e-9)


def _values_are_certified(convention: ga.Convention, found: Curvature) -> None:
    """Each value is 1 - W1 / D with a duality gap of at most 1e-9, and at most 1 unless it is the limit."""
    assert found.convention == convention
    status = found.column("status")
    allowed = {Status.SOLVED, Status.BELOW_FLOOR, Status.UNREACHABLE, Status.ZERO_DISTANCE}
    assert set(map(int, status)) <= {int(one) for one in allowed}
    solved = status == Status.SOLVED
    assert solved.any()
    kappa = found.column("kappa")
    assert (np.isfinite(kappa) == (solved | (status == Status.BELOW_FLOOR))).all()
    assert (found.column("gap")[solved] <= CERTIFIED).all()
    if convention.alpha != "limit":
        denominator = found.column("distance")
        if convention.denominator == "length":
            denominator = build_graphs(MAPS, convention).lengths[tuple(found.places().T)]
        expected = 1 - found.column("w1")[solved] / denominator[solved]
        np.testing.assert_allclose(kappa[solved], expected, rtol=1e-12, atol=1e-12)
        assert (kappa[solved] <= 1 + CERTIFIED).all()
        assert (found.column("w1")[solved] >= 0).all()
    assert (kappa[status == Status.BELOW_FLOOR] == 0).all()
    if not convention.directed:
        np.testing.assert_array_equal(found.kappa, found.kappa.swapaxes(-1, -2))


def _can_be_saved(convention: ga.Convention, found: Curvature) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curvature.npz"
        found.save(path)
        again = Curvature.load(path)
    assert again.convention == convention
    for name in ("kappa", "w1", "distance", "gap", "status"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


def _graphs_do_not_mix(convention: ga.Convention, found: Curvature) -> None:
    for k, attention in enumerate(MAPS):
        np.testing.assert_allclose(kappa_of(attention, convention), found.kappa[k], rtol=0, atol=1e-12)


def _tokens_have_no_order(convention: ga.Convention, found: Curvature) -> None:
    order = np.random.default_rng(0).permutation(N)
    moved = kappa_of(MAPS[:, order][:, :, order], convention)
    np.testing.assert_allclose(moved, found.kappa[:, order][:, :, order], rtol=0, atol=1e-9)


def _padding_is_not_there(convention: ga.Convention) -> None:
    """Tokens that the mask leaves out change nothing, whatever their rows hold."""
    padded = np.zeros((len(MAPS), N + 2, N + 2))
    padded[:, :N, :N], padded[:, N:] = MAPS, 1 / (N + 2)
    mask = np.arange(N + 2) < N
    found = kappa_of(padded, convention, mask=mask)
    np.testing.assert_allclose(found[:, :N, :N], kappa_of(MAPS, convention), rtol=0, atol=1e-12)
    assert np.isnan(found[:, N:]).all()
    assert np.isnan(found[:, :, N:]).all()


def _weights_have_no_unit(convention: ga.Convention) -> None:
    """Lengths that are proportional to weights, or to their inverses, have a scale that cancels in W1 / D.

    Not where the measure depends on lengths (``exponential``) or is the row itself, which must sum to one.
    """
    linear = convention.length in ("w", "1/w") and convention.measure == "uniform"
    alone = convention.length == "hop" and convention.measure != "markov"
    if convention.floor == 0 and (linear or alone):
        for factor in (1e-3, 37.0):
            expected = kappa_of(MAPS, convention)
            np.testing.assert_allclose(kappa_of(factor * MAPS, convention), expected, rtol=0, atol=1e-9)


def _distances_are_not_above_lengths(convention: ga.Convention) -> None:
    """The distance of two neighbours is at most the length of their edge, so that its kappa is at most that of it."""
    if convention.alpha == "limit":
        return  # the constant that the limit adds is not divided by D
    by_distance, by_length = (
        kappa_of(MAPS, convention.but(denominator=name, floor=0.0)) for name in ("distance", "length")
    )
    both = np.isfinite(by_distance) & np.isfinite(by_length)
    assert (by_distance[both] <= by_length[both] + CERTIFIED).all()


def _laziness_raises_curvature(convention: ga.Convention) -> None:
    """kappa_a / (1 - a) does not fall in a, and tends to the Lin-Lu-Yau curvature: W1 is convex in the measures."""
    if convention.denominator != "distance":
        return
    plain = convention.but(floor=0.0)
    scaled = [kappa_of(MAPS, plain.but(alpha=a)) / (1 - a) for a in (0.0, 0.5, 0.9)]
    scaled.append(kappa_of(MAPS, plain.but(alpha="limit")))
    for less, more in itertools.pairwise(scaled):
        both = np.isfinite(less) & np.isfinite(more)
        assert both.any()
        assert (less[both] <= more[both] + 1e-7).all()


def _other_roads_agree(convention: ga.Convention, found: Curvature) -> None:
    """Bounds hold, and the differentiable values are the same ones."""
    lower, upper = ga.curvature_bounds(MAPS, convention).values()
    values = found.values()
    assert len(lower) == len(values)
    assert (lower <= values + CERTIFIED).all()
    assert (values <= upper + CERTIFIED).all()
    attention = torch.tensor(MAPS, requires_grad=True)
    kappa = edge_curvature(attention, convention)
    np.testing.assert_allclose(kappa.detach().numpy(), values, rtol=0, atol=1e-12)
    kappa.sum().backward()
    assert attention.grad is not None
    assert bool(torch.isfinite(attention.grad).all())
