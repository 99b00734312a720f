"""One trial of Figures 3, 6 and 8: train a model on a task, then measure its curvature and its robustness."""

from __future__ import annotations

from typing import Any

import torch

from geoattn.perturbations.attacks.gradient_sign import fgsm
from geoattn.perturbations.paper import image_perturbations, text_perturbations
from geoattn.perturbations.robustness_table import robustness
from geoattn.perturbations.text import vocabulary_of
from geoattn.studies.engine.layer_curvature import layer_curvature
from geoattn.studies.engine.learner import Learner
from geoattn.studies.engine.tasks import is_text, load_task

__all__ = [
    "APPENDIX_E3",
    "IMAGES",
    "MODELS",
    "SECTION_5",
    "SMALL_IMAGES",
    "SMALL_TEXTS",
    "TEXTS",
    "main_perturbation",
    "settings_of",
    "train_and_measure",
    "trial",
]

IMAGES, TEXTS = ("mnist", "fashion-mnist", "cifar10"), ("sst2", "imdb", "headlines")
#: The sets that the small size takes: one pair of each medium.
SMALL_IMAGES, SMALL_TEXTS = ("fashion-mnist", "cifar10"), ("sst2", "headlines")
#: The pairs of models of the paper: by its account the second one of each has the less positive curvature.
MODELS = {"images": ("vit-b16", "deit-b16"), "texts": ("electra-small", "bert-tiny")}
#: Perturbations by their names in `image_perturbations` and `text_perturbations`; the first one gives rho.
SECTION_5 = {
    "images": ("flip + blur + rotation 0.4", "flip + blur + rotation 0.2"),
    "texts": ("word swap 0.4",),
}
APPENDIX_E3 = {
    "images": ("elastic + perspective",),
    "texts": ("characters + words 0.2",),
}
_MAIN = tuple(names[0] for choice in (SECTION_5, APPENDIX_E3) for names in choice.values())
_FGSM = {"images": 8 / 255, "texts": 0.05}
_SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
_CHANGES = {
    "vit-b16": {**_SMALL, "image_size": 32, "patch_size": 8}, "deit-b16": {**_SMALL, "image_size": 32, "patch_size": 8},
    "bert-tiny": {}, "electra-small": {**_SMALL, "hidden_size": 128, "embedding_size": 64, "intermediate_size": 256},
}  # fmt: skip
_OF_DIGITS = {"image_size": 8, "patch_size": 2, "num_channels": 1}  # 16 patches, like the others
_TINY = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}


def settings_of(size: str, data: str, model: str) -> dict[str, Any]:
    """Model and training of a size.

    paper: pretrained weights, two epochs, Appendix D. small: the same architectures made small, from random weights,
    because the pretrained ones are on the hub only. smoke: as small as can be.
    """
    text = is_text(data)
    if size == "paper":
        rate, batch = (2e-5, 16) if text else (2.5e-4, 64)
        return {"model": model, "weights": "pretrained", "changes": {}, "epochs": 2, "rate": rate, "batch": batch,
                "limit": None, "test_limit": None, "length": 128, "samples": 1024}  # fmt: skip
    if size == "smoke":
        changes = _TINY if text else {**_TINY, "image_size": 8, "patch_size": 4}
        return {"model": model, "weights": "random", "changes": changes, "epochs": 1, "rate": 1e-3, "batch": 32,
                "limit": 64, "test_limit": 24, "length": 12, "samples": 6}  # fmt: skip
    common = {"model": model, "weights": "random", "changes": _CHANGES[model], "length": 20, "test_limit": 240}
    if text:
        return {**common, "epochs": 3, "rate": 5e-4, "batch": 32, "limit": 1500, "samples": 24}
    common |= {"rate": 2e-3, "batch": 64, "samples": 32}
    if data.startswith("digits"):
        return {**common, "changes": {**_CHANGES[model], **_OF_DIGITS}, "epochs": 10, "limit": 700}
    return {**common, "epochs": 6, "limit": 1000}


def main_perturbation(result: dict[str, Any]) -> str:
    """The perturbation whose rho a claim is about: by name, since a stored result has lost the order of its keys.

    >>> main_perturbation({"rho": {"FGSM": 0.5, "word swap 0.4": 0.1}})
    'word swap 0.4'
    """
    return next(name for name in _MAIN if name in result["rho"])


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train by a configuration; accuracies, rho of each perturbation, curvature of the first and last layer."""
    return train_and_measure(config, SECTION_5)


def train_and_measure(config: dict[str, Any], perturbations: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The trial itself, for a choice of perturbations by medium."""
    data = config["data"]
    medium = "texts" if is_text(data) else "images"
    train, test = (load_task(data, split, config[key]) for split, key in (("train", "limit"), ("test", "test_limit")))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["seed"])
        learner = Learner(
            config["model"], weights=config["weights"], changes=config["changes"], classes=len(train.classes),
            seed=config["seed"], texts=train.texts or (), length=config["length"],
        )  # fmt: skip
        epochs = learner.fit(
            train, epochs=config["epochs"], rate=config["rate"], batch=config["batch"], seed=config["seed"],
            mask=config.get("mask", 0.0), stop_at=config.get("stop_at"),
        )  # fmt: skip
    if train.texts is None:
        assert train.images is not None
        size = train.images.shape[-1]
        offered = image_perturbations(size if size < 20 else None)
    else:
        offered = text_perturbations(vocabulary_of(train.texts, 2000))
    chosen = [p for name in perturbations[medium] for p in offered if p.name.startswith(name)]
    found = robustness(learner.model, test, chosen, learner.tokenizer, examples=0, **learner.pixels)
    attack = fgsm(learner.model, test, learner.tokenizer, steps=(_FGSM[medium],), **learner.pixels)
    rho = {name: drop.rho for name, drop in zip(found.names, found.drops, strict=True)}
    rho["FGSM"] = attack.drops[0].rho
    measured = test.subset(range(min(len(test), config["samples"])))
    return {
        "train_accuracy": learner.accuracy(learner.model, train), "test_accuracy": found.drops[0].clean,
        "epochs": epochs, "rho": rho, "curvature": layer_curvature(learner.model, learner.feed(measured)),
    }  # fmt: skip
