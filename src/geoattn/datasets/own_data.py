"""Own data as batches that a model takes, or as a `Dataset` that can be perturbed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.datasets.companions import Companions
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.feed import feed
from geoattn.datasets.formats import checksum
from geoattn.datasets.forms.form import Asked, Samples
from geoattn.datasets.forms.images import open_picture
from geoattn.datasets.forms.loaders import inputs_and_labels
from geoattn.datasets.forms.registry import nearest_ways, read_samples
from geoattn.datasets.token_limit import Cuts

__all__ = ["OwnBatches", "as_dataset", "feed_options", "perturbable"]


class OwnBatches:
    """Batches of anything that `geoattn.datasets.forms.registry.FORMS` reads, as a model takes them.

    ``dataset`` is there when all samples are known at once. ``repeatable`` says whether a second pass gives the same.
    """

    def __init__(self, given: Any, companions: Companions, column: str | None = None) -> None:
        self._companions, self._column = companions, column
        self.dataset: Dataset | None = None
        self._samples: Samples | None = None
        if isinstance(given, Dataset):
            self.dataset = given
        else:
            found = read_samples(given, column)
            if found.batches is None and found.parts is None:
                self.dataset = as_dataset(found, companions)[0]
            else:
                self._samples = found
        parts = None if self._samples is None else self._samples.parts
        self.repeatable = parts is None or isinstance(parts, Sequence)
        self._cuts: Cuts | None = None

    @property
    def name(self) -> str:
        """What to call it in results."""
        if self.dataset is not None:
            return f"{self.dataset.name} ({self.dataset.split})"
        return "batches" if self._samples is None else self._samples.name

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the batches that were seen: how many texts were cut."""
        return [] if self._cuts is None else self._cuts.notes()

    def __iter__(self) -> Iterator[Any]:
        """One pass; the first one counts the texts that are cut, and warns of them once."""
        if self._cuts is not None:
            yield from self._pass(None)
            return
        self._cuts = Cuts(self._companions.tokenizer, self._companions.model)
        if self.dataset is not None and self.dataset.texts is not None:
            self._cuts.count(self.dataset.texts)
            self._cuts.say()
            yield from self._pass(None)
            return
        yield from self._pass(self._cuts)
        self._cuts.say()

    def _pass(self, cuts: Cuts | None) -> Iterator[Any]:
        if self.dataset is not None:
            yield from self._fed(self.dataset)
            return
        assert self._samples is not None
        if self._samples.batches is not None:
            yield from self._samples.batches
            return
        assert self._samples.parts is not None
        for number, item in enumerate(self._samples.parts):
            yield from self._part(item, number, cuts)

    def _part(self, item: Any, number: int, cuts: Cuts | None) -> Iterator[Any]:
        if isinstance(item, Tensor) or (isinstance(item, (tuple, list)) and item and isinstance(item[0], Tensor)):
            yield item if isinstance(item, Tensor) else item[0]
            return
        found = inputs_and_labels(item, _asked(self._column), number)
        if found.parts is not None:
            raise GeoattnError(f"batch {number} is an iterable itself; give its parts in one list of batches.")
        if found.batches is not None:
            yield from found.batches
            return
        dataset = as_dataset(found, self._companions)[0]
        if cuts is not None and dataset.texts is not None:
            cuts.count(dataset.texts)
        yield from self._fed(dataset)

    def _fed(self, dataset: Dataset) -> Iterator[Any]:
        return feed(dataset, self._companions.model, **feed_options(dataset, self._companions))


def feed_options(dataset: Dataset, companions: Companions) -> dict[str, Any]:
    """What `feed` needs besides the model: the tokenizer, or how the processor that resized the images normalises."""
    if dataset.texts is not None:
        return {"tokenizer": companions.tokenizer}
    mean, std = companions.norms() if dataset.fitted else (None, None)
    return {"mean": mean, "std": std}


