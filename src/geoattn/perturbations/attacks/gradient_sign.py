"""FGSM: inputs moved along the sign of the gradient of the loss, over a grid of step sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.datasets.dataset import Dataset
from geoattn.perturbations.classifier_accuracy import AccuracyDrop, accuracy_drop, class_logits, evaluating, to_device

if TYPE_CHECKING:
    import pandas as pd
from geoattn.datasets.pixel_norm import pixel_norm

__all__ = ["Adversarial", "fgsm"]

_STEPS = (0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255, 32 / 255)


@dataclass(frozen=True, eq=False, repr=False)
class Adversarial(Displayed):
    """Accuracy drops over step sizes, in the order of ``steps``.

    ``predicted`` (steps, b) are classes. ``unit`` is the unit of the steps. ``moved`` (b,) marks the samples whose
    gradient is not 0: FGSM cannot attack the others, and their accuracy says nothing about robustness.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import fgsm
    >>> digits = ga.load_data("digits", split="test", limit=32)
    >>> attack = fgsm(ga.load_model("lvit-digits"), digits, steps=(0.0, 0.1))
    >>> attack.to_pandas()[["step", "clean", "perturbed"]].to_numpy().round(2).tolist()
    [[0.0, 0.84, 0.84], [0.1, 0.84, 0.19]]
    >>> attack.unit, bool(attack.moved.all())
    ('pixels in [0, 1]', True)
    """

    steps: tuple[float, ...]
    unit: str
    drops: tuple[AccuracyDrop, ...]
    labels: Int[np.ndarray, " b"]
    predicted_clean: Int[np.ndarray, " b"]
    predicted: Int[np.ndarray, "k b"]
    moved: Bool[np.ndarray, " b"]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        """One row per step."""
        import pandas as pd

        names = ("rho", "low", "high", "clean", "perturbed", "n", "broken", "repaired", "p_value")
        table = pd.DataFrame([[getattr(d, c) for c in names] for d in self.drops], columns=pd.Index(names))
        table.insert(0, "step", self.steps)
        table["unit"], table["moved"] = self.unit, float(self.moved.mean())
        return table


def fgsm(
    model: nn.Module,
    dataset: Dataset,
    tokenizer: Any = None,
    *,
    steps: Sequence[float] = _STEPS,
    mean: Any = None,
    std: Any = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Adversarial:
    r"""Accuracy under the fast gradient sign method.

    .. math:: x' = x + \epsilon \, \mathrm{sign} \nabla_x \ell(f(x), y)

    :math:`\ell` is the cross entropy with the true label y; one gradient per sample serves all step sizes. For the loss
    linearised at x no other change of size :math:`\epsilon` in the maximum norm raises it as much.

    Images: x are pixels in [0, 1] and x' is cut to [0, 1]; for a model with a size of its own, after resizing, and
    :math:`\epsilon` is in pixels before normalising. Texts: x are the token embeddings (before positions), of real
    tokens only, and :math:`\epsilon` is in root mean squares of the entries of those embeddings; x' is no text.

    Parameters
    ----------
    steps
        Non-negative, ascending. 0 gives the clean accuracy.
    mean, std
        Of the normalisation, see `feed`.
    level, resamples, seed
        Of the intervals, see `accuracy_drop`.

    Notes
    -----
    A weak attack: one step. A low rho may mean that the gradient is masked rather than that the model is robust.
    Reference: Goodfellow, Shlens and Szegedy, Explaining and harnessing adversarial examples, 2015.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import fgsm
    >>> digits = ga.load_data("digits", split="test").subset(range(64))
    >>> result = fgsm(ga.load_model("lvit-digits"), digits, steps=(0.0, 0.05, 0.1))
    >>> [drop.rho for drop in result.drops][0], result.drops[2].rho > 0.2
    (0.0, True)
    """
    grid = tuple(float(step) for step in steps)
    if not grid or not all(0 <= step < np.inf for step in grid) or list(grid) != sorted(set(grid)):
        raise GeoattnError(f"steps must be non-negative, ascending and different, at least one; got {tuple(steps)!r}.")
    if len(dataset) == 0:
        raise GeoattnError(f"{dataset.name} holds no sample.")
    from geoattn.datasets.feed import feed

    found: list[list[np.ndarray]] = []
    moved: list[np.ndarray] = []
    targets, first = dataset.targets(), 0
    with evaluating(model), torch.enable_grad():
        norm = pixel_norm(model, mean, std)
        for raw in feed(dataset, model, tokenizer, mean=mean, std=std):
            batch = to_device(raw, model)
            attack = _Embeddings(model, batch) if dataset.texts is not None else _Pixels(batch, *norm)
            labels = targets[first : first + len(attack.start)].to(attack.start.device)
            first += len(attack.start)
            sign, clean = _sign(model, attack, labels)
            after = [_predict(model, attack.batch(attack.move(sign, step))) for step in grid]
            found.append([clean, *after])
            moved.append(sign.flatten(1).any(1).cpu().numpy())
    before, *after = (np.concatenate(part) for part in zip(*found, strict=True))
    right = before == dataset.labels
    options = {"level": level, "resamples": resamples, "seed": seed}
    return Adversarial(
        steps=grid,
        unit="pixels in [0, 1]" if dataset.texts is None else "rms of the embeddings",
        drops=tuple(accuracy_drop(right, a == dataset.labels, **options) for a in after),
        labels=dataset.labels, predicted_clean=before, predicted=np.stack(after), moved=np.concatenate(moved),
        settings={
            "data": dataset.name, "split": dataset.split, "checksum": dataset.checksum, "samples": len(dataset),
            "model": type(model).__name__, **options, "geoattn": __version__,
        },
    )  # fmt: skip


class _Pixels:
    """Steps in pixels; the model sees them normalised."""

    def __init__(self, batch: dict[str, Tensor] | Tensor, mean: float | Tensor, std: float | Tensor) -> None:
        self._bare = isinstance(batch, Tensor)
        self.start = batch if isinstance(batch, Tensor) else batch["pixel_values"]
        device = self.start.device
        place, scale = (torch.as_tensor(v, dtype=self.start.dtype, device=device) for v in (mean, std))
        self._scale = torch.ones_like(scale) if self._bare else scale
        self._low = torch.zeros_like(place) if self._bare else -place / scale
        self._high = torch.ones_like(place) if self._bare else (1 - place) / scale

    def move(self, sign: Tensor, step: float) -> Tensor:
        if step == 0:
            return self.start  # resizing may have left [0, 1] by rounding: nothing to cut
        return torch.minimum(torch.maximum(self.start + step * sign / self._scale, self._low), self._high)

    def batch(self, x: Tensor) -> dict[str, Tensor] | Tensor:
        return x if self._bare else {"pixel_values": x}


class _Embeddings:
    """Steps in root mean squares of the embeddings of the real tokens."""

    def __init__(self, model: nn.Module, batch: dict[str, Tensor] | Tensor) -> None:
        table = getattr(model, "get_input_embeddings", lambda: None)()
        if not isinstance(batch, dict) or not isinstance(table, nn.Module):
            raise GeoattnError(
                f"FGSM on texts needs a model with get_input_embeddings() and inputs_embeds, as in transformers; got "
                f"{type(model).__name__}."
            )
        ids = batch["input_ids"]
        self.start = table(ids).detach()
        mask = batch.get("attention_mask")
        real = torch.ones_like(ids) if mask is None else mask
        self._real = real.to(self.start.dtype)[..., None]
        count = self._real.sum() * self.start.shape[-1]
        self._rms = ((self.start * self._real).square().sum() / count).sqrt()
        self._rest = {key: value for key, value in batch.items() if key != "input_ids"}

    def move(self, sign: Tensor, step: float) -> Tensor:
        return self.start + step * self._rms * sign * self._real

    def batch(self, x: Tensor) -> dict[str, Tensor]:
        return {"inputs_embeds": x, **self._rest}


def _sign(model: nn.Module, attack: _Pixels | _Embeddings, labels: Tensor) -> tuple[Tensor, np.ndarray]:
    """Sign of the gradient, and the clean predictions. Sums over samples: one does not change that of another."""
    x = attack.start.detach().requires_grad_(True)
    logits = class_logits(model, attack.batch(x))
    if labels.max() >= logits.shape[1]:
        raise GeoattnError(f"the model has {logits.shape[1]} classes, but the data has label {int(labels.max())}.")
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    if not torch.isfinite(loss):
        raise GeoattnError("the loss of the model is not finite; FGSM has no gradient to follow.")
    (gradient,) = torch.autograd.grad(loss, x)
    return gradient.sign(), logits.detach().argmax(-1).cpu().numpy()


def _predict(model: nn.Module, batch: dict[str, Tensor] | Tensor) -> np.ndarray:
    with torch.no_grad():
        return class_logits(model, batch).argmax(-1).cpu().numpy()
