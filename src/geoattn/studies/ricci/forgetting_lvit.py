"""L-ViT that learns Fashion-MNIST with a regulariser, then MNIST without one: one trial of forgetting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geoattn.datasets.loader import load_data
from geoattn.models.fused_step import with_fused_step
from geoattn.models.loading import load_model
from geoattn.perturbations.catastrophic_forgetting import forgetting_area
from geoattn.runs.trial import workspace
from geoattn.studies.ricci.adjusted_lvit import STEP, distribution, recipe_of
from geoattn.studies.ricci.adjusted_training import look, short
from geoattn.training.inputs import image_inputs
from geoattn.training.loop import evaluate, train
from geoattn.training.recipe import Recipe

__all__ = ["trial"]

_ROWS = 1024
_PARTS = 4  # of an epoch of the second task, at the ends of which the first one is tested


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Learn ``first`` for ``epochs`` with the regulariser, then ``second`` for as long without it.

    The second training goes in quarters of an epoch, each with an optimiser of its own, and the accuracy on the test
    rows of the first task is taken after each. ``area``: see `geoattn.perturbations.forgetting_area`. ``lost``: the
    accuracy before minus after.
    """
    folder = workspace()
    recipe = recipe_of({**config, "data": config["first"]}).filled()
    model = with_fused_step(load_model(recipe.model, weights="random", seed=recipe.seed))
    first = train(recipe, _part(folder, "first"), model=model)
    tests = {
        name: image_inputs(load_data(config[name], split="test", limit=config.get("test_limit")))
        for name in ("first", "second")
    }
    before = {"accuracy": first.test_accuracy, "train_accuracy": first.train_accuracy,
              "variance": look(model, tests["first"], 64)["variance"],
              "curvature": distribution(model, tests["first"], _ROWS)}  # fmt: skip
    limit = config.get("limit")
    rows = len(load_data(config["second"], split="train", limit=limit))
    curve, other, steps = [first.test_accuracy], [evaluate(model, tests["second"])], [0.0]
    for part in range(_PARTS * config["epochs"]):
        # each part draws its own rows of the second task; seeds differ so that parts differ
        second = Recipe(
            config["second"], epochs=1, seed=10_000 * (config["seed"] + 1) + part, data_seed=part,
            limit=max(1, rows // _PARTS), test_limit=config.get("test_limit"), rate=config.get("rate"),
        )  # fmt: skip
        train(second, _part(folder, f"second-{part}"), model=model)
        curve.append(evaluate(model, tests["first"]))
        other.append(evaluate(model, tests["second"]))
        steps.append((part + 1) / _PARTS)
    return short({
        "step": STEP, "before": before, "epochs": steps, "first": curve, "second": other,
        "area": forgetting_area(curve, steps), "lost": curve[0] - curve[-1],
    })  # fmt: skip


def _part(folder: Path | None, name: str) -> Path | None:
    """A folder for one of the trainings: one that is finished is read from its checkpoint when the trial resumes."""
    return None if folder is None else folder / STEP / name