def _asked(column: str | None, labels: Any = None) -> Asked:
    return Asked(column, labels, lambda part: read_samples(part, column, labels if isinstance(labels, str) else None))


def perturbable(
    given: Any, companions: Companions, column: str | None = None, labels: Any = None
) -> tuple[Dataset, bool]:
    """A `Dataset` of texts or images with labels, and whether the labels are real; for those who change the inputs."""
    if isinstance(given, Dataset):
        return given, True
    found = read_samples(given, column, labels)
    if found.parts is not None:
        parts = [inputs_and_labels(item, _asked(column, labels), k) for k, item in enumerate(found.parts)]
        found = _joined([_decoded(part, companions) for part in parts])
    return as_dataset(_decoded(found, companions), companions)


def _joined(parts: list[Samples]) -> Samples:
    if not parts:
        raise GeoattnError("batches were empty: no sample was seen.")
    for kind in ("texts", "images"):
        if all(getattr(part, kind) is not None for part in parts):
            labelled = all(part.labels is not None for part in parts)
            labels = tuple(label for part in parts for label in part.labels or ()) if labelled else None
            held = {kind: tuple(one for part in parts for one in getattr(part, kind))}
            return replace(parts[0], name="batches", labels=labels, **held)
    raise GeoattnError("batches must all hold texts, or all hold images; got both.")


def _decoded(found: Samples, companions: Companions) -> Samples:
    """Token numbers back as texts, if the tokenizer gives the same numbers for them; other tensors are refused."""
    if found.batches is None:
        return found
    tokenizer, texts = companions.tokenizer, []
    for batch in found.batches:
        ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
        if ids is None or tokenizer is None:
            what = "token numbers without tokenizer=" if ids is not None else "tensors as the model takes them"
            ways = "; ".join(nearest_ways(["a text"] if ids is not None else np.zeros((1, 2, 2, 3), np.uint8)))
            raise GeoattnError(
                f"perturbations change texts or images before the model sees them; got {what}. Ways that work: {ways}."
            )
        mask = batch.get("attention_mask", torch.ones_like(ids)).bool()
        for row, real in zip(ids, mask, strict=True):
            text = tokenizer.decode(row[real], skip_special_tokens=True)
            if list(tokenizer(text)["input_ids"]) != row[real].tolist():
                raise GeoattnError(
                    f"token numbers do not come back from their text {text[:40]!r}: give the texts themselves, as a"
                    " list of strings with tokenizer=."
                )
            texts.append(text)
    return Samples("decoded texts", texts=tuple(texts), labels=found.labels)


def as_dataset(found: Samples, companions: Companions) -> tuple[Dataset, bool]:
    """Texts or images as a `Dataset`, with numbers as labels; whether the labels are real."""
    count = len(found)
    classes, labels = _numbered(found, companions)
    real = labels is not None
    numbers = np.zeros(count, dtype=np.int64) if labels is None else labels
    common = {
        "name": found.name, "split": found.split, "source": found.source, "classes": classes, "labels": numbers,
        "rows": np.arange(count),
    }  # fmt: skip
    if found.texts is not None:
        if companions.takes_images:
            raise GeoattnError(
                f"{found.name} holds texts, but the model takes images. Ways that work:"
                f" {'; '.join(nearest_ways(np.zeros((1, 2, 2, 3), np.uint8)))}."
            )
        if companions.tokenizer is None:
            raise GeoattnError(
                f"{found.name} holds texts, and no tokenizer lies beside the model: give tokenizer=, for example"
                " ga.load_tokenizer(name)."
            )
        return Dataset(**common, checksum=checksum(found.texts, numbers), texts=found.texts), real
    if companions.takes_texts:
        raise GeoattnError(
            f"{found.name} holds images, but the model takes texts. Ways that work: {'; '.join(nearest_ways(['a']))}."
        )
    images, fitted = _pixels(found, companions), companions.processor is not None
    return Dataset(**common, checksum=checksum(list(images), numbers), images=images, fitted=fitted), real


