"""A model and data as named on the command line."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.forms.form import Samples

__all__ = ["Source", "fit_data", "read_data", "read_model"]

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_DATA_OF = {"lvit-digits": "digits", "lvit-mnist": "mnist", "lvit-fashion-mnist": "fashion-mnist",
            "lvit-cifar10": "cifar10"}  # fmt: skip
_WHAT = (
    "digits, mnist, fashion-mnist, cifar10, sst2, imdb, headlines, a .txt, .csv, .jsonl or .parquet file, or a folder"
    " of images"
)
_DEFAULT_SAMPLES = 200  # of all but the embedded data, which is small


@dataclass(frozen=True, eq=False)
class Source:
    """A model, its tokenizer if it came with one, its name, and a checksum of all that decides what it computes."""

    name: str
    model: nn.Module
    tokenizer: Any
    checksum: str


def read_model(name: str, *, text: bool) -> Source:
    """A name of the zoo, a folder, a file, ``owner/name`` of the hub, or ``module:function``.

    The function takes no argument and gives a model, or a model and its tokenizer. Its module is looked for in the
    working directory first. For ``text`` data the tokenizer is that of the same name.
    """
    from geoattn.datasets.companions import Companions
    from geoattn.models.loading import load_model, load_tokenizer

    if _FUNCTION.fullmatch(name) and not os.path.exists(name):
        model, tokenizer, code = _call(name)
    else:
        model, tokenizer, code = load_model(name), None, b""
        if text and Companions(model).takes_images:
            raise GeoattnError(
                f"{name} takes images, but the data are texts; give --data digits, mnist, fashion-mnist, cifar10 or a"
                " folder of images."
            )
        tokenizer = load_tokenizer(name) if text else None
    if text and tokenizer is None:
        raise GeoattnError(f"{name} gives a model without a tokenizer; for texts it must return (model, tokenizer).")
    config = getattr(model, "config", None)
    if not text and hasattr(config, "vocab_size") and not hasattr(config, "image_size"):
        raise GeoattnError(
            f"{name} takes text, but the data are images; give --data sst2, imdb, headlines or a .txt, .csv, .jsonl or"
            " .parquet file."
        )
    return Source(_title(name), model, tokenizer, _checksum(model, tokenizer, code))


def _title(name: str) -> str:
    """The last part of a path, or the last two when the last one says nothing."""
    if not os.path.exists(name):
        return name
    parts = Path(name).resolve().parts
    generic = parts[-1] in ("model", "weights", "checkpoint", "best", "final") or parts[-1].startswith("checkpoint-")
    return "/".join(parts[-2:] if generic else parts[-1:])


def _call(name: str) -> tuple[nn.Module, Any, bytes]:
    module_name, function = name.split(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise GeoattnError(f"{name}: cannot import {module_name} ({error}).") from None
    finally:
        sys.path.remove(os.getcwd())
    if not callable(getattr(module, function, None)):
        raise GeoattnError(f"{name}: {module_name} has no function {function}.")
    made = getattr(module, function)()
    model, tokenizer = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise GeoattnError(f"{name} must return a torch.nn.Module or (model, tokenizer); got {type(made).__name__}.")
    path = getattr(module, "__file__", None)
    return model, tokenizer, Path(path).read_bytes() if path and os.path.isfile(path) else b""


def _checksum(model: nn.Module, tokenizer: Any, code: bytes) -> str:
    """Of the weights and buffers, the modules, the configuration, the vocabulary and the code of a function."""
    digest = hashlib.sha256(code)
    digest.update(repr(model).encode())
    digest.update(repr(getattr(model, "config", None)).encode())
    for name, tensor in sorted({**dict(model.named_parameters()), **dict(model.named_buffers())}.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        if values.numel():
            digest.update(memoryview(values.flatten().view(_byte()).numpy()))
    if tokenizer is not None:
        words = getattr(tokenizer, "get_vocab", dict)()
        digest.update(repr(sorted(words.items(), key=lambda item: str(item))).encode(errors="replace"))
    return digest.hexdigest()


def _byte() -> Any:
    import torch

    return torch.uint8


def read_data(
    name: str | None, model: str, split: str, samples: int | None, seed: int, column: str | None = None
) -> Dataset | Samples:
    """A data set by name, or own data in a file or a folder of images; without a name what the model was made for.

    Of own data the first ``samples`` rows. `fit_data` makes a data set of them, for a given model.
    """
    from geoattn.datasets.catalogue import CATALOGUE
    from geoattn.datasets.forms.files import READERS
    from geoattn.datasets.loader import load_data

    if name is None:
        if model not in _DATA_OF:
            if not os.path.exists(model) and (near := did_you_mean(model, _DATA_OF)):
                raise GeoattnError(f"unknown model {model!r}.{near}")
            raise GeoattnError(f"--data is needed for {model}: {_WHAT}.")
        name = _DATA_OF[model]
    if Path(name).suffix.lower() in READERS or (Path(name).is_dir() and name not in CATALOGUE):
        from geoattn.datasets.forms.registry import read_samples

        try:
            found = read_samples(name, column)
        except GeoattnError as error:
            raise GeoattnError(f"--data: {error}") from None
        return found.first(_DEFAULT_SAMPLES if samples is None and found.images is not None else samples)
    if column is not None:
        raise GeoattnError(f"--column is for .csv, .jsonl and .parquet files; --data {name} has none.")
    if samples is None and name != "digits":
        samples = _DEFAULT_SAMPLES
    if samples is not None and name == "digits" and samples >= {"train": 1437, "test": 360}.get(split, 0):
        samples = None
    return load_data(name, split=split, limit=samples, seed=seed)  # pyright: ignore[reportArgumentType]


def fit_data(rows: Dataset | Samples, source: Source) -> Dataset:
    """Own data as a data set for a model: images as its processor resizes them."""
    if isinstance(rows, Dataset):
        return rows
    from geoattn.datasets.companions import Companions
    from geoattn.datasets.own_data import as_dataset

    return as_dataset(rows, Companions(source.model, source.tokenizer))[0]
