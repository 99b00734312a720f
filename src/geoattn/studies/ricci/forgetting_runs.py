"""One trial of Figures 7, 11 and 12: learn a first task, then a second one, and watch the first one go."""

from __future__ import annotations

from typing import Any

import torch

from geoattn.perturbations.catastrophic_forgetting import forgetting
from geoattn.studies.engine.layer_curvature import layer_curvature
from geoattn.studies.engine.learner import Learner
from geoattn.studies.engine.tasks import PAIRS_OF_DIGITS, is_text, load_task
from geoattn.studies.ricci.trained_models import IMAGES, MODELS, SMALL_IMAGES, SMALL_TEXTS, TEXTS, settings_of

__all__ = ["image_pairs", "ordered_pairs", "pair_configs", "text_pairs", "trial"]


def ordered_pairs(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """All ordered pairs of different names."""
    return [(first, second) for first in names for second in names if first != second]


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Curves of both accuracies along the second training, their areas, and the curvature before it."""
    names, seed = (config["first"], config["second"]), config["seed"]
    trains = [load_task(name, "train", config["limit"]) for name in names]
    tests = [load_task(name, "test", config["test_limit"]) for name in names]
    texts = [text for data in trains for text in data.texts or ()]
    options = {"rate": config["rate"], "batch": config["batch"], "seed": seed}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = Learner(
            config["model"], weights=config["weights"], changes=config["changes"], classes=len(trains[0].classes),
            seed=seed, texts=texts, length=config["length"],
        )  # fmt: skip
        learner.fit(trains[0], epochs=config["epochs"], **options)
        measured = tests[0].subset(range(min(len(tests[0]), config["samples"])))
        curvature = layer_curvature(learner.model, learner.feed(measured))
        curve = forgetting(
            learner.model, tests[0], tests[1], learner.stepper(trains[1], **options), steps=config["steps"],
            every=config["every"], measure=learner.accuracy,
        )  # fmt: skip
    return {
        "steps": curve.steps.tolist(), "first": curve.first.tolist(), "second": curve.second.tolist(),
        "chance": curve.chance, "area": curve.area, "lost": curve.lost,
        "relative_area": curve.relative_area if curve.first[0] > curve.chance else None, "curvature": curvature,
    }  # fmt: skip


def pair_configs(size: str, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Both models of the paper's pair on ordered pairs of tasks."""
    configs = []
    for first, second in pairs:
        models = MODELS["texts" if is_text(first) else "images"]
        for seed in range(_SEEDS[size](first)):
            for model in models:
                settings = settings_of(size, first, model) | _LENGTHS[size](first)
                configs.append({"first": first, "second": second, "seed": seed, **settings})
    return configs


def image_pairs(size: str) -> list[tuple[str, str]]:
    """Figure 11: all ordered pairs of the three sets; at small one pair both ways, and the variants of digits."""
    if size == "smoke":
        return [("digits", "digits-inverted")]
    return ordered_pairs(IMAGES) if size == "paper" else [*PAIRS_OF_DIGITS, *ordered_pairs(SMALL_IMAGES)]


def text_pairs(size: str) -> list[tuple[str, str]]:
    """Figure 12: all ordered pairs of the three sets; at small one pair both ways."""
    if size == "smoke":
        return [("made-up-mood", "made-up-animal")]
    return ordered_pairs(TEXTS) if size == "paper" else ordered_pairs(SMALL_TEXTS)


_DIGITS = {"limit": 500, "epochs": 10}
_OTHERS = {"limit": 1000}
_SEEDS = {
    "smoke": lambda first: 2,
    "small": lambda first: 10 if first.startswith("digits") else 3,
    "paper": lambda first: 5,  # the paper shows one run of each
}
_LENGTHS = {
    "smoke": lambda first: {"steps": 4, "every": 2},
    "small": lambda first: (
        {"steps": 32, "every": 8, "test_limit": 120, "samples": 16}
        | (_DIGITS if first.startswith("digits") else _OTHERS)
    ),
    "paper": lambda first: {"steps": 1000, "every": 25, "test_limit": 2000},
}
