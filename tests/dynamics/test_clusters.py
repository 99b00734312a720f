"""Clusters and observables."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoattn._core.errors import GeoattnError
from geoattn.dynamics import clusters, observables
from geoattn.dynamics.clusters import cluster_centres, cluster_count, cluster_labels
from geoattn.dynamics.observables import cosine_histogram, nematic, polarisation
from geoattn.dynamics.starts import equiangular_tokens, ring_tokens, uniform_tokens


def groups(sizes: list[int], spread: float, seed: int = 0) -> torch.Tensor:
    centres = torch.eye(len(sizes), dtype=torch.float64)
    draw = torch.Generator().manual_seed(seed)
    x = torch.cat(
        [c + spread * torch.randn(k, len(sizes), generator=draw).double() for c, k in zip(centres, sizes, strict=True)]
    )
    return x / x.norm(dim=-1, keepdim=True)


def test_groups_are_found_in_order():
    x = groups([3, 1, 4], 1e-3)
    assert cluster_labels(x).tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert cluster_labels(x.flip(0)).tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    batch = torch.stack([x, uniform_tokens(8, 3), x.flip(0)])
    assert cluster_count(batch).tolist() == [3, 8, 3]


def test_chains_join():
    """Single linkage: a fine ring is one cluster although its ends are far apart."""
    assert int(cluster_count(ring_tokens(200), 1e-3)) == 1
    assert int(cluster_count(ring_tokens(100), 1e-3)) == 100
    assert int(cluster_count(ring_tokens(4), 0.0)) == 4


@pytest.mark.parametrize("spread", [1e-3, 0.02])
def test_large_runs_are_found_like_small_ones(spread, monkeypatch):
    x = groups([300, 200, 7], spread)
    small = cluster_labels(x)
    monkeypatch.setattr(clusters, "_DENSE", 10)
    monkeypatch.setattr(clusters, "_BLOCK", 50)
    assert torch.equal(cluster_labels(x), small)


def test_centres_and_masses():
    x = groups([3, 1, 4], 1e-3)
    centres, masses = cluster_centres(x)
    assert masses.tolist() == [3 / 8, 1 / 8, 4 / 8]
    torch.testing.assert_close(centres, torch.eye(3, dtype=torch.float64), rtol=0, atol=3e-3)
    torch.testing.assert_close(centres[1], x[3], rtol=0, atol=1e-15)
    with pytest.raises(GeoattnError, match="one run"):
        cluster_centres(x[None])


def test_bad_delta():
    with pytest.raises(GeoattnError, match="delta"):
        cluster_count(torch.eye(3), -1.0)


def test_histogram():
    x = equiangular_tokens(5, 0.3)
    shares = cosine_histogram(x, 10)
    assert int(shares.argmax()) == 6
    assert float(shares.max()) == 1.0
    flat = cosine_histogram(uniform_tokens(400, 3, runs=2, seed=1), 20)  # on the 2-sphere cosines are uniform
    assert flat.shape == (2, 20)
    np.testing.assert_allclose(flat, 1 / 20, atol=0.006)
    np.testing.assert_allclose(flat.sum(-1), 1.0)


def test_histogram_of_a_sample_of_pairs(monkeypatch):
    x = uniform_tokens(500, 3, seed=2)
    full = cosine_histogram(x, 10)
    monkeypatch.setattr(observables, "_MOST_PAIRS", 50_000)
    np.testing.assert_allclose(cosine_histogram(x, 10), full, atol=0.01)
    assert torch.equal(cosine_histogram(x, 10, seed=3), cosine_histogram(x, 10, seed=3))


def test_order_parameters():
    pair = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert float(polarisation(pair)) == 0.0
    assert float(nematic(pair)) == 1.0
    assert float(nematic(ring_tokens(10))) == pytest.approx(0.5)
    assert float(polarisation(equiangular_tokens(4, 0.25))) == pytest.approx(math.sqrt((1 + 3 * 0.25) / 4))
