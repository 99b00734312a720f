"""BERT-Tiny from random weights with the variance of attention pushed up, down or not at all: one trial."""

from __future__ import annotations

from typing import Any

import torch

from geoattn.datasets.loader import load_data
from geoattn.models.loading import load_model
from geoattn.models.quick_dropout import with_quick_dropout
from geoattn.models.quick_linear import with_quick_linear
from geoattn.perturbations.paper import text_perturbations
from geoattn.perturbations.robustness_table import robustness
from geoattn.perturbations.text import vocabulary_of
from geoattn.runs.trial import workspace
from geoattn.studies.engine.learner import own_tokenizer
from geoattn.studies.ricci.adjusted_lvit import distribution, history_rows
from geoattn.studies.ricci.adjusted_training import look, short
from geoattn.training.inputs import make_tokenizer, text_inputs
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe

__all__ = ["PERTURBATIONS", "trial"]

PERTURBATIONS = ("word swap 0.4", "characters + words 0.2")
_ROWS, _ALL_ROWS, _EDGES = (
    16,
    128,
    64,
)  # test texts whose attention is measured: each epoch, and in the end; edges a map
_PERTURBED = 2000


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train one BERT-Tiny and measure it as `geoattn.studies.ricci.adjusted_lvit.trial` does L-ViT.

    ``config``: data, seed, direction, strength, epochs, rate, length (tokens), limit. Curvature is that of 64 edges of
    each map of the last layer, over 128 test texts.
    """
    attached = []
    if config["direction"] != "none":
        attached.append(("variance", {"direction": config["direction"], "strength": config["strength"]}))
    recipe = Recipe(
        config["data"], epochs=config["epochs"], rate=config["rate"], seed=config["seed"], regularisers=attached,
        limit=config.get("limit"), test_limit=config.get("test_limit"), length=config["length"],
    ).filled()  # fmt: skip

    def probe(model: Any, test: Any) -> dict[str, Any]:
        seen = look(model, test, _ROWS, _EDGES)
        return {name: seen[name] for name in ("variance", "curvature", "curvature_low")}

    training = load_data(recipe.data, split="train", limit=recipe.limit, seed=recipe.data_seed)
    test = load_data(recipe.data, split="test", limit=recipe.test_limit, seed=recipe.data_seed)
    assert training.texts is not None
    words = make_tokenizer(training.texts, 8192)
    model = load_model(
        recipe.model, weights="random", classes=len(training.classes), seed=recipe.seed,
        vocab_size=words.get_vocab_size(),
    )  # fmt: skip
    quick = with_quick_dropout(with_quick_linear(model))
    done = train(recipe, workspace(), probe=probe, model=quick, tokenizer=words)
    inputs = text_inputs(test, words, recipe.length)
    chosen = [p for p in text_perturbations(vocabulary_of(training.texts, 2000)) if p.name in PERTURBATIONS]
    rows = test.subset(range(min(len(test), _PERTURBED)))
    with torch.random.fork_rng(devices=[]):
        tokenizer = own_tokenizer(training.texts, recipe.length)
        drops = robustness(done.model, rows, chosen, tokenizer, examples=0, resamples=100)
    running = done.history[-1]["running_accuracy"]
    return short({
        "train_accuracy": done.train_accuracy, "running_accuracy": running, "test_accuracy": done.test_accuracy,
        "gap": done.train_accuracy - done.test_accuracy, "running_gap": running - done.test_accuracy,
        "steps": done.steps, "epochs": done.history[-1]["epoch"], "history": history_rows(done),
        "distribution": {"end": distribution(done.model, inputs, _ALL_ROWS, _EDGES)},
        "perturbed": {
            name: {"clean": d.clean, "perturbed": d.perturbed, "rho": d.rho, "relative_drop": d.rho / d.clean}
            for name, d in zip(drops.names, drops.drops, strict=True)
        },
    })  # fmt: skip
