"""strength=: gamma from the ratio of gradients, its cap, its log, and its effect on three architectures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe
from geoattn.training.regularisers.curvature import CurvatureRegulariser
from geoattn.training.regularisers.entropy import RowEntropy
from geoattn.training.regularisers.variance import VarianceRegulariser
from geoattn.training.strength import Calibration, Strength, attention_parameters
from geoattn.training.variance_range import variance_range

SMALL = LViTConfig(depth=2, dim=16, dim_head=16, dropout=0.0, emb_dropout=0.0)
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
    """The same batch all along: then the means are the gradients themselves, and the last step shows the ratio."""
    torch.manual_seed(0)
    model, (x, y) = LViT(SMALL), batch()
    with kind(direction, strength=0.25).attach(model) as handle:
        for _ in range(191):  # the last of the twenty estimates is that of step 190
            task = functional.cross_entropy(model(x), y)
            handle.step = min(handle.step, 190)
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
            assert float(mine.norm() / theirs.norm()) == pytest.approx(0.25, rel=1e-3)
        task = functional.cross_entropy(model(x), y)
        handle.penalty(task)
        assert handle.figures()["gamma"] == gamma  # kept
        assert handle.figures()["gamma_capped"] == 0


def test_a_faint_gradient_caps_gamma_which_is_estimated_again_later() -> None:
    calibration, step = Calibration(Strength(0.1)), 0
    task, faint, plain = torch.ones(4), torch.full((4,), 1e-6), torch.full((4,), 0.5)
    while calibration.is_due(step):
        calibration._take(faint, task, step)
        step += 10
    assert calibration.capped
    assert calibration.gamma == pytest.approx(0.1 * 1000)
    due = [k for k in range(step, step + 400) if calibration.is_due(k)]
    assert due[0] == 390  # 200 steps after the last estimate
    for k in due[:20]:
        calibration._take(plain, task, k)
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
        handle.penalty(functional.cross_entropy(model(x), y))
    assert logged[0]["gamma_capped"] == 1
    assert 0 < logged[0]["gamma"] <= 100


def test_adapt_follows_the_ratio_all_along() -> None:
    calibration = Calibration(Strength(0.1, adapt=True))
    for k in range(0, 2000, 10):
        assert calibration.is_due(k)
        calibration._take(torch.full((4,), 0.5 if k < 500 else 0.05), torch.ones(4), k)
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


def _lvit(seed: int) -> tuple[nn.Module, Any, float]:
    from geoattn.datasets.loader import load_data

    data = load_data("fashion-mnist", split="train", limit=12_800, seed=seed)
    pixels, labels = data.pixels(), data.targets()

    def loss(model: Any, k: int) -> Tensor:
        rows = slice(64 * k % 12_800, 64 * k % 12_800 + 64)
        return functional.cross_entropy(model(pixels[rows]), labels[rows])

    return LViT(), loss, 5e-4


def _vit_s(seed: int) -> tuple[nn.Module, Any, float]:
    from transformers import ViTConfig, ViTForImageClassification

    from geoattn.datasets.loader import load_data

    data = load_data("cifar10", split="train", limit=1600, seed=seed)
    pixels, labels = functional.interpolate(data.pixels(), size=64, mode="bilinear") * 2 - 1, data.targets()
    config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536,
                       image_size=64, patch_size=16, num_labels=10)  # fmt: skip

    def loss(model: Any, k: int) -> Tensor:
        rows = slice(8 * k, 8 * k + 8)
        return functional.cross_entropy(model(pixels[rows]).logits, labels[rows])

    return ViTForImageClassification(config), loss, 1e-4


def _gpt2(seed: int) -> tuple[nn.Module, Any, float]:
    from transformers import GPT2Config, GPT2LMHeadModel

    from geoattn.datasets.loader import load_data

    data = load_data("imdb", split="train", limit=800, seed=seed)
    assert data.texts is not None
    letters = torch.tensor(list(" ".join(data.texts).encode()[: 200 * 8 * 64])).view(200, 8, 64)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)

    def loss(model: Any, k: int) -> Tensor:
        logits = model(letters[k]).logits
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), letters[k][:, 1:].flatten())

    return GPT2LMHeadModel(config), loss, 5e-4


@pytest.mark.slow
@pytest.mark.skipif("GEOATTN_DATA" not in os.environ, reason="needs GEOATTN_DATA, a folder with the data sets")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [_lvit, _vit_s, _gpt2])
def test_strength_one_tenth_moves_the_variance_by_a_tenth_to_threefold(make: Any, seed: int) -> None:
    found = {}
    for direction in ("none", "increase", "decrease"):
        torch.manual_seed(seed)
        model, loss, rate = make(seed)
        adam = torch.optim.Adam(model.parameters(), lr=rate)
        chosen = {"gamma": 1e-12} if direction == "none" else {"strength": 0.1}
        pushed = VarianceRegulariser("increase" if direction == "none" else direction, **chosen)
        with pushed.attach(model.train()) as handle:
            for k in range(200):
                task = loss(model, k)
                total = task + handle.penalty(task)
                adam.zero_grad()
                total.backward()
                adam.step()
            with torch.no_grad():
                loss(model.eval(), 0)
                found[direction] = handle.figures()["variance"]
    assert 1.1 <= found["increase"] / found["none"] <= 3
    assert 1.1 <= found["none"] / found["decrease"] <= 3
