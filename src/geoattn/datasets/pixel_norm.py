"""How a model of images wants its pixels normalised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoattn._core.errors import GeoattnError
from geoattn._core.text_files import read_json

__all__ = ["pixel_norm"]

_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
#: By ``config.model_type``: what the published weights of each kind were trained with.
_KINDS = {
    "vit": _HALF, "beit": _HALF, "siglip_vision_model": _HALF, "clip_vision_model": _CLIP, "deit": _IMAGENET,
    "dinov2": _IMAGENET, "swin": _IMAGENET, "swinv2": _IMAGENET, "vit_mae": _IMAGENET, "yolos": _IMAGENET,
}  # fmt: skip


def pixel_norm(
    model: nn.Module, mean: Any = None, std: Any = None
) -> tuple[Float[Tensor, "c 1 1"] | float, Float[Tensor, "c 1 1"] | float]:
    """Mean and standard deviation per channel that turn pixels of [0, 1] into what the model was trained on.

    What is given counts. Otherwise: ``image_mean`` and ``image_std`` of the model's configuration, those of
    ``preprocessor_config.json`` in the folder it was loaded from, those of its kind (ImageNet's for DeiT, Swin and
    DINOv2, a half for ViT and BEiT), or a half.

    Examples
    --------
    >>> from geoattn import load_model
    >>> deit = load_model("deit-b16", weights="random", num_hidden_layers=1)
    >>> [round(float(m), 3) for m in pixel_norm(deit)[0].flatten()]
    [0.485, 0.456, 0.406]
    >>> pixel_norm(deit, mean=0.5, std=0.5)
    (0.5, 0.5)
    """
    config = getattr(model, "config", None)
    found = _written(config) or _beside(config) or _KINDS.get(getattr(config, "model_type", ""), (0.5, 0.5))
    channels = int(getattr(config, "num_channels", 3) or 3)
    return _per_channel(found[0] if mean is None else mean, channels, "mean"), _per_channel(
        found[1] if std is None else std, channels, "std"
    )


def _written(config: Any) -> tuple[Any, Any] | None:
    mean, std = getattr(config, "image_mean", None), getattr(config, "image_std", None)
    return None if mean is None or std is None else (mean, std)


def _beside(config: Any) -> tuple[Any, Any] | None:
    folder = getattr(config, "_name_or_path", "") or ""
    path = Path(folder, "preprocessor_config.json")
    if not folder or not path.is_file():
        return None
    try:
        content = read_json(path)
        return content["image_mean"], content["image_std"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _per_channel(value: Any, channels: int, name: str) -> Float[Tensor, "c 1 1"] | float:
    if isinstance(value, (int, float)):
        return float(value)
    numbers = torch.as_tensor(value, dtype=torch.float32).flatten()
    if len(numbers) == 1:
        return float(numbers)
    if len(numbers) != channels:
        if bool((numbers == numbers[0]).all()):
            return float(numbers[0])
        raise GeoattnError(f"{name} must have one number or one for each of {channels} channels; got {len(numbers)}.")
    return numbers[:, None, None]
