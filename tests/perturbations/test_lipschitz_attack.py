"""Moves along the worst direction: against a layer whose worst direction is known, and on real models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.perturbations.attacks.lipschitz import _Place, lipschitz_attack


@pytest.fixture(scope="module")
def digits() -> ga.datasets.Dataset:
    return ga.load_data("digits", split="test").subset(range(24))


def test_the_worst_move_is_amplified_most(digits: ga.datasets.Dataset) -> None:
    model = ga.load_model("lvit-digits")
    place = _Place(model, digits.subset(range(3)).pixels(), 0)
    found = ga.smoothness.local_lipschitz_of(place.output, place.start, samples=True, tolerance=1e-3)
    h, rng = 1e-3, torch.Generator().manual_seed(0)
    base = place.output(place.start)

    def gain(direction: torch.Tensor) -> torch.Tensor:
        unit = direction / direction.flatten(1).norm(dim=1)[:, None, None]
        return (place.output(place.start + h * unit) - base).flatten(1).norm(dim=1) / h

    worst = gain(torch.as_tensor(found.direction, dtype=torch.float32))
    np.testing.assert_allclose(worst.detach().numpy(), found.lower, rtol=0.03)
    for _ in range(5):
        assert bool((gain(torch.randn(place.start.shape, generator=rng)) < worst).all())


def test_steps_order_and_clean_accuracy(digits: ga.datasets.Dataset) -> None:
    model = ga.load_model("lvit-digits").train()
    found = lipschitz_attack(model, digits, steps=(0.0, 0.5, 3.0), seed=1)
    assert model.training  # put back
    clean = ga.robustness(model, digits, ga.perturbations.image_perturbations(8)[:1]).drops[0].clean
    assert found.worst[0].clean == found.random[0].clean == clean
    assert found.worst[0].rho == found.random[0].rho == 0
    assert found.worst[2].rho > found.random[2].rho  # 0.04 and 0: the first layer matters little here
    assert (found.constants > 0).all()
    again = lipschitz_attack(model, digits, steps=(0.0, 0.5, 3.0), seed=1)
    assert again.to_pandas().equals(found.to_pandas())


def test_padding_neither_moves_nor_counts() -> None:
    """One text with and without padding after it: the same constant."""
    model: Any = ga.load_model("bert-tiny", weights="random", classes=2, vocab_size=50)
    ids = torch.tensor([[2, 7, 9, 11, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0]])
    constants = []
    for cut in (5, 7):
        place = _Place(model, {"input_ids": ids[:, :cut], "attention_mask": mask[:, :cut]}, 0)
        found = ga.smoothness.local_lipschitz_of(place.output, place.start, samples=True, tolerance=1e-4)
        constants.append(float(np.atleast_1d(found.lower)[0]))
        moves = np.linalg.norm(np.asarray(found.direction)[0], axis=-1)
        assert moves[5:].max(initial=0.0) < 1e-5
    assert constants[0] == pytest.approx(constants[1], rel=1e-3)


def test_bad_input(digits: ga.datasets.Dataset) -> None:
    model = ga.load_model("lvit-digits")
    with pytest.raises(GeoattnError, match="steps must be"):
        lipschitz_attack(model, digits, steps=(0.5, 0.1))
    with pytest.raises(GeoattnError, match="one of the 8 attention calls"):
        lipschitz_attack(model, digits, layer=8)
    with pytest.raises(GeoattnError, match="holds no sample"):
        lipschitz_attack(model, digits.subset([]))
    with pytest.raises(GeoattnError):
        lipschitz_attack(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), digits)
