"""A model under many perturbations: one table, and examples to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.datasets.companions import companions_of
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.own_data import feed_options, perturbable
from geoattn.datasets.token_limit import Cuts
from geoattn.perturbations.apply import Perturbed, perturb_dataset
from geoattn.perturbations.classifier_accuracy import AccuracyDrop, accuracy_drop, predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PerturbedExample", "Robustness", "robustness"]

_COLUMNS = ("rho", "low", "high", "clean", "perturbed", "n", "broken", "repaired", "p_value", "level", "method")


@dataclass(frozen=True, eq=False, repr=False)
class PerturbedExample(Displayed):
    """One sample before and after: images (c, h, w) in [0, 1], or texts; predictions as names of classes."""

    perturbation: str
    row: int
    clean: Float[np.ndarray, "c h w"] | str
    perturbed: Float[np.ndarray, "c h w"] | str
    label: str
    predicted_clean: str
    predicted_perturbed: str
    parameters: dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Robustness(Displayed):
    """Accuracy drops of one model, in the order of the perturbations, and what they were made from.

    ``predicted`` (k, b) and ``predicted_clean`` (b,) are classes. ``hits`` (k,) is the share of samples that each of
    the k perturbations chose, ``changed`` (k,) the share that it changed.

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import Flip
    >>> digits = ga.load_data("digits", split="test", limit=32)
    >>> table = ga.robustness(ga.load_model("lvit-digits"), digits, [Flip(0.5)])
    >>> table.names, table["flip 0.5"].rho, table.predicted.shape
    (('flip 0.5',), 0.15625, (1, 32))
    >>> float(table.hits[0]), len(table.examples)  # the share of flipped images, and those that are kept
    (0.46875, 8)
    """

    names: tuple[str, ...]
    drops: tuple[AccuracyDrop, ...]
    hits: Float[np.ndarray, " k"]
    changed: Float[np.ndarray, " k"]
    labels: Int[np.ndarray, " b"]
    predicted_clean: Int[np.ndarray, " b"]
    predicted: Int[np.ndarray, "k b"]
    examples: tuple[PerturbedExample, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        s = self.settings
        facts: dict[str, Any] = {name: s[name] for name in ("model", "data", "samples", "labels") if name in s}
        drops = zip(self.names, self.drops, strict=True)
        return facts | {name: f"drop {d.rho:.3f} [{d.low:.3f}, {d.high:.3f}]" for name, d in drops}

    def __getitem__(self, name: str) -> AccuracyDrop:
        if name not in self.names:
            raise GeoattnError(f"no perturbation {name!r}; there are {', '.join(self.names)}.")
        return self.drops[self.names.index(name)]

    def to_pandas(self) -> pd.DataFrame:
        """One row per perturbation."""
        import pandas as pd

        table = pd.DataFrame([[getattr(d, c) for c in _COLUMNS] for d in self.drops], columns=pd.Index(_COLUMNS))
        table.insert(0, "perturbation", self.names)
        table["hit"], table["changed"] = self.hits, self.changed
        return table


def robustness(
    model: Any,
    dataset: Any,
    perturbations: Sequence[Any],
    tokenizer: Any = None,
    *,
    processor: Any = None,
    column: str | None = None,
    labels: Any = None,
    seed: int = 0,
    level: float = 0.95,
    resamples: int = 10_000,
    examples: int = 8,
    mean: Any = None,
    std: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> Robustness:
    """The drop rho of a model for each perturbation of a data set, with intervals (see `accuracy_drop`).

    Parameters
    ----------
    model, dataset, tokenizer, processor, column
        As in `geoattn.profile`. Tensors are refused: perturbations change texts or images before the model sees them.
    labels
        The right classes: a sequence of numbers or names, or the name of a column. Default: those of the data set, the
        column ``label``, or the subfolders. Without any the model's own classes of the clean inputs take their place:
        the clean accuracy is then 1, and rho the share of the predictions that change. ``settings["labels"]`` says so.
    perturbations
        `Perturbation` or `Combined`, with different names; `image_perturbations` and `text_perturbations` give those
        of the Ricci paper.
    seed
        Of perturbations and bootstrap. Two models with equal seed see the same perturbed inputs: compare them in pairs.
    examples
        How many samples to keep per perturbation: the first ones that it chose, not the most telling ones.
    mean, std
        Of the model's normalisation, after the perturbation; see `feed`.
    progress
        Called with (perturbations done, in all).

    Examples
    --------
    >>> import geoattn as ga
    >>> from geoattn.perturbations import Flip, robustness
    >>> result = robustness(ga.load_model("lvit-digits"), ga.load_data("digits", split="test"), [Flip(0.4)])
    >>> result["flip 0.4"].rho > 0.1
    True
    """
    companions = companions_of(model, tokenizer, processor)
    model = companions.model
    dataset, labelled = perturbable(dataset, companions, column, labels)
    _check(dataset, perturbations)
    options = {**feed_options(dataset, companions), **_given(mean=mean, std=std)}
    cuts = Cuts(companions.tokenizer, model)
    cuts.count(dataset.texts or ())
    cuts.say()
    before = predictions(model, dataset, **options)
    if not labelled:
        dataset = replace(dataset, labels=before)
    right = before == dataset.labels
    drops, kept, after, hits, changed = [], [], [], [], []
    for k, perturbation in enumerate(perturbations):
        moved, record = perturb_dataset(dataset, perturbation, seed)
        found = predictions(model, moved, **options)
        drops.append(accuracy_drop(right, found == dataset.labels, level=level, resamples=resamples, seed=seed))
        kept += _keep(dataset, record, before, found, examples)
        after.append(found)
        hits.append(record.hit.mean())
        changed.append(record.changed.mean())
        if progress is not None:
            progress(k + 1, len(perturbations))
    return Robustness(
        names=tuple(p.name for p in perturbations), drops=tuple(drops), hits=np.array(hits), changed=np.array(changed),
        labels=dataset.labels, predicted_clean=before, predicted=np.stack(after), examples=tuple(kept),
        settings={
            "data": dataset.name, "split": dataset.split, "checksum": dataset.checksum, "samples": len(dataset),
            "model": type(model).__name__, "seed": seed, "level": level, "resamples": resamples,
            "labels": "given" if labelled else "clean predictions",
            "perturbations": [p.settings for p in perturbations], "notes": cuts.notes(), "geoattn": __version__,
        },
    )  # fmt: skip


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(dataset: Dataset, perturbations: Sequence[Any]) -> None:
    if len(dataset) == 0:
        raise GeoattnError(f"{dataset.name} holds no sample.")
    if not perturbations:
        raise GeoattnError("perturbations are empty; for example image_perturbations() gives those of the paper.")
    names = [getattr(p, "name", repr(p)) for p in perturbations]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise GeoattnError(
            f"each perturbation needs a name of its own; twice: {', '.join(twice)}. See Combined(label=)."
        )


def _keep(
    dataset: Dataset, record: Perturbed, before: np.ndarray, after: np.ndarray, count: int
) -> list[PerturbedExample]:
    chosen = np.flatnonzero(record.hit)[:count]
    if record.images is not None:
        clean: Any = dataset.subset(chosen).pixels().numpy() if len(chosen) else []
        moved: Any = record.images[chosen.tolist()].numpy()
    else:
        assert dataset.texts is not None
        assert record.texts is not None
        clean, moved = [dataset.texts[i] for i in chosen], [record.texts[i] for i in chosen]
    return [
        PerturbedExample(
            perturbation=record.name, row=int(dataset.rows[i]), clean=a, perturbed=b,
            label=_class(dataset, int(dataset.labels[i])), predicted_clean=_class(dataset, int(before[i])),
            predicted_perturbed=_class(dataset, int(after[i])), parameters=record.parameters[i],
        )
        for i, a, b in zip(chosen.tolist(), clean, moved, strict=True)
    ]  # fmt: skip


def _class(dataset: Dataset, index: int) -> str:
    """A model may have more classes than the data set."""
    return dataset.classes[index] if index < len(dataset.classes) else f"class {index}"
