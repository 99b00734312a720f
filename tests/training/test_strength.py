"""strength=: gamma from the ratio of gradients, its cap, its log, and its effect on three architectures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.studies.ricci.strength_effect import trial
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe
from geoattn.training.regularisers.curvature import CurvatureRegulariser
from geoattn.training.regularisers.entropy import RowEntropy
from geoattn.training.regularisers.variance import VarianceRegulariser
from geoattn.training.strength import Calibration, Strength, attention_parameters
from geoattn.training.variance_range import variance_range

SMALL = LViTConfig(depth=2, dim=16, dim_head=16, dropout=0.0, emb_dropout=0.0)
RESULTS = Path(__file__).parents[2] / "results"
KINDS = (VarianceRegulariser, CurvatureRegulariser, RowEntropy)


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(8, 1, 28, 28, generator=generator), torch.randint(0, 10, (8,), generator=generator)


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_and_strength_together_are_an_error(kind: Any) -> None:
    with pytest.raises(GeoattnError, match="gamma or strength, not both"):
        kind("increase", gamma=1.0, strength=0.1)
    with pytest.raises(GeoattnError, match="give strength"):
        kind("increase", adapt=True)
    with pytest.raises(GeoattnError, match="strength"):
        kind("increase", strength=-0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["increase", "decrease"])
def test_the_ratio_of_the_gradients_is_the_strength(kind: Any, direction: str) -> None:
    """The same batch all along: there is no noise, all means are those of one gradient, and the last step shows it."""
    torch.manual_seed(0)
    model, (x, y) = LViT(SMALL), batch()
    with kind(direction, strength=0.25).attach(model) as handle:
        penalty = task = torch.zeros(())
        for k in (step + pair for step in range(0, 200, 10) for pair in (0, 1)):  # the steps that are estimated on
            task = functional.cross_entropy(model(x), y)
            handle.step = k
            penalty = handle.penalty(task)
        names = [f"transformer.layers.{k}.0" for k in range(2)]
        parameters = attention_parameters(model, names)
        mine, theirs = (
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
            for loss in (penalty, task)
        )
        gamma = handle.figures()["gamma"]
        assert gamma > 0
        if kind is not CurvatureRegulariser:  # which draws other edges at each step
            scale = theirs.square() + 1e-8 * theirs.square().mean()
            norms = [float((g.square() / scale).sum().sqrt()) for g in (mine, theirs)]
            assert norms[0] / norms[1] == pytest.approx(0.25, rel=1e-3)
        task = functional.cross_entropy(model(x), y)
        handle.penalty(task)
        assert handle.figures()["gamma"] == gamma  # kept
        assert handle.figures()["gamma_capped"] == 0


def test_the_noise_of_batches_does_not_count() -> None:
    """Task gradients of 1 in each entry with noise ten times as large: the norm is that of the ones."""
    generator = torch.Generator().manual_seed(0)
    calibration = Calibration(Strength(0.1))
    for step in range(0, 200, 10):
        one, other = (1 + 10 * torch.randn(40_000, generator=generator) for _ in range(2))
        calibration._take(torch.full((40_000,), 0.5), one, other, step)
    # a signal of 1 / 101 of the mean square lies at the floor of a hundredth
    assert calibration.gamma == pytest.approx(0.1 * 2, rel=0.3)


def test_each_entry_counts_by_the_gradient_that_the_task_has_there() -> None:
    """Values a thousand times as large as queries and keys, where alone the regulariser acts, change nothing."""
    found = []
    for size in (1.0, 1000.0):
        calibration, task = Calibration(Strength(0.1)), torch.tensor([1.0, 1.0, size, size])
        for step in range(0, 200, 10):
            calibration._take(torch.tensor([0.5, 0.5, 0.0, 0.0]), task, task, step)
        found.append(calibration.gamma)
    assert found[1] == pytest.approx(found[0], rel=0.02)


def test_a_faint_gradient_caps_gamma_which_is_estimated_again_later() -> None:
    calibration, step = Calibration(Strength(0.1)), 0
    task, faint, plain = torch.ones(4), torch.full((4,), 1e-6), torch.full((4,), 0.5)
    while calibration.is_due(step):
        calibration._take(faint, task, task, step)
        step += 10
    assert calibration.capped
    assert calibration.gamma == pytest.approx(0.1 * 1000)
    due = [k for k in range(step, step + 400) if calibration.is_due(k)]
    assert due[0] == 390  # 200 steps after the last estimate
    for k in range(390, 590, 10):
        calibration._take(plain, task, task, k)
    assert not calibration.capped
    assert calibration.gamma == pytest.approx(0.1 / 0.5)
    assert not any(map(calibration.is_due, range(10_000)))


def test_uniform_maps_are_capped_and_the_log_says_so() -> None:
    torch.manual_seed(0)
    model, (x, y) = LViT(SMALL), batch()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "to_qkv" in name:
                parameter[:32] *= 1e-4  # queries and keys: all rows are uniform but for 1e-8
    logged: list[dict[str, float]] = []
    with VarianceRegulariser("increase", strength=0.1).attach(model, log=lambda _, f: logged.append(f)) as handle:
        for _ in range(2):  # an estimate takes two steps
            handle.penalty(functional.cross_entropy(model(x), y))
    assert logged[1]["gamma_capped"] == 1
    assert 0 < logged[1]["gamma"] <= 100


def test_adapt_follows_the_ratio_all_along() -> None:
    calibration = Calibration(Strength(0.1, adapt=True))
    for k in range(0, 2000, 10):
        assert calibration.is_due(k)
        calibration._take(torch.full((4,), 0.5 if k < 500 else 0.05), torch.ones(4), torch.ones(4), k)
    assert calibration.gamma == pytest.approx(2.0, rel=0.05)


def test_strength_needs_the_loss_of_the_task_and_trained_parameters() -> None:
    model, (x, y) = LViT(SMALL), batch()
    with VarianceRegulariser("increase", strength=0.1).attach(model) as handle:
        model(x)
        with pytest.raises(GeoattnError, match=r"handle\.penalty\(task\)"):
            handle.penalty()
    model.requires_grad_(False)
    model.mlp_head.requires_grad_(True)
    images = x.clone().requires_grad_()
    with VarianceRegulariser("increase", strength=0.1).attach(model) as handle:
        task = functional.cross_entropy(model(images), y)
        with pytest.raises(GeoattnError, match="none of them is trained"):
            handle.penalty(task)


def test_a_run_resumes_inside_the_window_with_the_same_weights(tmp_path: Path) -> None:
    recipe = Recipe("digits", epochs=2, limit=256, test_limit=32, batch=16, changes={"depth": 1},
                    regularisers=(("variance", {"direction": "increase", "strength": 0.5}),))  # fmt: skip
    whole = train(recipe)

    class StopError(Exception):
        pass

    def stop(done: int, _total: int) -> None:
        if done == 21:
            raise StopError

    with pytest.raises(StopError):
        train(recipe, tmp_path, checkpoint_every=5, progress=stop)
    again = train(recipe, tmp_path)
    assert whole.history[-1]["gamma"] == again.history[-1]["gamma"] > 0
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_range_of_the_variance_holds_all_maps() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 5, 17):
        for entries in (np.ones((n, n), bool), np.tri(n, dtype=bool), rng.random((n, n)) < 0.6):
            entries[:, 0] = True
            low, high = variance_range(torch.from_numpy(entries))
            uniform = entries / entries.sum(1, keepdims=True)
            hot = np.zeros((n, n))
            hot[np.arange(n), entries.argmax(1)] = 1
            assert uniform[entries].var() == pytest.approx(low, abs=1e-12)
            assert hot[entries].var() == pytest.approx(high)
            some = np.where(entries, rng.random((n, n)), 0)
            some /= some.sum(1, keepdims=True)
            assert low - 1e-12 <= some[entries].var() <= high + 1e-12


@pytest.mark.slow
@pytest.mark.skipif("GEOATTN_DATA" not in os.environ, reason="needs GEOATTN_DATA, a folder with the data sets")
@pytest.mark.parametrize("model", ["L-ViT on Fashion-MNIST", "GPT-2 of 4 layers on IMDb"])
def test_strength_one_tenth_moves_the_variance_by_a_tenth_to_threefold(model: str) -> None:
    """One seed; results/strength-effect has three, and a ViT-S."""
    found = {
        direction: trial({"model": model, "seed": 0, "direction": direction, "steps": 200})["variance"]
        for direction in ("none", "increase", "decrease")
    }
    assert 1.1 <= found["increase"] / found["none"] <= 3
    assert 1.1 <= found["none"] / found["decrease"] <= 3


def test_the_committed_trials_moved_the_variance_by_a_tenth_to_threefold() -> None:
    content = json.loads((RESULTS / "strength-effect" / "paper" / "strength-effect.json").read_bytes())
    assert len(content["findings"]) == 6  # three models, two directions
    for finding in content["findings"]:
        assert 1.1 <= finding["low"] <= finding["high"] <= 3, finding
