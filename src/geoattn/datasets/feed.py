"""Batches of a `Dataset` as a model takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.datasets.dataset import Dataset
from geoattn.datasets.pixel_norm import pixel_norm
from geoattn.datasets.token_limit import token_limit
from geoattn.datasets.vocabulary import check_tokenizer

__all__ = ["feed"]

_IMAGES, _TEXTS = 32, 8  # in a batch


def feed(
    dataset: Dataset, model: nn.Module, tokenizer: Any = None, *, mean: Any = None, std: Any = None
) -> Iterator[dict[str, Tensor] | Tensor]:
    """Batches of images or texts.

    Images: as they are, in [0, 1], for L-ViT; for a model with ``config.image_size``, resized to it, with the number of
    channels that it expects, and normalised by ``mean`` and ``std`` (by default the model's own, see
    `geoattn.datasets.pixel_norm.pixel_norm`). Those of a ``fitted`` data set keep the size that the model's own image
    processor gave them. Texts: by the tokenizer, padded to the longest of the batch, cut at 512 tokens, or
    fewer where the tokenizer or the model take fewer (see `geoattn.datasets.token_limit.token_limit`).
    """
    if dataset.texts is not None:
        if tokenizer is None:
            raise GeoattnError(f"{dataset.name} holds texts: give tokenizer=, for example ga.load_tokenizer(name).")
        check_tokenizer(tokenizer)
        yield from _texts(dataset.texts, tokenizer, token_limit(tokenizer, model))
        return
    config = getattr(model, "config", None)
    mean, std = pixel_norm(model, mean, std)
    for first in range(0, len(dataset), _IMAGES):
        pixels = dataset.subset(range(first, min(len(dataset), first + _IMAGES))).pixels()
        size = getattr(config, "image_size", None)
        if dataset.fitted:
            yield {"pixel_values": (pixels - mean) / std}
            continue
        if getattr(model, "takes_raw_pixels", False) or size is None:
            yield pixels
            continue
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        if pixels.shape[1] != (channels := getattr(config, "num_channels", 3)):
            pixels = pixels.mean(1, keepdim=True).expand(-1, channels, -1, -1)
        pixels = functional.interpolate(pixels, (height, width), mode="bilinear", align_corners=False, antialias=True)
        yield {"pixel_values": (pixels - mean) / std}


def _texts(texts: tuple[str, ...], tokenizer: Any, limit: int) -> Iterator[dict[str, Tensor]]:
    if getattr(tokenizer, "pad_token", None) is None:
        size = 1  # a tokenizer without padding: one by one
    else:
        size = _TEXTS
    for first in range(0, len(texts), size):
        batch = tokenizer(
            list(texts[first : first + size]), return_tensors="pt", padding=size > 1, truncation=True, max_length=limit
        )
        yield {key: torch.as_tensor(value) for key, value in batch.items()}
