"""Training with the variance pushed up, down or not at all: the trials of table1, fig4, fig5, fig9 and fig10."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.attention.session import capture
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.statistics.unimodality import dip
from geoattn.training.variance_from_maps import call_variance

__all__ = ["COLOURS", "CONVENTIONS", "DIRECTIONS", "IMAGES", "LEVELS", "TEXTS", "VERSION", "Pairs", "data_of", "look",
           "plan", "series", "short", "trial"]  # fmt: skip

VERSION = 2  # of all studies that use this trial: a result of one is a result of the others
CONVENTIONS = ("markov", "hop", "grc-0.6", "grc-0.5")
DIRECTIONS = ("decrease", "none", "increase")
COLOURS = {"decrease": "tab:blue", "none": "tab:gray", "increase": "tab:red"}
IMAGES = ("mnist", "fashion-mnist", "cifar10")
TEXTS = ("sst2", "imdb", "headlines")
LEVELS = tuple(np.linspace(0, 1, 51).round(2).tolist())  # of the quantiles that stand for a distribution

# The paper gives no gamma, a or b. The variance of n tokens is at most (n - 1) / n^2: a is about n^2 / 3.
_IMAGE = {"gamma": 1.0, "a": 100.0, "probe_rows": 32}
_TEXT = {"gamma": 1.0, "a": 300.0, "probe_rows": 16}

Pairs = list[tuple[dict[str, Any], Any]]


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train once by a recipe, and look at the attention of fixed test rows before, after each epoch, and at the end.

    ``history`` has a row for epoch 0 and one per epoch: task loss (mean over the epoch, dropout on), penalty, test
    accuracy; ``variance`` (mean over layers), ``curvature`` (per convention: the mean over all edges of the last layer)
    and ``curvature_low`` (its 5 % quantile), in evaluation mode. ``distribution`` has the quantiles at `LEVELS` of the
    last layer's curvature before and after training, with the share of edges without a value and Hartigans' dip.
    """
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    settings = dict(config)
    direction, gamma, a = settings.pop("direction"), settings.pop("gamma"), settings.pop("a")
    rows, edges = settings.pop("probe_rows"), settings.pop("probe_edges", "all")
    chosen = () if direction == "none" else (("variance", {"direction": direction, "gamma": gamma, "a": a}),)
    recipe = Recipe(**settings, regularisers=chosen).filled()
    shapes: list[dict[str, Any]] = []

    def probe(model: Any, test: Any) -> dict[str, Any]:
        seen = look(model, test, rows, edges, shape=len(shapes) in (0, recipe.epochs))
        shapes.append(seen.pop("distribution"))
        return seen

    done = train(recipe, probe=probe)
    kept = ("epoch", "loss", "penalty", "test_accuracy", "variance", "curvature", "curvature_low")
    return {
        "train_accuracy": done.train_accuracy, "test_accuracy": done.test_accuracy,
        "gap": done.train_accuracy - done.test_accuracy,
        "history": [{name: short(row[name]) for name in kept if name in row} for row in done.history],
        "distribution": {"start": shapes[0], "end": shapes[-1]},
    }  # fmt: skip


@torch.no_grad()
def look(
    model: Any, test: Any, rows: int, edges: Any = "all", *, every_layer: bool = False, shape: bool = False
) -> dict[str, Any]:
    """Variance over all layers and curvature of the last one (or of all), on the first rows of the test set.

    ``shape``: the distribution of the curvature too.
    """
    with capture(model) as record:
        test.forward(model, torch.arange(min(rows, len(test))), next(model.parameters()).device)
    variance = float(np.mean([float(call_variance(call).nanmean()) for call in record]))
    chosen = list(record) if every_layer else [record[len(record) - 1]]
    maps = torch.cat([call.attention() for call in chosen])
    valid = torch.cat([call.valid for call in chosen])[:, None].expand(maps.shape[:3])
    means, lows, shapes = {}, {}, {}
    for convention in CONVENTIONS:
        with warnings.catch_warnings():  # a degenerate distribution shows in the quantiles
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)
            curvature = ollivier_ricci(maps, convention, mask=valid, edges=edges, threads=1)
        values = curvature.values()
        total = len(curvature.places())
        if len(values) == 0:
            means[convention] = lows[convention] = None
            shapes[convention] = {"quantiles": None, "missing": 1.0, "dip": None}
            continue
        means[convention], lows[convention] = float(values.mean()), float(np.quantile(values, 0.05))
        if not shape:
            continue
        shapes[convention] = {
            "quantiles": short(np.quantile(values, LEVELS).tolist()), "missing": 1 - len(values) / total,
            "dip": short(dip(values)),
        }  # fmt: skip
    return {"variance": variance, "curvature": means, "curvature_low": lows, "distribution": shapes}


def plan(size: str, images: tuple[str, ...] = IMAGES, texts: tuple[str, ...] = TEXTS, digits: int = 30) -> Any:
    """Configurations of a size: the paper has 30 trials per data set and direction.

    small: 800 training rows, ``digits`` seeds of digits (10 of them without a regulariser) and 5 of each other data
    set. Images: 4 epochs (52 steps) at a learning rate of 2e-3. Texts: 32 tokens, 3 epochs (150 steps) at 5e-4. At the
    paper's 5e-4 and 5e-6 so few steps teach nothing.
    """
    if size == "smoke":
        tiny = {"epochs": 2, "limit": 64, "test_limit": 40, "changes": {"depth": 1, "dim": 16, "dim_head": 16}}
        sets = [("digits", 2, {**_IMAGE, "probe_rows": 4, **tiny})]
    elif size == "small":
        image = {**_IMAGE, "epochs": 4, "limit": 800, "test_limit": 400, "rate": 2e-3}
        text = {**_TEXT, "epochs": 3, "limit": 800, "test_limit": 400, "rate": 5e-4, "length": 32}
        sets = [("digits", digits, image), *((d, 5, image) for d in images), *((d, 5, text) for d in texts)]
    else:
        text = {**_TEXT, "a": 5000.0, "probe_edges": 256}  # up to 128 tokens
        sets = [*((d, 30, _IMAGE) for d in images), *((d, 30, text) for d in texts)]
        sets = [(data, seeds, {**settings, "probe_rows": 1024}) for data, seeds, settings in sets]
    return [
        {"data": data, "seed": seed, "direction": direction, **settings}
        for data, seeds, settings in sets
        for seed in range(seeds)
        for direction in DIRECTIONS
        if direction != "none" or data != "digits" or seed < 10
    ]


def data_of(pairs: Pairs) -> list[str]:
    """The data sets, in order."""
    return list(dict.fromkeys(config["data"] for config, _ in pairs))


def series(pairs: Pairs, data: str, direction: str, number: Any, beside: str | None = None) -> np.ndarray:
    """``number`` of each result, in the order of seeds; only of seeds that the direction ``beside`` has too.

    Runs of one seed start with the same weights and see the same rows in the same order: their differences are paired.
    """
    found = {c["seed"]: number(r) for c, r in pairs if c["data"] == data and c["direction"] == direction}
    seeds = {c["seed"] for c, _ in pairs if c["data"] == data and c["direction"] == (beside or direction)}
    return np.array([found[seed] for seed in sorted(set(found) & seeds)])


def short(value: Any) -> Any:
    """Six significant digits: files stay small, and nothing that is judged needs more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [short(v) for v in value]
    return {k: short(v) for k, v in value.items()} if isinstance(value, dict) else value