def _numbered(found: Samples, companions: Companions) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Names of the classes, and labels as numbers: those of the model where it names its classes."""
    config = getattr(companions.model, "config", None)
    names: dict[str, int] = dict(getattr(config, "label2id", None) or {})
    if found.labels is None:
        return tuple(names) or ("",), None
    if all(isinstance(label, (int, np.integer)) for label in found.labels):
        numbers = np.asarray(found.labels, dtype=np.int64)
        classes = found.classes or tuple(sorted(names, key=lambda name: names[name]))
        if numbers.min() < 0:
            raise GeoattnError(f"{found.name}: labels must be 0 or more; got {numbers.min()}. Drop rows without one.")
        return classes + tuple(f"class {k}" for k in range(len(classes), int(numbers.max()) + 1)), numbers
    given = sorted(set(map(str, found.labels)))
    if set(given) <= set(names):
        classes = tuple(sorted(names, key=lambda name: names[name]))
        return classes, np.array([names[str(label)] for label in found.labels], dtype=np.int64)
    if names and not all(name.startswith("LABEL_") for name in names):
        raise GeoattnError(
            f"{found.name} has the labels {', '.join(given[:5])}, the model the classes {', '.join(list(names)[:5])}:"
            " give labels= as numbers."
        )
    return tuple(given), np.array([given.index(str(label)) for label in found.labels], dtype=np.int64)


def _pixels(found: Samples, companions: Companions) -> np.ndarray:
    """(b, channel, height, width): by the resizing and cropping of the processor, else of one size already."""
    assert found.images is not None
    opened = (open_picture(image, f"{found.name}, image {k}") for k, image in enumerate(found.images))
    if companions.processor is not None:
        return np.stack([_resized(image, companions.processor, found.name) for image in opened])
    images = list(opened)
    if len({image.shape[-1] for image in images}) > 1:
        images = [np.repeat(image, 3, -1) if image.shape[-1] == 1 else image for image in images]
    size = getattr(getattr(companions.model, "config", None), "image_size", None)
    shapes = {image.shape[:2] for image in images}
    if len(shapes) > 1 or (size is not None and getattr(companions.model, "takes_raw_pixels", False)):
        if size is None:
            raise GeoattnError(
                f"{found.name}: images of different sizes ({', '.join(map(str, sorted(shapes)[:3]))}), and the model"
                " has neither an image processor nor config.image_size: give processor=, or images of one size."
            )
        images = [_fitted(image, size) for image in images]
    channels = getattr(getattr(companions.model, "config", None), "channels", None)
    if getattr(companions.model, "takes_raw_pixels", False) and channels == 1:
        images = [np.round(image.mean(-1, keepdims=True)).astype(np.uint8) for image in images]
    return np.stack(images).transpose(0, 3, 1, 2)


def _resized(image: np.ndarray, processor: Any, name: str) -> np.ndarray:
    rgb = np.repeat(image, 3, -1) if image.shape[-1] == 1 else image
    done = processor(
        [rgb], return_tensors="np", do_rescale=False, do_normalize=False, input_data_format="channels_last"
    )
    pixels = np.asarray(done["pixel_values"])[0]
    if pixels.ndim != 3:
        raise GeoattnError(
            f"{name}: the image processor {type(processor).__name__} gives {pixels.shape}, not (channel, height,"
            " width); process the images yourself and give [{'pixel_values': ...}]."
        )
    return np.clip(np.round(pixels), 0, 255).astype(np.uint8)


def _fitted(image: np.ndarray, size: Any) -> np.ndarray:
    from PIL import Image

    height, width = (size, size) if isinstance(size, int) else tuple(size)
    if image.shape[:2] == (height, width):
        return image
    grey = image.shape[-1] == 1
    small = Image.fromarray(image[..., 0] if grey else image).resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(small)
    return pixels[..., None] if grey else pixels
