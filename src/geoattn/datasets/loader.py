"""Load a data set of the papers by name: embedded, from a local folder, or from the hub."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn.datasets.catalogue import CHECKSUMS, Entry, Place, entry_of
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.formats import (
    Inputs,
    Labels,
    checksum,
    decode,
    read_idx,
    read_jsonl,
    read_npz,
    read_parquet,
)

__all__ = ["DATA_VARIABLE", "load_data"]

#: Environment variable that names the folder of local data sets.
DATA_VARIABLE = "GEOATTN_DATA"
_TEST_SHARE = 0.2  # of the sets that come without a split


def load_data(
    name: str,
    root: str | os.PathLike[str] | None = None,
    split: Literal["train", "test"] = "train",
    limit: int | None = None,
    *,
    seed: int = 0,
) -> Dataset:
    """One split of a data set.

    Parameters
    ----------
    name
        ``digits`` (embedded), ``mnist``, ``fashion-mnist``, ``cifar10``, ``cifar10-lossless`` (the first
        1,017 images of each batch of the original), ``sst2``, ``imdb`` or ``headlines``.
    root
        Folder with one folder per data set: ``mnist/train-images-idx3-ubyte.gz``, ``imdb/train.parquet``, ...
        Only it is searched. Without it: the folder that the variable ``GEOATTN_DATA`` names, then the hub.
    split
        The standard splits; for SST-2 ``test`` is GLUE's validation set. Two sets come without one, and the
        paper does not say how it divided headlines. digits: the last 360 images are the test set, which is
        harder than a random one, because the file seems to go writer by writer. headlines: a fifth of the
        different headlines, those with the smallest SHA-256; equal headlines stay on one side, and the order of
        the file does not matter.
    limit
        At most so many rows, drawn at random by ``seed``; a smaller limit gives the first rows of a larger
        one. (The first rows of the file would not do: IMDb is sorted by label.)

    Examples
    --------
    >>> from geoattn.datasets import load_data
    >>> digits = load_data("digits", split="test")
    >>> digits
    Dataset(digits test: 360 1x8x8 images, 10 classes, from scikit-learn)
    >>> digits.pixels().shape, digits.labels[:5]
    (torch.Size([360, 1, 8, 8]), array([...]))
    """
    entry = entry_of(name)
    if split not in entry.rows:
        raise GeoattnError(f"{entry.title} has the splits {' and '.join(entry.rows)}; got {split!r}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise GeoattnError(f"limit must be a positive number of rows, or None for all; got {limit!r}.")
    inputs, labels, source, kind = _read(entry, None if root is None else Path(root), split)
    if entry.shape is None:
        inputs = [str(text).strip() for text in inputs]  # copies of SST-2 differ in the blank at the end
        if entry.undivided:
            inputs, labels = _divide(inputs, labels, split)
    _check(entry, inputs, labels, split, source)
    title = _title(entry, inputs)
    digest = checksum(inputs, labels)
    known = CHECKSUMS.get((title, kind, split))
    if known not in (None, digest):
        warnings.warn(
            f"{title} {split} from {source} differs from the copy that geoattn was tested with "
            f"(SHA-256 {digest[:12]}..., expected {known[:12]}...): its results may differ too.",
            GeoattnWarning,
            stacklevel=2,
        )
    rows = _choose(len(labels), limit, seed)
    images, texts = None, None
    if entry.shape is None:
        texts = tuple(str(inputs[i]) for i in rows)
    else:
        images = (
            inputs[rows] if isinstance(inputs, np.ndarray) else decode([inputs[i] for i in rows], entry.shape, source)
        )
        images.setflags(write=False)
    labels = labels[rows]
    for array in (labels, rows):
        array.setflags(write=False)
    return Dataset(
        name=title, split=split, source=source, classes=entry.classes, labels=labels, rows=rows,
        checksum=digest, images=images, texts=texts, white=16 if entry.name == "digits" else 255,
    )  # fmt: skip


def _read(entry: Entry, root: Path | None, split: str) -> tuple[Inputs, Labels, str, str]:
    """Inputs, labels, where they came from, and in what format."""
    if entry.name == "digits":
        return (*_read_digits(split), "scikit-learn", "array")
    folder = root
    if folder is None and os.environ.get(DATA_VARIABLE):
        folder = Path(os.environ[DATA_VARIABLE])
    if folder is not None and not folder.is_dir():
        raise GeoattnError(f"no such folder: {folder} ({'root' if root is not None else DATA_VARIABLE}).")
    for place in entry.places if folder is not None else ():
        path = Path(folder or "") / place.path
        if _is_there(path, place):
            return (*_read_place(entry, path, place, split), str(path), place.format)
    wanted = " or ".join(dict.fromkeys(place.path for place in entry.places))
    if root is not None:
        raise GeoattnError(f"{root} has no {wanted} with {entry.title} in it; without root the hub is tried.")
    from geoattn.datasets.hub import HubError, read_hub

    try:
        inputs, labels = read_hub(entry, split)
    except HubError as error:
        reason = str(error).rstrip(".")
        where = f"{DATA_VARIABLE}={folder} has no {wanted}" if folder else f"{DATA_VARIABLE} is not set"
        raise GeoattnError(
            f"no {entry.title}: {where}, and from the hub it did not come ({reason}). "
            f"Set {DATA_VARIABLE} or root to a folder with {wanted} in it{_how_to_get(entry)}, or connect to the hub."
        ) from None
    return inputs, labels, f"hub: {entry.hub[0] if entry.hub else ''}", "hub"


def _how_to_get(entry: Entry) -> str:
    """The command that downloads the folder, where the hub has it by the same name and in a format that is read."""
    repository, folder = entry.hub or ("", None)
    if folder is None or Place(folder, "parquet") not in entry.places:
        return ""
    return f' (hf download {repository} --repo-type dataset --include "{folder}/*" --local-dir FOLDER)'


def _is_there(path: Path, place: Place) -> bool:
    if place.format == "npz":
        return path.is_file()
    pattern = {"idx": "*-ubyte*", "parquet": "*.parquet", "jsonl": "*.json*"}[place.format]
    return path.is_dir() and any(path.glob(pattern))


def _read_place(entry: Entry, path: Path, place: Place, split: str) -> tuple[Inputs, Labels]:
    if place.format == "idx":
        return read_idx(path, split)
    if place.format == "npz":
        return read_npz(path, split)
    if place.format == "jsonl":
        return read_jsonl(path, entry.columns, entry.label)
    return read_parquet(path, entry.splits[split], entry.columns, entry.label)


def _read_digits(split: str) -> tuple[Inputs, Labels]:
    from sklearn.datasets import load_digits

    images, labels = map(np.asarray, load_digits(return_X_y=True))
    part = slice(None, 1437) if split == "train" else slice(1437, None)
    return images[part].reshape(-1, 1, 8, 8).astype(np.uint8), labels[part].astype(np.int64)


def _divide(texts: list[str], labels: Labels, split: str) -> tuple[list[str], Labels]:
    """The rows of one side: the texts with the smallest hashes are the test set."""
    ranked = sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
    test = set(ranked[: round(_TEST_SHARE * len(ranked))])
    rows = [i for i, text in enumerate(texts) if (text in test) == (split == "test")]
    return [texts[i] for i in rows], labels[rows]


def _check(entry: Entry, inputs: Inputs, labels: Labels, split: str, source: str) -> None:
    if len(inputs) != len(labels):
        raise GeoattnError(f"{source}: {len(inputs):,} inputs but {len(labels):,} labels; get the files again.")
    if len(labels) != entry.rows[split]:
        raise GeoattnError(
            f"{source}: expected {entry.rows[split]:,} rows of {entry.title} {split}; got {len(labels):,}. "
            "The copy is not complete or not this data set."
        )
    if isinstance(inputs, np.ndarray) and (inputs.dtype != np.uint8 or inputs.shape[1:] != entry.shape):
        raise GeoattnError(f"{source}: expected bytes of shape {entry.shape} per image; got {inputs.shape[1:]}.")
    if labels.min() < 0 or labels.max() >= len(entry.classes):
        raise GeoattnError(
            f"{source}: labels must lie in 0..{len(entry.classes) - 1}; got {labels.min()}..{labels.max()}."
        )


def _title(entry: Entry, inputs: Inputs) -> str:
    """The name for results; images that lost something to JPEG say so."""
    first = inputs[0]
    return f"{entry.title} (JPEG)" if isinstance(first, bytes) and first[:2] == b"\xff\xd8" else entry.title


def _choose(total: int, limit: int | None, seed: int) -> Int[np.ndarray, " b"]:
    if limit is None:
        return np.arange(total)
    return np.random.default_rng(seed).permutation(total)[:limit]
