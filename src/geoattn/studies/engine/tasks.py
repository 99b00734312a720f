"""The tasks of the robustness studies: data sets by name, variants of digits, and made-up sentences."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from geoattn.datasets.dataset import Dataset
from geoattn.datasets.loader import load_data

__all__ = ["DIGITS", "PAIRS_OF_DIGITS", "described", "is_text", "load_task", "title_of"]

#: Digits three times: as they are, turned by a quarter, and dark on light. Three tasks with the same classes.
DIGITS = ("digits", "digits-turned", "digits-inverted")
#: The pair that is learnt one after the other, both ways.
PAIRS_OF_DIGITS = [("digits", "digits-turned"), ("digits-turned", "digits")]

_TITLES = {
    "digits": "digits", "digits-turned": "digits turned by 90 degrees", "digits-inverted": "digits inverted",
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10 (JPEG)", "sst2": "SST-2", "imdb": "IMDb",
    "headlines": "Headlines", "made-up-mood": "made-up sentences (mood)",
    "made-up-animal": "made-up sentences (animal)",
}  # fmt: skip
_PLAIN = "the a house street was seen in spring rain and then again by two people who had walked there".split()
_MARKS = {
    "made-up-mood": (("bad", "dull", "awful"), ("good", "warm", "lovely")),
    "made-up-animal": (("oak", "fern", "moss"), ("cat", "crow", "toad")),
}


def is_text(name: str) -> bool:
    """Whether a task is about texts."""
    return name in ("sst2", "imdb", "headlines") or name in _MARKS


def title_of(name: str) -> str:
    """What to call a task."""
    return _TITLES[name]


def described(config: dict[str, Any], name: str = "data") -> str:
    """A task of a trial and how much of it is used, for findings.

    >>> described({"data": "mnist", "limit": 2000})
    'MNIST, 2,000 training rows'
    """
    title, limit = _TITLES[config[name]], config.get("limit")
    return title if limit is None else f"{title}, {limit:,} training rows"


@lru_cache(maxsize=32)
def load_task(name: str, split: Literal["train", "test"], limit: int | None = None) -> Dataset:
    """One split of a task, at most ``limit`` rows: always the same ones. Kept in memory for the next trial.

    Examples
    --------
    >>> load_task("digits-turned", "test", 4)
    Dataset(digits turned by 90 degrees test: 4 1x8x8 images, 10 classes, from scikit-learn)
    >>> load_task("made-up-mood", "train", 2).texts
    ('...', '...')
    """
    if name in _MARKS:
        return _made_up(name, split, 256 if limit is None else limit)
    if name not in DIGITS[1:]:
        return load_data(name, split=split, limit=limit)
    digits = load_data("digits", split=split, limit=limit)
    assert digits.images is not None
    images = np.rot90(digits.images, axes=(2, 3)) if name == "digits-turned" else digits.white - digits.images
    images = np.ascontiguousarray(images)
    images.setflags(write=False)
    return replace(digits, name=_TITLES[name], images=images)


def _made_up(name: str, split: str, count: int) -> Dataset:
    """Plain words with one telling word among them: texts for tests, where no real ones are at hand."""
    rng = np.random.default_rng([len(name), split == "test"])
    labels: Any = rng.integers(0, 2, count)
    texts = []
    for label in labels:
        words = list(rng.choice(_PLAIN, int(rng.integers(5, 9))))
        words[int(rng.integers(len(words)))] = str(rng.choice(_MARKS[name][label]))
        texts.append(" ".join(words))
    rows = np.arange(count)
    return Dataset(
        name=_TITLES[name], split=split, source="geoattn", classes=("no", "yes"), labels=labels, rows=rows,
        checksum=f"made up, {count} rows", texts=tuple(texts),
    )  # fmt: skip
