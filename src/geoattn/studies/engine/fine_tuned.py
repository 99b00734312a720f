"""A pretrained text model fine-tuned as a classifier: what the studies of robustness and of errors start from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.datasets.loader import load_data
from geoattn.models.loading import load_model, load_tokenizer
from geoattn.models.quick_dropout import with_quick_dropout
from geoattn.models.quick_linear import with_quick_linear
from geoattn.runs.trial import workspace
from geoattn.studies.engine.learner import own_tokenizer
from geoattn.studies.engine.pretrained import pretrained_folder
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe

__all__ = ["FINE_TUNED", "FineTuned", "fine_tune"]

#: Learning rates by name of the model. random-bert is a small BERT without training, for smoke runs.
FINE_TUNED = {"bert-tiny-questions": 3e-4, "minilm": 1e-4, "random-bert": 1e-3}
_TEST_ROWS = 2000  # on which accuracy is reported after each epoch


@dataclass(frozen=True, eq=False)
class FineTuned:
    """A classifier in evaluation mode, its tokenizer, its accuracies, and one row of ``history`` per epoch."""

    model: nn.Module
    tokenizer: Any
    train_accuracy: float
    test_accuracy: float
    history: tuple[dict[str, Any], ...]


def fine_tune(
    name: str, data: str, *, seed: int = 0, rows: int = 8000, epochs: int = 2, length: int = 128, batch: int = 32,
    quick: bool = False,
) -> FineTuned:  # fmt: skip
    """Fine-tune a model of `FINE_TUNED` on a text data set: Adam, all weights, a rate that does not change.

    The weights depend on the arguments alone. A checkpoint after each epoch and every 50 steps is kept in the folder
    that ``GEOATTN_FINE_TUNED`` names, or else in the workspace of the trial: a run that was cut short goes on, and a
    finished one is read. With the folder, studies that fine-tune the same model do it once. Tokens of the texts come
    from the tokenizer of the model, cut at ``length``. ``quick``: linear layers and dropouts are those of
    `geoattn.models.quick_linear` and `geoattn.models.quick_dropout`, in a third less time; weights then differ.
    """
    if name not in FINE_TUNED:
        raise GeoattnError(f"unknown model {name!r}; expected one of {', '.join(FINE_TUNED)}.")
    recipe = Recipe(
        data, epochs=epochs, batch=batch, rate=FINE_TUNED[name], limit=rows, test_limit=_TEST_ROWS, seed=seed,
        length=length,
    )  # fmt: skip
    model, tokenizer = _start(name, recipe)
    if quick:
        model = with_quick_dropout(with_quick_linear(model))
    done = train(
        recipe, _kept(f"{name}-quick" if quick else name, recipe), checkpoint_every=50, model=model, tokenizer=tokenizer
    )
    return FineTuned(done.model, tokenizer, done.train_accuracy, done.test_accuracy, done.history)


def _start(name: str, recipe: Recipe) -> tuple[nn.Module, Any]:
    """The classifier before its first step, with a new head unless its own has two classes, and its tokenizer."""
    if name == "random-bert":
        texts = load_data(recipe.data, split="train", limit=recipe.limit, seed=recipe.data_seed).texts
        tokenizer = own_tokenizer(texts or (), recipe.length)
        changes = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16}
        return load_model("bert-tiny", weights="random", classes=2, seed=recipe.seed, **changes), tokenizer
    folder = pretrained_folder(name)
    tokenizer = load_tokenizer(folder)
    tokenizer.model_max_length = recipe.length
    return load_model(folder, classes=2, seed=recipe.seed), tokenizer


def _kept(name: str, recipe: Recipe) -> Path | None:
    """Where the checkpoint of a run is; None: nowhere."""
    shared = os.environ.get("GEOATTN_FINE_TUNED")
    root = Path(shared) if shared else workspace()
    return None if root is None else root / f"{name}-{recipe.data}-{recipe.key}"
