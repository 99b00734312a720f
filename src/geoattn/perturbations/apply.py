"""Perturb a set of inputs: seeded per sample, and with a record of what was done to each."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.datasets.dataset import Dataset
from geoattn.perturbations.perturbation import Combined, Perturbation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Perturbed", "PerturbedImages", "perturb", "perturb_dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Perturbed(Displayed):
    """Inputs after a perturbation; what `perturb` returns.

    ``hit`` (b,) marks the samples that were chosen, and ``changed`` (b,) those that differ; a symmetric image that is
    flipped does not. ``parameters`` has one dictionary per sample, from the kind of perturbation to what was drawn; it
    is empty where the sample was left alone. A second part of the same kind is called ``kind 2``.

    Examples
    --------
    >>> from geoattn.perturbations import WordSwap, perturb
    >>> result = perturb(["a warm and funny film", "no"], WordSwap(1.0))
    >>> result.texts, result.hit
    (('warm and funny a film', 'no'), array([ True, False]))
    >>> result.parameters
    ({'word swap': {'swaps': ((0, 1), (1, 2), (2, 3), (3, 4), (4, 3))}}, {})
    """

    images: Float[Tensor, "b c h w"] | None
    texts: tuple[str, ...] | None
    hit: Bool[np.ndarray, " b"]
    changed: Bool[np.ndarray, " b"]
    parameters: tuple[dict[str, dict[str, Any]], ...]
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        """One row per sample and kind that hit it, with the parameters in words."""
        import pandas as pd

        rows = [
            (sample, kind, ", ".join(f"{key}={_word(value)}" for key, value in drawn.items()))
            for sample, kinds in enumerate(self.parameters)
            for kind, drawn in kinds.items()
        ]
        return pd.DataFrame(rows, columns=pd.Index(["sample", "kind", "parameters"]))


def perturb(inputs: Any, perturbation: Any, seed: int = 0, *, rows: Any = None) -> Perturbed:
    """Images or texts after a perturbation, with a record of it.

    Parameters
    ----------
    inputs
        Images, a float tensor (b, c, height, width) with values in [0, 1]; or a sequence of strings.
    perturbation
        A `Perturbation` or `Combined`.
    seed
        Each sample has a generator of its own, from (seed, its row, kind of perturbation): what happens to a sample
        depends neither on the others nor on the size of the batch. The share or probability is not part of it, so that
        the samples hit at 0.2 are among those hit at 0.4, with the same parameters.
    rows
        (b,) identity of each sample, by default 0, 1, ...; pass `Dataset.rows`, and a part of a data set is perturbed
        as in the whole.

    Notes
    -----
    One sample at a time, on the CPU: 0.1 ms (flip) to 3 ms (elastic) of one core per image of 28 x 28 that is hit.

    Examples
    --------
    >>> import torch
    >>> from geoattn.perturbations import Flip, perturb
    >>> result = perturb(torch.tensor([[[[0.0, 0.25, 1.0]]]]).expand(4, -1, -1, -1), Flip(0.5), seed=1)
    >>> result.hit
    array([...])
    >>> result.images[result.hit][0]
    tensor([[[1.0000, 0.2500, 0.0000]]])
    """
    if not isinstance(perturbation, (Perturbation, Combined)):
        raise GeoattnError(f"expected a perturbation such as Flip(0.2) or Combined(...); got {perturbation!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise GeoattnError(f"seed must be a non-negative integer; got {seed!r}.")
    samples: list[Any] = _read_images(inputs) if perturbation.medium == "images" else _read_texts(inputs)
    identity = _read_rows(rows, len(samples))
    records: list[dict[str, dict[str, Any]]] = []
    after: list[Any] = []
    for sample, row in zip(samples, identity, strict=True):
        seen: Counter[str] = Counter()
        record: dict[str, dict[str, Any]] = {}
        for part in perturbation.parts:
            seen[part.kind] += 1
            rng = np.random.default_rng([seed, int(row), zlib.crc32(part.kind.encode()), seen[part.kind]])
            drawn = part.draw(rng, sample)
            if drawn is not None:
                sample = part.apply(sample, drawn)
                record[part.kind if seen[part.kind] == 1 else f"{part.kind} {seen[part.kind]}"] = drawn
        after.append(sample)
        records.append(record)
    images = perturbation.medium == "images"
    changed = [not torch.equal(a, b) if images else a != b for a, b in zip(samples, after, strict=True)]
    return Perturbed(
        images=torch.stack(after) if images else None,
        texts=None if images else tuple(after),
        hit=np.array([bool(record) for record in records]),
        changed=np.array(changed),
        parameters=tuple(records),
        name=perturbation.name,
        settings={"perturbation": perturbation.settings, "seed": seed, "geoattn": __version__},
    )


@dataclass(frozen=True, eq=False, repr=False)
class PerturbedImages(Dataset):
    """A data set whose pixels are real numbers and no longer bytes; ``images`` holds the clean bytes."""

    values: Float[Tensor, "b c h w"] | None = None

    def subset(self, rows: Sequence[int] | Int[np.ndarray, " k"]) -> Dataset:
        """The given rows of this one, in that order."""
        assert self.values is not None
        part = Dataset(**_fields(self)).subset(rows)
        return PerturbedImages(**_fields(part), values=self.values[torch.as_tensor(np.asarray(rows, dtype=np.int64))])

    def pixels(self) -> Float[Tensor, "b c h w"]:
        """The perturbed images, in [0, 1]."""
        assert self.values is not None
        return self.values


def perturb_dataset(dataset: Dataset, perturbation: Any, seed: int = 0) -> tuple[Dataset, Perturbed]:
    """A data set after a perturbation, for everything that takes a data set, and the record.

    Its checksum is still that of the clean one, its name says what was done to it.

    Examples
    --------
    >>> from geoattn.datasets import load_data
    >>> from geoattn.perturbations import Rotation, perturb_dataset
    >>> perturb_dataset(load_data("digits", split="test"), Rotation(0.4))[0]
    Dataset(digits, rotation 0.4 test: 360 1x8x8 images, 10 classes, from scikit-learn)
    """
    wanted = getattr(perturbation, "medium", None)
    holds = "images" if dataset.texts is None else "texts"
    if wanted is not None and wanted != holds:
        raise GeoattnError(f"{dataset.name} holds {holds}, but {perturbation.name} is a perturbation of {wanted}.")
    inputs = dataset.pixels() if holds == "images" else dataset.texts
    result = perturb(inputs, perturbation, seed, rows=dataset.rows)
    name = f"{dataset.name}, {result.name}"
    if holds == "texts":
        return replace(dataset, name=name, texts=result.texts), result
    return PerturbedImages(**{**_fields(dataset), "name": name}, values=result.images), result


def _fields(dataset: Dataset) -> dict[str, Any]:
    return {f.name: getattr(dataset, f.name) for f in fields(Dataset)}


def _read_images(images: Any) -> list[Tensor]:
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        came = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise GeoattnError(f"images must be a float tensor of shape (b, c, height, width); got {came}.")
    if images.numel() == 0:
        raise GeoattnError(f"images are empty: shape {tuple(images.shape)}.")
    images = images.detach().cpu()
    if not torch.isfinite(images).all() or images.min() < 0 or images.max() > 1:
        raise GeoattnError(
            f"pixels must lie in [0, 1]; got {images.min():.4g} to {images.max():.4g}. Perturb before normalising."
        )
    return list(images)


def _read_texts(texts: Any) -> list[str]:
    if (
        isinstance(texts, (str, Tensor))
        or not isinstance(texts, Sequence)
        or not all(isinstance(t, str) for t in texts)
    ):
        raise GeoattnError(f"texts must be a sequence of strings; got {type(texts).__name__}.")
    if not texts:
        raise GeoattnError("texts are empty: there is nothing to perturb.")
    return list(texts)


def _read_rows(rows: Any, count: int) -> np.ndarray:
    if rows is None:
        return np.arange(count)
    array = np.asarray(rows)
    if array.shape != (count,) or array.dtype.kind not in "iu" or (array < 0).any():
        raise GeoattnError(
            f"rows must be {count} non-negative integers, one per sample; got {array.dtype} {array.shape}."
        )
    return array


def _word(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
