"""Eigenvalues: closed forms, references, sizes, masks, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

import geoattn as ga
from geoattn.spectral import eigenvalues
from geoattn.spectral.contraction import dobrushin_coefficient
from tests.graphs import draw


def softmax(shape: tuple[int, ...], scale: float = 1.0, seed: int = 0) -> np.ndarray:
    weights = np.exp(scale * np.random.default_rng(seed).standard_normal(shape))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_complete_graphs(n: int) -> None:
    loopless = (np.ones((n, n)) - np.eye(n)) / (n - 1)
    result = ga.spectrum(loopless)
    np.testing.assert_allclose(result.eigenvalues, [1] + [-1 / (n - 1)] * (n - 1), atol=1e-12)
    assert result.reversible
    assert result.dobrushin == pytest.approx(1 / (n - 1))
    np.testing.assert_allclose(result.laplacian[1:], n / (n - 1), atol=1e-12)


def test_cycles() -> None:
    n = 12
    walk = (np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), -1, axis=1)) / 2
    found = np.sort(ga.spectrum(walk).eigenvalues.real)
    np.testing.assert_allclose(found, np.sort(np.cos(2 * np.pi * np.arange(n) / n)), atol=1e-7)
    turn = ga.spectrum(np.roll(np.eye(5), 1, axis=1))  # a rotation: roots of unity, no gap, as irreversible as can be
    np.testing.assert_allclose(np.sort(np.angle(turn.eigenvalues)), 2 * np.pi * np.arange(-2, 3) / 5, atol=1e-12)
    assert turn.gap == pytest.approx(0, abs=1e-12)
    assert turn.irreversibility == pytest.approx(1)
    assert turn.layers_to_halve > 1e12


@pytest.mark.parametrize("family", ["softmax-1", "softmax-3", "ties", "with_zeros", "duplicates", "one_hot"])
def test_against_numpy(family: str) -> None:
    attention = draw(family, 9, 20)
    result = ga.spectrum(attention)
    for a, found, trace_error in zip(attention, result.eigenvalues, result.residual, strict=True):
        expected = np.linalg.eigvals(a)
        assert np.abs(np.sort(np.abs(found)) - np.sort(np.abs(expected))).max() < 1e-6
        assert abs(found[0] - 1) < 1e-7
        assert (np.diff(np.abs(found[1:])) <= 1e-12).all()
        assert trace_error < 1e-12


def test_causal_maps_have_their_diagonal() -> None:
    attention = draw("causal", 12, 5)
    found = ga.spectrum(attention).eigenvalues
    for a, values in zip(attention, found, strict=True):
        np.testing.assert_allclose(np.sort(values.real), np.sort(np.diagonal(a)), rtol=1e-14)


def test_stationary_distribution() -> None:
    attention = softmax((4, 30, 30), 2.0)
    result = ga.spectrum(attention)
    np.testing.assert_allclose(np.einsum("gi,gij->gj", result.stationary, attention), result.stationary, atol=1e-14)
    np.testing.assert_allclose(result.stationary.sum(-1), 1)
    powers = np.linalg.matrix_power(attention[0], 400)
    np.testing.assert_allclose(powers, np.tile(result.stationary[0], (30, 1)), atol=1e-12)


def test_rate_of_oversmoothing_is_the_second_eigenvalue() -> None:
    a = softmax((1, 25, 25), 2.0, seed=3)[0]
    result = ga.spectrum(a)
    x = np.random.default_rng(0).standard_normal(25)
    spread = []
    for _ in range(60):
        x = a @ x
        spread.append(np.ptp(x))
    rate = (spread[59] / spread[29]) ** (1 / 30)
    assert rate == pytest.approx(float(result.second), rel=0.05)


def test_padding_is_not_in_the_chain() -> None:
    whole = softmax((2, 6, 6))
    padded = np.zeros((2, 8, 8))
    padded[:, :6, :6] = whole
    mask = np.arange(8) < 6
    result = ga.spectrum(padded, mask=np.tile(mask, (2, 1)))
    alone = ga.spectrum(whole)
    np.testing.assert_allclose(result.eigenvalues[:, :6], alone.eigenvalues, rtol=1e-12)
    assert np.isnan(result.eigenvalues[:, 6:]).all()
    assert not result.stationary[:, 6:].any()
    np.testing.assert_allclose(result.dobrushin, alone.dobrushin)


def test_the_first_of_a_large_map_are_those_of_all() -> None:
    a = softmax((300, 300), 3.0)
    some, everything = ga.spectrum(a, count=5), ga.spectrum(a)
    np.testing.assert_allclose(np.abs(some.eigenvalues), np.abs(everything.eigenvalues[:5]), rtol=1e-9)
    np.testing.assert_allclose(some.smallest_real, everything.eigenvalues.real.min(), rtol=1e-9)
    assert some.residual < 1e-10


def test_eigenvalues_that_arpack_does_not_find_come_from_lapack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvalues, "_RESTARTS", 1)
    a = softmax((200, 200), 0.1)  # a bulk of equal modulus around 0
    some, everything = ga.spectrum(a, count=20), ga.spectrum(a)
    np.testing.assert_allclose(np.abs(some.eigenvalues), np.abs(everything.eigenvalues[:20]), rtol=1e-9)
    np.testing.assert_allclose(some.smallest_real, everything.smallest_real, rtol=1e-9)


def test_the_stationary_measure_of_a_causal_chain() -> None:
    """The first token keeps what it has. With two tokens that keep it the general way finds a measure too."""
    causal = np.tril(softmax((40, 40), 2.0))
    causal /= causal.sum(-1, keepdims=True)
    np.testing.assert_array_equal(ga.spectrum(causal).stationary, np.eye(40)[0])
    causal[7] = np.eye(40)[7]
    pi = ga.spectrum(causal).stationary
    np.testing.assert_allclose(pi @ causal, pi, atol=1e-12)


@pytest.mark.parametrize("kind", ["flat", "sharp", "sink", "causal", "equal", "apart"])
@pytest.mark.parametrize("n", [2, 31, 300])
def test_the_dobrushin_coefficient_is_the_largest_distance(kind: str, n: int) -> None:
    a = softmax((n, n), {"flat": 0.1, "sharp": 8.0}.get(kind, 1.0))
    if kind == "sink":
        a[:, 0] += 2.0
    if kind == "causal":
        a = np.tril(a)
    if kind == "equal":
        a[:] = a[0]
    if kind == "apart":
        a = np.eye(n)
    a /= a.sum(-1, keepdims=True)
    assert dobrushin_coefficient(a) == pytest.approx(pdist(a, "cityblock").max() / 2, abs=1e-12)


def test_torch_half_precision_and_batches() -> None:
    attention = torch.from_numpy(softmax((2, 3, 5, 7, 7)))
    result = ga.spectrum(attention)
    assert result.eigenvalues.shape == (2, 3, 5, 7)
    assert len(result.to_pandas()) == 30
    half = ga.spectrum(attention.to(torch.bfloat16))
    np.testing.assert_allclose(half.second, result.second, atol=0.05)
    one = ga.spectrum(attention[0, 0, 0])
    assert one.gap.shape == ()
    assert len(one.to_pandas()) == 1


def test_threads_do_not_change_the_bits() -> None:
    attention = softmax((12, 20, 20))
    a, b = ga.spectrum(attention, threads=1), ga.spectrum(attention, threads=4)
    np.testing.assert_array_equal(a.eigenvalues, b.eigenvalues)


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        (np.full((3, 3), np.nan), "finite"),
        (-np.eye(3), "negative"),
        (np.ones((3, 3)), "sum to one"),
        (np.ones((2, 3)) / 3, "shape"),
        (np.zeros((0, 3, 3)), "empty"),
        (np.ones((1, 1)), "two tokens"),
        (np.eye(3, dtype=int), "float"),
        (np.eye(3, dtype=complex), "complex|float"),
    ],
)
def test_bad_input(attention: np.ndarray, words: str) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        ga.spectrum(attention)


def test_bad_count() -> None:
    with pytest.raises(ga.GeoattnError, match="count"):
        ga.spectrum(np.eye(3), count=0)
