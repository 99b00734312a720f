"""What strength=0.1 does to three architectures without tuning: the variance of attention after 200 steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.datasets.loader import load_data
from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.study import Pairs, Study
from geoattn.studies.ricci.adjusted_training import short

__all__ = ["STUDY", "trial"]

_STRENGTH = 0.1
_SMALLEST, _LARGEST = 1.1, 3.0  # factors between which the variance is to move
_DIRECTIONS = ("none", "increase", "decrease")
#: A model, the loss of its k-th batch, and a learning rate that is usual for it.
Setting = tuple[nn.Module, Callable[[Any, int], Tensor], float]


def _lvit(seed: int, steps: int) -> Setting:
    from geoattn.models.lvit import LViT

    data = load_data("fashion-mnist", split="train", limit=64 * steps, seed=seed)
    pixels, labels = data.pixels(), data.targets()

    def loss(model: Any, k: int) -> Tensor:
        rows = slice(64 * k, 64 * k + 64)
        return functional.cross_entropy(model(pixels[rows]), labels[rows])

    return LViT(), loss, 5e-4


def _vit_s(seed: int, steps: int) -> Setting:
    from transformers import ViTConfig, ViTForImageClassification

    data = load_data("cifar10", split="train", limit=8 * steps, seed=seed)
    pixels, labels = functional.interpolate(data.pixels(), size=64, mode="bilinear") * 2 - 1, data.targets()
    config = ViTConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536, image_size=64,
        patch_size=16, num_labels=10,  # pyright: ignore[reportCallIssue]
    )  # fmt: skip

    def loss(model: Any, k: int) -> Tensor:
        rows = slice(8 * k, 8 * k + 8)
        return functional.cross_entropy(model(pixels[rows]).logits, labels[rows])

    return ViTForImageClassification(config), loss, 1e-4


def _gpt2(seed: int, steps: int) -> Setting:
    from transformers import GPT2Config, GPT2LMHeadModel

    data = load_data("imdb", split="train", limit=4 * steps, seed=seed)
    assert data.texts is not None
    letters = torch.tensor(list(" ".join(data.texts).encode()[: steps * 8 * 64])).view(steps, 8, 64)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)

    def loss(model: Any, k: int) -> Tensor:
        logits = model(letters[k]).logits
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), letters[k][:, 1:].flatten())

    return GPT2LMHeadModel(config), loss, 5e-4


MODELS: dict[str, Callable[[int, int], Setting]] = {
    "L-ViT on Fashion-MNIST": _lvit,
    "ViT-S on CIFAR-10": _vit_s,
    "GPT-2 of 4 layers on IMDb": _gpt2,
}


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train from random weights by Adam; the variance on the first batch after that, in evaluation mode."""
    from geoattn.training.regularisers.variance import VarianceRegulariser

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["seed"])
        model, loss, rate = MODELS[config["model"]](config["seed"], config["steps"])
        adam = torch.optim.Adam(model.parameters(), lr=rate)
        none = config["direction"] == "none"
        direction = "increase" if none else config["direction"]
        chosen = {"gamma": 1e-12} if none else {"strength": _STRENGTH}
        with VarianceRegulariser(direction, **chosen).attach(model.train()) as handle:
            losses, figures = [], {}
            for k in range(config["steps"]):
                task = loss(model, k)
                total = task + handle.penalty(task)
                figures = handle.figures()
                losses.append(float(task.detach()))
                adam.zero_grad()
                total.backward()
                adam.step()
            with torch.no_grad():
                loss(model.eval(), 0)
                variance = handle.figures()["variance"]
    gamma = {name: figures[name] for name in ("gamma", "gamma_capped") if name in figures}
    return short({"variance": variance, "loss": float(np.mean(losses[-40:])), **gamma})


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: 200 steps, 3 seeds; small: one seed; smoke: 4 steps of L-ViT."""
    models = list(MODELS)[:1] if size == "smoke" else list(MODELS)
    return [
        {"model": model, "seed": seed, "direction": direction, "steps": 4 if size == "smoke" else 200}
        for seed in range(3 if size == "paper" else 1)
        for model in models
        for direction in _DIRECTIONS
    ]


def _factors(pairs: Pairs) -> dict[tuple[str, str], list[float]]:
    """By model and direction: the factor by which the variance of each seed moved where it was asked to."""
    runs = {(c["model"], c["seed"], c["direction"]): r["variance"] for c, r in pairs}
    found: dict[tuple[str, str], list[float]] = {}
    for (model, seed, direction), variance in runs.items():
        if direction != "none" and (model, seed, "none") in runs:
            factor = variance / runs[model, seed, "none"]
            found.setdefault((model, direction), []).append(factor if direction == "increase" else 1 / factor)
    return found


def _verdict(pairs: Pairs) -> list[Finding]:
    found = []
    for (model, direction), factors in _factors(pairs).items():
        good = all(_SMALLEST <= factor <= _LARGEST for factor in factors)
        words = f"strength {_STRENGTH:g} moves the variance by a factor of {_SMALLEST:g} to {_LARGEST:g}: {direction}"
        found.append(Finding(
            words, model, float(np.mean(factors)), min(factors), max(factors), len(factors),
            "replicated" if good else "contradicted", measure="factor: mean, smallest and largest over seeds",
        ))  # fmt: skip
    return found


def _table(pairs: Pairs) -> Any:
    """A row for each trial."""
    import pandas as pd

    factors = {key: iter(values) for key, values in _factors(pairs).items()}
    rows = []
    for config, result in pairs:
        key = (config["model"], config["direction"])
        rows.append({**config, **result, "factor": next(factors[key], None) if key in factors else None})
    return pd.DataFrame(rows)


def _figure(pairs: Pairs) -> Any:
    """The factors by model; the band is where they are to lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 2.6), layout="constrained")
    ax = figure.subplots()
    ax.axvspan(_SMALLEST, _LARGEST, color="0.9")
    rows = _factors(pairs)
    for place, ((_, direction), factors) in enumerate(rows.items()):
        ax.plot(factors, [-place] * len(factors), "o", color="tab:red" if direction == "increase" else "tab:blue")
    ax.set_yticks([-k for k in range(len(rows))], [f"{model}, {direction}" for model, direction in rows], fontsize=7)
    ax.set_xscale("log")
    ax.set_xlabel("factor by which the variance moved in the direction asked for")
    return figure


STUDY = Study(
    "strength-effect", 1, "geoattn.studies.ricci.strength_effect:trial", _sizes, _table, _figure, _verdict,
    paper="ricci", place="how to choose the strength",
    how="strength=0.1, 200 steps of Adam from random weights: L-ViT (batch 64, rate 5e-4), ViT-S (batch 8, 64 pixels,"
    " rate 1e-4) and a GPT-2 of 4 layers and width 128 on bytes (batch 8, 64 tokens, rate 5e-4); against the run of the"
    " same seed without a regulariser.", partial=True,
)  # fmt: skip
