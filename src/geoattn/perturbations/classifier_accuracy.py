"""What a perturbation costs: accuracy on clean inputs minus accuracy on perturbed ones, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

if TYPE_CHECKING:
    from geoattn.datasets.dataset import Dataset

__all__ = ["AccuracyDrop", "accuracy", "accuracy_drop", "class_logits", "evaluating", "predictions", "to_device"]


@dataclass(frozen=True, repr=False)
class AccuracyDrop(Displayed):
    r"""The drop in accuracy of one model between two versions of the same inputs.

    The drop is :math:`\rho = a_{clean} - a_{perturbed}` (equation 8 of the Ricci paper), positive when the perturbation
    hurts.
    ``broken`` counts the samples that were right and became wrong, ``repaired`` those that were wrong and became right:
    :math:`\rho` = (broken - repaired) / n. ``low`` and ``high`` bound it at ``level``; ``method`` says how.
    ``p_value`` is that of the exact McNemar test of rho = 0, two-sided.

    Examples
    --------
    >>> from geoattn.perturbations import accuracy_drop
    >>> drop = accuracy_drop([True] * 90 + [False] * 10, [True] * 80 + [False] * 17 + [True] * 3)
    >>> drop.clean, drop.perturbed, round(drop.rho, 6), drop.low <= drop.rho <= drop.high, drop.method
    (0.9, 0.83, 0.07, True, 'paired bootstrap')
    """

    rho: float
    low: float
    high: float
    clean: float
    perturbed: float
    n: int
    broken: int
    repaired: int
    p_value: float
    level: float
    method: str
    settings: dict[str, Any] = field(default_factory=dict)


def accuracy_drop(
    clean: Any, perturbed: Any, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> AccuracyDrop:
    r"""The drop rho with a paired bootstrap interval and the exact McNemar test.

    Parameters
    ----------
    clean, perturbed
        (n,) bool: whether the model was right on each sample, in the same order.
    resamples
        Of samples, clean and perturbed together; the interval is from quantile to quantile (percentile bootstrap).
        A resample only matters through how many samples it holds that were broken, repaired or neither, which is
        multinomial, so the cost does not grow with n.

    Notes
    -----
    When all samples agree (nothing broken, nothing repaired) the bootstrap has no width whatever n is. Then the
    interval is exact instead: at most :math:`u = 1 - (1 - level)^{1/n}` of the population can be otherwise.

    The uncertainty is that of the sample of inputs; the model is given. Of a training procedure, compare seeds: see
    `paired_difference`.

    Examples
    --------
    >>> from geoattn.perturbations import accuracy_drop
    >>> drop = accuracy_drop([True] * 90 + [False] * 10, [True] * 80 + [False] * 17 + [True] * 3)
    >>> round(drop.rho, 3), drop.broken, drop.repaired, round(drop.p_value, 4)
    (0.07, 10, 3, 0.0923)
    >>> drop.low < 0.07 < drop.high
    True
    """
    right, after = _read_right("clean", clean), _read_right("perturbed", perturbed)
    if right.shape != after.shape:
        raise GeoattnError(f"clean and perturbed must be of the same samples; got {len(right)} and {len(after)}.")
    if not 0 < level < 1:
        raise GeoattnError(f"level must lie between 0 and 1; got {level!r}.")
    if resamples < 100:
        raise GeoattnError(f"resamples must be at least 100; got {resamples!r}.")
    from scipy.stats import binomtest

    n = len(right)
    broken, repaired = int((right & ~after).sum()), int((~right & after).sum())
    rho = (broken - repaired) / n
    if max(broken, repaired, n - broken - repaired) == n:  # all the same
        rest = 1 - (1 - level) ** (1 / n)
        width = rest if rho == 0 else 2 * rest
        low, high, method = max(-1.0, rho - width), min(1.0, rho + width), "exact, all samples agree"
    else:
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n, [broken / n, repaired / n, 1 - (broken + repaired) / n], size=resamples)
        drops = (counts[:, 0] - counts[:, 1]) / n
        low, high = map(float, np.quantile(drops, [(1 - level) / 2, (1 + level) / 2]))
        method = "paired bootstrap"
    changed = broken + repaired
    return AccuracyDrop(
        rho=rho, low=low, high=high, clean=float(right.mean()), perturbed=float(after.mean()), n=n, broken=broken,
        repaired=repaired, p_value=float(binomtest(broken, changed).pvalue) if changed else 1.0, level=level,
        method=method, settings={"resamples": resamples, "seed": seed},
    )  # fmt: skip


def predictions(
    model: nn.Module, dataset: Dataset, tokenizer: Any = None, *, mean: Any = None, std: Any = None
) -> Int[np.ndarray, " b"]:
    """The class that a classifier gives to each sample: the largest logit, without dropout.

    Inputs are made as `feed` makes them; the mode of the model is put back afterwards.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import predictions
    >>> digits = ga.load_data("digits", split="test")
    >>> round(float((predictions(ga.load_model("lvit-digits"), digits) == digits.labels).mean()), 2)
    0.91
    """
    from geoattn.datasets.feed import feed

    found = []
    with evaluating(model), torch.no_grad():
        for batch in feed(dataset, model, tokenizer, mean=mean, std=std):
            logits = class_logits(model, to_device(batch, model))
            if not torch.isfinite(logits).all():
                raise GeoattnError(f"the model gives logits that are not finite on {dataset.name}.")
            found.append(logits.argmax(-1).cpu().numpy())
    return np.concatenate(found)


def accuracy(model: nn.Module, dataset: Dataset, tokenizer: Any = None, **options: Any) -> float:
    """The share of the samples that a classifier gets right. Options are those of `predictions`.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import accuracy
    >>> accuracy(ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=32))
    0.84375
    """
    return float((predictions(model, dataset, tokenizer, **options) == dataset.labels).mean())


class evaluating:  # noqa: N801, used like a function
    """Evaluation mode within the block, the old mode of each module after it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()

    def __exit__(self, *_: object) -> None:
        for module, mode in self._modes:
            module.training = mode


def to_device(batch: dict[str, Tensor] | Tensor, model: nn.Module) -> dict[str, Tensor] | Tensor:
    """The batch where the parameters of the model are."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if isinstance(batch, Tensor):
        return batch.to(device)
    return {key: value.to(device) for key, value in batch.items()}


def class_logits(model: nn.Module, batch: dict[str, Tensor] | Tensor) -> Tensor:
    """(b, classes), from a tensor or the ``logits`` of an output; one clear error for anything else."""
    out = model(batch) if isinstance(batch, Tensor) else model(**batch)
    logits = out if isinstance(out, Tensor) else getattr(out, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        came = f"logits of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(out).__name__
        raise GeoattnError(
            f"expected a classifier, with logits of shape (b, classes); got {came}. "
            "load_model(name, classes=...) gives one."
        )
    return logits


def _read_right(name: str, right: Any) -> Bool[np.ndarray, " n"]:
    array = np.asarray(right)
    if array.ndim != 1 or array.dtype != bool or len(array) == 0:
        raise GeoattnError(
            f"{name} must be booleans (n,), True where the model was right; got {array.dtype} {array.shape}."
        )
    return array
