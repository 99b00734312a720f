"""A classifier of the zoo that learns one task after another: what the robustness studies train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.datasets.dataset import Dataset
from geoattn.datasets.feed import feed
from geoattn.models.loading import load_model, load_tokenizer
from geoattn.models.zoo import ZOO
from geoattn.perturbations.classifier_accuracy import accuracy, class_logits
from geoattn.training.inputs import make_tokenizer
from geoattn.training.interventions.edge_mask import EdgeMask

__all__ = ["Learner", "own_tokenizer"]

_VOCABULARY = 8192
_SPECIAL = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}


class Learner:
    """A model, the tokenizer it reads with (None for images), and how its pixels are normalised.

    `geoattn.training.train` trains by a recipe of the paper; here any model of the zoo is trained, on a second
    task after the first, and the tokenizer stays at hand for perturbed texts.

    Parameters
    ----------
    name, weights, changes
        As in `load_model`.
    classes, seed
        Of the head; of the random weights.
    texts
        Of the training sets; a model with random weights gets a tokenizer made from them.
    length
        Longest text, in tokens.
    """

    def __init__(
        self, name: str, *, weights: Any = "random", changes: dict[str, Any] | None = None, classes: int = 10,
        seed: int = 0, texts: Any = (), length: int = 128,
    ) -> None:  # fmt: skip
        changes, entry, self.tokenizer = dict(changes or {}), ZOO[name], None
        if entry.kind == "text":
            if weights == "random":
                self.tokenizer = own_tokenizer(tuple(texts), length)
                changes.setdefault("vocab_size", len(self.tokenizer))
            else:
                self.tokenizer = load_tokenizer(name)
                self.tokenizer.model_max_length = length
        self.model: nn.Module = load_model(name, weights=weights, classes=classes, seed=seed, **changes)
        normal = {"mean": entry.mean, "std": entry.std} if entry.mean and weights == "pretrained" else {}
        self.pixels: dict[str, Any] = {key: torch.tensor(value)[:, None, None] for key, value in normal.items()}
        if entry.kind != "text" and not self.pixels:
            self.pixels = {"mean": 0.5, "std": 0.5}  # random weights have no normalisation of their own

    def feed(self, data: Dataset) -> Any:
        """Batches as the model takes them."""
        return feed(data, self.model, self.tokenizer, **self.pixels)

    def accuracy(self, model: nn.Module, data: Dataset) -> float:
        """Share of the rows that a model, this one by rights, gets right; for `forgetting`."""
        return accuracy(model, data, self.tokenizer, **self.pixels)

    def stepper(self, data: Dataset, *, rate: float, batch: int, seed: int) -> Callable[[nn.Module, int], None]:
        """One step of Adam on the cross entropy, to be called with (model, 0), (model, 1), ...

        Rows are shuffled anew each epoch, by the seed.
        """
        adam = torch.optim.Adam(self.model.parameters(), lr=rate)
        per_epoch, targets = -(-len(data) // batch), data.targets()

        def step(model: nn.Module, k: int) -> None:
            epoch, place = divmod(k, per_epoch)
            order = np.random.default_rng([seed, epoch]).permutation(len(data))
            rows = order[place * batch : (place + 1) * batch]
            model.train()
            loss = functional.cross_entropy(class_logits(model, self._batch(data, rows)), targets[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()

        return step

    def fit(
        self, data: Dataset, *, epochs: int, rate: float, batch: int, seed: int, mask: float = 0.0,
        stop_at: float | None = None,
    ) -> int:  # fmt: skip
        """Train, and return the number of epochs done. ``mask``: rate of an `EdgeMask` while training.

        With ``stop_at`` a tenth of the rows is held out, and training ends when its accuracy reaches that.
        """
        held = None
        if stop_at is not None:
            shuffled = np.random.default_rng(1).permutation(len(data))
            cut = max(1, len(data) // 10)
            data, held = data.subset(np.sort(shuffled[cut:])), data.subset(np.sort(shuffled[:cut]))
        step, per_epoch = self.stepper(data, rate=rate, batch=batch, seed=seed), -(-len(data) // batch)
        done = 0
        with EdgeMask(mask).attach(self.model):
            for done in range(1, epochs + 1):
                for k in range((done - 1) * per_epoch, done * per_epoch):
                    step(self.model, k)
                if held is not None and stop_at is not None and self.accuracy(self.model, held) >= stop_at:
                    break
        self.model.eval()
        return done

    def _batch(self, data: Dataset, rows: np.ndarray) -> dict[str, Tensor] | Tensor:
        if data.texts is not None:
            assert self.tokenizer is not None
            texts = [data.texts[i] for i in rows]
            coded = self.tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
            return dict(coded)
        parts = list(self.feed(data.subset(rows)))
        if isinstance(parts[0], Tensor):
            return torch.cat(parts)
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def own_tokenizer(texts: tuple[str, ...], length: int) -> Any:
    """The tokenizer of `make_tokenizer`, as transformers takes it."""
    from transformers import PreTrainedTokenizerFast

    made = make_tokenizer(texts, _VOCABULARY)
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=length, model_input_names=names, **_SPECIAL
    )  # fmt: skip
