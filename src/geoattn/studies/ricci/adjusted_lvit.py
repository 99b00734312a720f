"""L-ViT trained at the paper's size with the variance of attention pushed up, down or not at all: one trial.

One set of these trials serves Table 1, Figures 4 and 5, the dose-response, masking and the curvature regulariser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geoattn.datasets.loader import load_data
from geoattn.models.fused_step import with_fused_step
from geoattn.models.loading import load_model
from geoattn.perturbations.paper import image_perturbations
from geoattn.perturbations.robustness_table import robustness
from geoattn.runs.trial import workspace
from geoattn.studies.ricci.adjusted_training import look, short
from geoattn.training.loop import Trained, train
from geoattn.training.recipe import Recipe

__all__ = ["PERTURBATIONS", "STEP", "distribution", "history_rows", "recipe_of", "trial"]

#: The kind of training step, `geoattn.models.fused_step`, which results name. Those without a name were made with
#: torch's own blocks and `geoattn.models.quick_dropout`: the same law, other random numbers. A seed has one kind.
STEP = "fused"
#: All three of Section 5 together at both rates, and both of Appendix E.3.
PERTURBATIONS = ("flip + blur + rotation 0.2", "flip + blur + rotation 0.4", "elastic + perspective")
_ROWS, _ALL_ROWS = 64, 1024  # test rows whose attention is measured after each epoch, and before and after training
_PERTURBED = 2000  # test rows that are perturbed
_ROW = ("epoch", "loss", "penalty", "running_accuracy", "validation_accuracy", "test_accuracy", "variance", "curvature",
        "curvature_low", "gamma", "gamma_capped")  # fmt: skip


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train one L-ViT by Appendix D and measure it.

    ``config``: data, seed, direction (decrease, none or increase), epochs; ``regulariser`` (variance, curvature,
    entropy) with ``strength``; ``mask``: rate of an edge mask while training; ``early_stopping`` as in Appendix E.3;
    ``rate``, ``limit``; ``draw``: seed of the 2,000 test rows that are perturbed and of their perturbations, by default
    the first rows and seed 0. The seed gives initialisation, order of rows and dropout: runs of one seed are paired.

    The result has the accuracy on the training rows while they are trained on (dropout on, mean over the last epoch),
    the one in evaluation mode, and the one on the test rows; a row per epoch; the distribution of the last layer's
    curvature over 1,024 test rows before and after training, under four conventions; and for each perturbation clean
    and perturbed accuracy, rho (their difference) and the relative drop, rho / clean. ``step``: see
    `STEP`.
    """
    recipe = recipe_of(config).filled()
    model = with_fused_step(load_model(recipe.model, weights="random", seed=recipe.seed, **recipe.changes))
    folder = workspace()

    def probe(model: Any, test: Any) -> dict[str, Any]:
        seen = look(model, test, _ROWS)
        return {name: seen[name] for name in ("variance", "curvature", "curvature_low")}

    done = train(recipe, None if folder is None else folder / STEP, probe=probe, model=model)
    return measure(done, _before_training(recipe), config.get("draw"))


def recipe_of(config: dict[str, Any]) -> Recipe:
    """The recipe of a trial."""
    attached: list[tuple[str, dict[str, Any]]] = []
    if config["direction"] != "none":
        settings = {"direction": config["direction"], "strength": config["strength"]}
        attached.append((config.get("regulariser", "variance"), settings))
    if config.get("mask", 0.0) > 0:
        attached.append(("edge-mask", {"rate": config["mask"]}))
    return Recipe(
        config["data"], epochs=config["epochs"], rate=config.get("rate"), seed=config["seed"], regularisers=attached,
        limit=config.get("limit"), test_limit=config.get("test_limit"),
        early_stopping=config.get("early_stopping", False), changes=config.get("changes", {}),
    )  # fmt: skip


def _before_training(recipe: Recipe) -> dict[str, Any]:
    """Curvature of the model before its first step: derived from the seed alone, so a resumed run has it too."""
    from geoattn.training.inputs import image_inputs

    model = load_model(recipe.model, weights="random", seed=recipe.seed, **recipe.changes).eval()
    test = load_data(recipe.data, split="test", limit=recipe.test_limit, seed=recipe.data_seed)
    return distribution(model, image_inputs(test), _ALL_ROWS)


def distribution(model: Any, test: Any, rows: int, edges: Any = "all") -> dict[str, Any]:
    """Quantiles, mean, 5 % quantile and dip of the last layer's curvature on the first test rows, by convention."""
    seen = look(model, test, rows, edges, shape=True)
    return {
        name: {**shape, "mean": seen["curvature"][name], "low": seen["curvature_low"][name]}
        for name, shape in seen["distribution"].items()
    }


def measure(done: Trained, start: dict[str, Any], draw: int | None = None) -> dict[str, Any]:
    """What is stored of a trained L-ViT."""
    from geoattn.training.inputs import image_inputs

    recipe = done.recipe
    test = load_data(recipe.data, split="test", limit=recipe.test_limit, seed=recipe.data_seed)
    chosen = [p for p in image_perturbations() if p.name in PERTURBATIONS]
    count = min(len(test), _PERTURBED)
    first = (
        range(count) if draw is None else np.random.default_rng(draw).choice(len(test), count, replace=False).tolist()
    )
    with torch.random.fork_rng(devices=[]):
        drops = robustness(done.model, test.subset(first), chosen, examples=0, resamples=100, seed=draw or 0)
    running = done.history[-1]["running_accuracy"]
    return short({
        "step": STEP,
        "train_accuracy": done.train_accuracy, "running_accuracy": running, "test_accuracy": done.test_accuracy,
        "gap": done.train_accuracy - done.test_accuracy, "running_gap": running - done.test_accuracy,
        "steps": done.steps, "epochs": done.history[-1]["epoch"],
        "history": history_rows(done),
        "distribution": {"start": start, "end": distribution(done.model, image_inputs(test), _ALL_ROWS)},
        "perturbed": {
            name: {"clean": d.clean, "perturbed": d.perturbed, "rho": d.rho, "relative_drop": d.rho / d.clean}
            for name, d in zip(drops.names, drops.drops, strict=True)
        },
    })  # fmt: skip


def history_rows(done: Trained) -> list[dict[str, Any]]:
    """What is kept of each epoch."""
    return [{name: row[name] for name in _ROW if name in row} for row in done.history]
