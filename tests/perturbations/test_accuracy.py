"""The drop in accuracy: equation 8, its interval, McNemar's test, and what a model predicts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

import geoattn as ga
from geoattn.perturbations.classifier_accuracy import accuracy, accuracy_drop, predictions


def drawn(n: int, broken: float, repaired: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    u = rng.random(n)
    clean = np.where(u < broken, True, np.where(u < broken + repaired, False, rng.random(n) < 0.8))
    return clean, np.where(u < broken, False, np.where(u < broken + repaired, True, clean))


def test_rho_is_the_difference_of_the_accuracies():
    clean, perturbed = drawn(500, 0.2, 0.05, 0)
    drop = accuracy_drop(clean, perturbed)
    assert drop.rho == pytest.approx(clean.mean() - perturbed.mean())
    assert (drop.clean, drop.perturbed, drop.n) == (clean.mean(), perturbed.mean(), 500)
    back = accuracy_drop(perturbed, clean)
    assert back.rho == pytest.approx(-drop.rho)
    assert (back.broken, back.repaired) == (drop.repaired, drop.broken)
    assert back.p_value == pytest.approx(drop.p_value)


def test_the_interval_is_that_of_resampled_pairs():
    """Against resampling the samples themselves, one by one."""
    clean, perturbed = drawn(300, 0.2, 0.1, 1)
    drop = accuracy_drop(clean, perturbed, resamples=20_000)
    rng = np.random.default_rng(9)
    index = rng.integers(0, 300, (20_000, 300))
    drops = clean[index].mean(1) - perturbed[index].mean(1)
    np.testing.assert_allclose([drop.low, drop.high], np.quantile(drops, [0.025, 0.975]), atol=0.0034)
    assert drop.method == "paired bootstrap"


def test_pairs_make_it_narrower_than_two_samples_would():
    clean, perturbed = drawn(1000, 0.05, 0.02, 2)
    drop = accuracy_drop(clean, perturbed)
    unpaired = 2 * 1.96 * np.sqrt((clean.var() + perturbed.var()) / 1000)
    assert drop.high - drop.low < 0.6 * unpaired


def test_the_interval_holds_the_truth_as_often_as_it_says():
    held = []
    for seed in range(400):
        drop = accuracy_drop(*drawn(200, 0.15, 0.07, seed), resamples=1000)
        held.append(drop.low <= 0.08 <= drop.high)
    assert 0.91 <= np.mean(held) <= 0.985


def test_mcnemar_is_the_binomial_tail():
    drop = accuracy_drop([True] * 9 + [False] * 2, [False] * 9 + [True] * 2)
    assert drop.p_value == pytest.approx(2 * binom.cdf(2, 11, 0.5))
    assert accuracy_drop([True, False], [True, False]).p_value == 1.0


@pytest.mark.parametrize(("clean", "perturbed", "low", "high"), [(1, 1, -1, 1), (1, 0, 0, 1), (0, 1, -1, 0)])
def test_agreement_has_an_honest_width(clean, perturbed, low, high):
    """Nothing changed in 59 samples: up to 5 % of all may change, with 95 % confidence (0.95^59 = 0.05)."""
    drop = accuracy_drop([bool(clean)] * 59, [bool(perturbed)] * 59)
    assert drop.method == "exact, all samples agree"
    u = 1 - 0.05 ** (1 / 59)
    assert u == pytest.approx(0.0495, abs=1e-3)
    expected = (-u, u) if clean == perturbed else (1 - 2 * u, 1.0) if clean else (-1.0, -1 + 2 * u)
    assert (drop.low, drop.high) == pytest.approx(expected)
    assert low <= drop.low <= drop.rho <= drop.high <= high


def test_deterministic():
    clean, perturbed = drawn(100, 0.2, 0.1, 3)
    assert accuracy_drop(clean, perturbed, seed=4) == accuracy_drop(clean, perturbed, seed=4)


# ---- models


class Table(nn.Module):
    """Class 3, unless the image is bright."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.9)
        self.inner.eval()

    def forward(self, images):
        assert not self.training
        assert not torch.is_grad_enabled()
        logits = torch.zeros(len(images), 10)
        logits[:, 3] = 1.0
        logits[:, 7] = 10 * images.mean((1, 2, 3))
        return SimpleNamespace(logits=logits)


def test_predictions_in_evaluation_mode_and_the_mode_comes_back():
    digits = ga.load_data("digits", split="test").subset(range(70))
    model = Table().train()
    model.inner.eval()
    found = predictions(model, digits)
    np.testing.assert_array_equal(found, np.where(10 * digits.pixels().mean((1, 2, 3)).numpy() > 1, 7, 3))
    assert model.training
    assert not model.inner.training
    assert accuracy(model, digits) == (found == digits.labels).mean()


class Words:
    """A tokenizer: a word is its length."""

    pad_token, model_max_length = "", 32

    def __call__(self, texts, **_):
        ids = [[len(word) for word in text.split()] for text in texts]
        most = max(map(len, ids))
        return {"input_ids": [i + [0] * (most - len(i)) for i in ids]}


class LongWords(nn.Module):
    def forward(self, input_ids):
        return torch.stack([torch.full((len(input_ids),), 5.5), input_ids.max(1).values.double()], 1)


def test_predictions_on_texts():
    texts = ("tiny words so far", "gigantic", "a b c d e f", "is it enormous", "no") * 3
    labels = np.array([0, 1, 0, 1, 0] * 3)
    data = ga.datasets.Dataset("toy", "test", "here", ("short", "long"), labels, np.arange(15), "", texts=texts)
    np.testing.assert_array_equal(predictions(LongWords(), data, Words()), data.labels)


class Broken(nn.Module):
    def __init__(self, out) -> None:
        super().__init__()
        self.out = out

    def forward(self, images):
        return self.out(images)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (lambda x: SimpleNamespace(last_hidden_state=x), "expected a classifier"),
        (lambda x: x, r"got logits of shape \(32, 1, 8, 8\)"),
        (lambda x: x.flatten(1) * torch.nan, "not finite"),
    ],
)
def test_models_that_do_not_classify(out, words):
    with pytest.raises(ga.GeoattnError, match=words):
        predictions(Broken(out), ga.load_data("digits", split="test"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: accuracy_drop([True], [True, False]), "same samples; got 1 and 2"),
        (lambda: accuracy_drop([], []), r"booleans \(n,\)"),
        (lambda: accuracy_drop([0.5], [True]), "clean must be booleans"),
        (lambda: accuracy_drop([True], [[True]]), "perturbed must be booleans"),
        (lambda: accuracy_drop([True], [True], level=95.0), "level"),
        (lambda: accuracy_drop([True], [True], resamples=5), "resamples"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ga.GeoattnError, match=words):
        make()
