"""Figure 6 on pretrained models: BERT-Tiny against MiniLM, fine-tuned on three text sets, on perturbed texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from geoattn.datasets.loader import load_data
from geoattn.perturbations.paper import text_perturbations
from geoattn.perturbations.robustness_table import robustness
from geoattn.perturbations.text import vocabulary_of
from geoattn.studies.engine.fine_tuned import fine_tune
from geoattn.studies.engine.last_layer import mean_curvature
from geoattn.studies.engine.study import Study
from geoattn.studies.ricci.adjusted_training import short
from geoattn.studies.ricci.model_pair import ModelPair, packed

__all__ = ["STUDY", "trial"]

_TEXTS = ("sst2", "imdb", "headlines")
_SMALL, _LARGE = "bert-tiny-questions", "minilm"
#: Of Section 5 and of Appendix E.3; the first one is the endpoint.
_PERTURBATIONS = ("word swap 0.4", "characters + words 0.2")
_CURVED, _EDGES = 32, 64  # test texts whose last layer is measured, and edges of each of its maps
_PAIR = ModelPair(_SMALL, _LARGE, _PERTURBATIONS, "texts")


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune one model on one data set, and measure it on clean and perturbed test texts.

    ``right`` has a bit for each test row, as hexadecimal numbers: whether it was classified right, clean and under each
    perturbation. ``curvature`` is the mean over edges of the last layer, by convention.
    """
    sizes = {name: config[name] for name in ("rows", "epochs", "length")}
    tuned = fine_tune(config["model"], config["data"], seed=config["seed"], quick=True, **sizes)
    training = load_data(config["data"], split="train", limit=config["rows"], seed=0)
    test = load_data(config["data"], split="test", limit=config["test_rows"], seed=0)
    assert training.texts is not None
    chosen = [p for p in text_perturbations(vocabulary_of(training.texts, 2000)) if p.name in _PERTURBATIONS]
    with torch.random.fork_rng(devices=[]):
        found = robustness(tuned.model, test, chosen, tuned.tokenizer, examples=0, resamples=100)
    labels = np.asarray(test.targets())
    right = {"clean": found.predicted_clean == labels}
    right |= {name: row == labels for name, row in zip(found.names, found.predicted, strict=True)}
    drops = {
        name: {"clean": d.clean, "perturbed": d.perturbed, "rho": d.rho, "relative_drop": d.rho / d.clean}
        for name, d in zip(found.names, found.drops, strict=True)
    }
    return short({
        "test_accuracy": tuned.test_accuracy, "train_accuracy": tuned.train_accuracy, "perturbed": drops,
        "right": {name: packed(row) for name, row in right.items()},
        "curvature": mean_curvature(tuned.model, _tokens(tuned, test.texts or (), config["length"]), _EDGES),
    })  # fmt: skip


def _tokens(tuned: Any, texts: tuple[str, ...], length: int) -> Iterator[dict[str, Any]]:
    for text in texts[:_CURVED]:
        batch = tuned.tokenizer(text, return_tensors="pt", truncation=True, max_length=length)
        yield {"input_ids": batch["input_ids"]}


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: 8,000 rows, 2 epochs (IMDb: 1), 128 tokens, 3 seeds; small: one seed; smoke: a model without training."""
    if size == "smoke":
        common = {"rows": 64, "epochs": 1, "length": 16, "test_rows": 40}
        return [{"model": "random-bert", "data": "sst2", "seed": 0, **common}]
    common = {"rows": 8000, "length": 128, "test_rows": 2000}
    return [
        {"model": model, "data": data, "seed": seed, "epochs": 1 if data == "imdb" else 2, **common}
        for seed in range(3 if size == "paper" else 1)
        for model in (_SMALL, _LARGE)
        for data in _TEXTS
    ]


STUDY = Study(
    "pretrained-robustness", 1, "geoattn.studies.ricci.pretrained_robustness:trial", _sizes, _PAIR.table, _PAIR.figure,
    _PAIR.findings, paper="ricci", place="Section 5, Figure 6",
    how="BERT-Tiny (fine-tuned on questions before) and MiniLM, fine-tuned on 8,000 rows for 2 epochs (IMDb: 1) at 128"
    " tokens;"
    " paired by seed and pooled over data sets. It is one pair of models: it shows which of the two is more robust and"
    " which has the higher curvature, and cannot show that one causes the other.", partial=True,
    deviations="MiniLM in place of ELECTRA-Small; 3 seeds.",
    accuracy=_PAIR.accuracy,
)  # fmt: skip
