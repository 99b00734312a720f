"""Forgetting: areas in closed form, and a real model that forgets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional

import geoattn as ga
from geoattn.perturbations.catastrophic_forgetting import Forgetting, forgetting, forgetting_area
from geoattn.perturbations.classifier_accuracy import accuracy

# ---- the area


def test_closed_forms():
    assert forgetting_area([0.8, 0.8, 0.8]) == 0
    assert forgetting_area([0.8, 0.0]) == pytest.approx(0.4)  # a triangle
    assert forgetting_area([0.5, 0.7]) == pytest.approx(-0.1)  # the second task helps
    assert forgetting_area([0.9, 0.1, 0.1], [0, 1e-9, 1]) == pytest.approx(0.8)  # at once
    t = np.linspace(0, 5, 2001)
    assert forgetting_area(0.9 * np.exp(-t), t) == pytest.approx(0.9 * (1 - (1 - np.exp(-5)) / 5), abs=1e-6)


def test_units_and_zero_of_time_do_not_matter_but_spacing_does():
    curve = [0.9, 0.4, 0.3, 0.3]
    assert forgetting_area(curve, [0, 1, 2, 3]) == pytest.approx(forgetting_area(curve, [50, 60, 70, 80]))
    assert forgetting_area(curve) == pytest.approx(forgetting_area(curve, [0, 1, 2, 3]))
    assert forgetting_area(curve, [0, 1, 2, 30]) > forgetting_area(curve)


def test_faster_and_deeper_forgetting_have_more_area():
    t = np.linspace(0, 1, 50)
    curves = [0.9 - depth * (1 - np.exp(-rate * t)) for depth, rate in ((0.2, 2), (0.2, 8), (0.6, 8))]
    areas = [forgetting_area(c, t) for c in curves]
    assert areas == sorted(areas)


def test_numbers_of_a_curve():
    curve = Forgetting(np.array([0, 10, 20]), np.array([0.9, 0.6, 0.2]), np.array([0.1, 0.5, 0.8]), 0.1)
    assert curve.lost == pytest.approx(0.7)
    assert curve.half_life == pytest.approx(12.5)
    assert curve.relative_area == pytest.approx(curve.area / 0.8)
    assert list(curve.to_pandas().columns) == ["step", "first", "second"]
    held = Forgetting(np.array([0, 10]), np.array([0.9, 0.8]), np.array([0.1, 0.5]), 0.1)
    assert held.half_life == np.inf
    never = Forgetting(np.array([0, 10]), np.array([0.1, 0.1]), np.array([0.1, 0.5]), 0.1)
    assert np.isnan(never.relative_area)
    assert np.isnan(never.half_life)


@pytest.mark.parametrize(
    ("accuracies", "steps", "words"),
    [
        ([0.5], None, "at least two"),
        ([0.5, 1.5], None, "between 0 and 1"),
        ([0.5, np.nan], None, "between 0 and 1"),
        ([0.5, 0.4], [0, 0], "ascending"),
        ([0.5, 0.4], [0, 1, 2], "2 ascending numbers"),
    ],
)
def test_bad_curves(accuracies, steps, words):
    with pytest.raises(ga.GeoattnError, match=words):
        forgetting_area(accuracies, steps)


# ---- a training


def test_it_measures_at_the_start_every_so_often_and_at_the_end():
    data = ga.load_data("digits", split="test").subset(range(20))
    calls, seen = [], []
    result = forgetting(
        torch.nn.Identity(), data, data, lambda _, step: calls.append(step), steps=7, every=3,
        measure=lambda _, __: 1 - len(calls) / 10, progress=lambda *k: seen.append(k),
    )  # fmt: skip
    assert calls == list(range(7))
    assert seen == [(k, 7) for k in range(1, 8)]
    np.testing.assert_array_equal(result.steps, [0, 3, 6, 7])
    np.testing.assert_allclose(result.first, [1.0, 0.7, 0.4, 0.3])
    assert result.chance == np.bincount(data.labels).max() / 20


def test_a_model_that_learns_other_names_for_the_digits_forgets_the_old_ones():
    train, test = ga.load_data("digits").subset(range(640)), ga.load_data("digits", split="test").subset(range(120))
    other = dataclasses.replace(test, name="renamed", labels=(test.labels + 1) % 10)
    images, labels = train.pixels(), (train.targets() + 1) % 10

    def run(rate: float) -> Forgetting:
        model = ga.load_model("lvit-digits")
        optimiser = torch.optim.Adam(model.parameters(), lr=rate)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))

        def step(model, k):
            batch = order[(64 * k) % 640 :][:64]
            optimiser.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()

        return forgetting(model, test, other, step, steps=20, every=5)

    fast, slow = run(1e-3), run(1e-4)
    assert fast.first[0] == pytest.approx(accuracy(ga.load_model("lvit-digits"), test))
    assert fast.first[0] > 0.85
    assert fast.first[-1] < 0.3
    assert fast.second[-1] > 0.5
    assert fast.area > slow.area
    assert fast.half_life < slow.half_life
    assert fast.settings == {"first": "digits", "second": "renamed", "steps": 20, "every": 5}


@pytest.mark.parametrize(("options", "words"), [({"steps": 0}, "steps must be"), ({"steps": 2, "every": -1}, "every")])
def test_bad_input(options, words):
    data = ga.load_data("digits", split="test").subset(range(4))
    with pytest.raises(ga.GeoattnError, match=words):
        forgetting(torch.nn.Identity(), data, data, lambda *_: None, **options)
    with pytest.raises(ga.GeoattnError, match="a test set is empty"):
        forgetting(torch.nn.Identity(), data, data.subset([]), lambda *_: None, steps=1)


def test_an_accuracy_that_is_none_is_refused():
    data = ga.load_data("digits", split="test").subset(range(4))
    with pytest.raises(ga.GeoattnError, match="between 0 and 1"):
        forgetting(torch.nn.Identity(), data, data, lambda *_: None, steps=1, measure=lambda *_: 93.0)
