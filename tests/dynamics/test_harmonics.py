"""Fourier sums on the circle against the sum itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import iv, spherical_in

from geoattn.dynamics import circle_harmonics as circle
from geoattn.dynamics.circle_harmonics import bessel_ratios, circle_sum, circle_terms
from geoattn.dynamics.sphere_harmonics import harmonics, sphere_sum
from geoattn.dynamics.starts import uniform_tokens


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("radius", [0.0, 1e-3, 1.0, 30.0, 400.0])
def test_sums_to_rounding(d, radius):
    total = circle_sum if d == 2 else sphere_sum
    x, y = uniform_tokens(50, d, seed=1), uniform_tokens(70, d, seed=2)
    uneven = torch.linspace(0, 1, 70).double()[:, None]  # a key of length zero is among them
    channels = torch.randn(70, 3, generator=torch.Generator().manual_seed(3)).double()
    for keys in (radius * y, radius * uneven * y):
        exact = torch.exp(x @ keys.T - radius) @ channels
        error = (total(x, keys, channels, radius) - exact).abs().max() / channels.abs().sum()
        assert error < 2e-16 * (1 + radius)


@pytest.mark.parametrize("block", [1 << 20, 30_000, 1])
def test_sums_side_by_side_in_any_blocks(block, monkeypatch):
    """Runs with radii of their own; keys along the tokens, which share their waves, along others, and of any length."""
    monkeypatch.setattr(circle, "_BLOCK", block)
    x, y = uniform_tokens(600, 2, runs=(2, 3), seed=1), uniform_tokens(600, 2, runs=(2, 3), seed=2)
    channels = torch.randn(2, 3, 600, 4, generator=torch.Generator().manual_seed(3)).double()
    radii = torch.tensor([[0.0, 1.0, 4.0], [9.0, 20.0, 25.0]], dtype=torch.float64)[..., None, None]
    uneven = torch.linspace(0, 1, 600).double()[:, None]
    for keys in (radii * x, -radii * x, radii * y, radii * uneven * y):
        exact = torch.exp(x @ keys.mT - 25.0) @ channels
        error = (circle_sum(x, keys, channels, 25.0) - exact).abs().amax() / channels.abs().sum(-2).amin()
        assert error < 2e-15


def test_ratios_are_those_of_scipy():
    r = np.array([1e-6, 0.3, 5.0, 40.0])
    k = np.arange(12)[:, None]
    np.testing.assert_allclose(bessel_ratios(torch.from_numpy(r), 12, 0.0), iv(k, r) / iv(0, r), rtol=1e-12)
    np.testing.assert_allclose(
        bessel_ratios(torch.from_numpy(r), 12, 0.5), spherical_in(k, r) / spherical_in(0, r), rtol=1e-12
    )


def test_terms_grow_like_the_root():
    assert circle_terms(0.0) == 2
    assert 80 < circle_terms(100.0) < 100
    assert 800 < circle_terms(10_000.0) < 1000
    with pytest.raises(ValueError, match="modes"):
        circle_sum(uniform_tokens(2, 2), uniform_tokens(2, 2), torch.ones(2, 1).double(), 1e8)


def test_harmonics_are_orthonormal():
    """Over Gauss-Legendre times equal angles, exact for these degrees; the poles among the points stay finite."""
    z, w = np.polynomial.legendre.leggauss(12)
    phi = 2 * np.pi * np.arange(24) / 24
    s = np.sqrt(1 - z**2)
    points = np.stack([np.outer(s, np.cos(phi)), np.outer(s, np.sin(phi)), np.outer(z, np.ones(24))], -1).reshape(-1, 3)
    weights = np.repeat(w * 2 * np.pi / 24, 24)
    rows = []
    for q, c, sine in harmonics(torch.from_numpy(points), 10):
        rows += [(q * c).numpy().copy(), (q * sine).numpy()[1:].copy()]
    table = np.concatenate(rows)
    np.testing.assert_allclose((table * weights) @ table.T, np.eye(100), atol=1e-13)
    poles = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    assert all(q.isfinite().all() for q, _, _ in harmonics(poles, 60))
