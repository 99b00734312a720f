"""The training loop: determinism, resume after a kill, numbers that are not finite, logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from geoattn._core.errors import GeoattnError
from geoattn.training import loop
from geoattn.training.loop import train
from geoattn.training.recipe import _STOP_AT, Recipe
from geoattn.training.training_log import read_json_lines

QUICK: dict[str, Any] = {
    "epochs": 3, "limit": 96, "test_limit": 40, "batch": 32, "changes": {"depth": 2, "dim": 16, "dim_head": 16},
}  # fmt: skip
REGULARISED = (("variance", {"direction": "increase"}), ("curvature", {"direction": "decrease", "maps": 2}))


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in model.state_dict().items()}


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    first, second = weights(a), weights(b)
    return all(torch.equal(first[name], second[name]) for name in first)


def recipe(**more: Any) -> Recipe:
    return Recipe("digits", **{**QUICK, **more})


def test_the_same_recipe_gives_the_same_weights_and_the_callers_random_state_stays() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = train(recipe(regularisers=REGULARISED))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    second = train(recipe(regularisers=REGULARISED))
    assert same(first.model, second.model)
    assert first.history == second.history
    assert not same(first.model, train(recipe(regularisers=REGULARISED, seed=1)).model)
    assert first.steps == 9
    assert not any(m._forward_hooks for m in first.model.modules())


def test_a_monitor_changes_nothing() -> None:
    rows: list[dict[str, Any]] = []
    plain, watched = train(recipe()), train(recipe(monitor_every=2), log=lambda _, row: rows.append(row))
    assert same(plain.model, watched.model)
    steps = [row for row in rows if "pl_ratio" in row]
    assert len(steps) == 5
    assert all(row["pl_ratio"] > 0 and "curvature/transformer.layers.1.0" in row for row in steps)


@pytest.mark.parametrize(
    "regularisers",
    [
        (("edge-mask", {"rate": 0.3}),),
        (("edge-mask", {"rate": 0.3, "where": "weights"}), ("entropy", {"direction": "decrease"})),
        (("temperature", {"temperature": 2.0}),),
        (("dropout", {"rate": 0.2}),),
    ],
)
def test_interventions_change_training(regularisers: Any) -> None:
    plain, changed = train(recipe(epochs=1)), train(recipe(epochs=1, regularisers=regularisers))
    assert not same(plain.model, changed.model)


class StopError(Exception):
    """Cuts a run short."""


@pytest.mark.parametrize("cut", [1, 4, 6, 8])
def test_resume_gives_the_same_weights_bit_for_bit(tmp_path: Path, cut: int) -> None:
    settings = recipe(regularisers=(*REGULARISED, ("edge-mask", {"rate": 0.2})), monitor_every=2)
    whole = train(settings, tmp_path / "whole", checkpoint_every=2)

    def stop(step: int, _: int) -> None:
        if step == cut:
            raise StopError

    with pytest.raises(StopError):
        train(settings, tmp_path / "cut", checkpoint_every=2, progress=stop)
    resumed = train(settings, tmp_path / "cut", checkpoint_every=2)
    assert same(whole.model, resumed.model)
    assert whole.history == resumed.history
    assert read_json_lines(tmp_path / "whole/log.jsonl") == read_json_lines(tmp_path / "cut/log.jsonl")
    again = train(settings, tmp_path / "cut")  # finished: nothing to do
    assert same(whole.model, again.model)


_CHILD = """
import sys
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe
recipe = Recipe("digits", epochs=4, limit=96, test_limit=40, batch=16, changes={"depth": 2, "dim": 16, "dim_head": 16})
train(recipe, sys.argv[1], checkpoint_every=1)
"""


@pytest.mark.slow
def test_kill_and_resume_in_processes(tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment; what is left is resumed and ends as the undisturbed run does."""
    command = [sys.executable, "-c", _CHILD]
    child = subprocess.Popen([*command, str(tmp_path / "killed")])
    checkpoint = tmp_path / "killed/checkpoint.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert checkpoint.exists()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, timeout=120)
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=120)
    tensors = []
    for name in ("killed", "whole"):
        with safe_open(tmp_path / name / "checkpoint.safetensors", framework="pt") as file:
            tensors.append({key: file.get_tensor(key) for key in file.keys()})
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    train(recipe(epochs=1), tmp_path)
    with pytest.raises(GeoattnError, match="belongs to a run with other settings"):
        train(recipe(epochs=1, seed=3), tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\x08\0\0")
    with pytest.raises(GeoattnError, match="not a complete checkpoint"):
        train(recipe(epochs=1), tmp_path)


def test_a_loss_that_is_not_finite_names_the_layer_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.load_model

    def sabotaged(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        feed = model.transformer.layers[1][1]
        calls = iter(range(10**6))
        feed.register_forward_hook(lambda _m, _i, out: out * float("nan") if m.training and next(calls) >= 4 else out)
        m = model
        return model

    monkeypatch.setattr(loop, "load_model", sabotaged)
    message = r"the loss is nan at epoch 2, step 4: .* layer 'transformer.layers.1.1'; the last good checkpoint is"
    with pytest.raises(GeoattnError, match=message):
        train(recipe(), tmp_path)
    with safe_open(tmp_path / "checkpoint.safetensors", framework="pt") as file:
        assert all(file.get_tensor(key).isfinite().all() for key in file.keys() if key.startswith("model/"))


def test_weights_that_are_not_finite_are_named() -> None:
    with pytest.raises(GeoattnError, match=r"(weights of layer|output that is not finite is that of layer|weights of)"):
        train(recipe(rate=1e30, epochs=2))


def test_early_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_STOP_AT, "digits", 0.3)
    trained = train(recipe(epochs=30, early_stopping=True, rate=5e-3, limit=300))
    assert trained.stopped_early
    assert len(trained.history) < 30
    assert trained.history[-1]["validation_accuracy"] >= 0.3
    assert all(row["validation_accuracy"] < 0.3 for row in trained.history[:-1])


def test_the_papers_settings_are_the_defaults() -> None:
    rows = {
        data: (r.model, r.epochs, r.batch, r.rate, r.stop_at)
        for data in ("mnist", "fashion-mnist", "cifar10", "sst2", "imdb", "headlines")
        for r in [Recipe(data, early_stopping=True).filled()]
    }
    assert rows == {
        "mnist": ("lvit-mnist", 20, 64, 5e-4, 0.97),
        "fashion-mnist": ("lvit-fashion-mnist", 20, 64, 5e-4, 0.87),
        "cifar10": ("lvit-cifar10", 40, 64, 5e-4, 0.50),
        "sst2": ("bert-tiny", 20, 16, 5e-6, 0.79),
        "imdb": ("bert-tiny", 20, 16, 5e-6, 0.88),
        "headlines": ("bert-tiny", 20, 16, 5e-6, 0.84),
    }


@pytest.mark.skipif("GEOATTN_DATA" not in os.environ, reason="needs GEOATTN_DATA, a folder with the data sets")
def test_bert_tiny_on_texts() -> None:
    settings = Recipe(
        "sst2", epochs=2, limit=64, test_limit=32, length=24, rate=1e-3, regularisers=REGULARISED,
        changes={"hidden_size": 16, "intermediate_size": 16},
    )  # fmt: skip
    first, second = train(settings), train(settings)
    assert same(first.model, second.model)
    assert first.history[1]["loss"] < first.history[0]["loss"]
    assert first.history[0]["edges"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "imagenet"}, "unknown data set 'imagenet'"),
        ({"epochs": 0}, "epochs"),
        ({"batch": -1}, "batch"),
        ({"rate": 0.0}, "rate must be a finite number above 0"),
        ({"seed": -1}, "seed"),
        ({"regularisers": (("magic", {}),)}, "unknown regulariser 'magic'"),
        ({"regularisers": (("variance", {"gamma": 0}),)}, "gamma must be a finite number above 0"),
        ({"regularisers": (("variance", {"speed": 1}),)}, "unexpected keyword argument 'speed'"),
    ],
)
def test_bad_recipes(settings: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        Recipe(**{"data": "digits", **settings})
