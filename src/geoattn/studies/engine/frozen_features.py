"""Features of images from a frozen pretrained encoder, and linear classifiers on few of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from geoattn.models.quick_linear import with_quick_linear
from geoattn.studies.engine.pretrained import pretrained_folder

__all__ = ["encoder", "encoder_input", "frozen_features", "linear_heads"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_BATCH = 16
_PENALTY = 0.1  # inverse strength of the ridge penalty, the same for all numbers of rows


def encoder(name: str, seed: int = 0) -> nn.Module:
    """A frozen encoder of images by the name of its folder; random-dinov2 is small and untrained, for smoke runs.

    >>> encoder("random-dinov2").config.hidden_size
    16
    """
    if name == "random-dinov2":
        from transformers import Dinov2Config, Dinov2Model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            small = Dinov2Config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=56)
            return Dinov2Model(small).eval()
    from transformers import AutoModel

    return with_quick_linear(AutoModel.from_pretrained(pretrained_folder(name)).eval())


def encoder_input(images: Float[Tensor, "b c h w"], pixels: int) -> Float[Tensor, "b 3 p p"]:
    """Images in [0, 1] as the encoder takes them: three channels, enlarged to ``pixels``, normalised as ImageNet is."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STD))
    images = images.expand(-1, 3, -1, -1)
    return (functional.interpolate(images, size=pixels, mode="bicubic", antialias=True).clamp(0, 1) - mean) / std


@torch.no_grad()
def frozen_features(
    model: Any, images: Float[Tensor, "b c h w"], pixels: int
) -> Float[np.ndarray, "b d"]:  # fmt: skip
    """The class token of the last layer beside the mean of its patches, for each image."""
    found = []
    for part in images.split(_BATCH):
        tokens = model(pixel_values=encoder_input(part, pixels)).last_hidden_state
        found.append(torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], dim=1))
    return torch.cat(found).numpy()


def linear_heads(
    features: Float[np.ndarray, "b d"], labels: Int[np.ndarray, " b"], rows: Sequence[int]
) -> dict[int, Any]:
    """A logistic regression on the first rows, for each number of them; columns are standardised on the same rows.

    >>> import numpy as np
    >>> labels = np.arange(40) % 2
    >>> heads = linear_heads(np.stack([labels + 0.1, -labels], axis=1), labels, (10, 40))
    >>> list(heads), float(heads[40].score(np.array([[1.1, -1.0]]), [1]))
    ([10, 40], 1.0)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = {}
    for count in rows:
        head = make_pipeline(StandardScaler(), LogisticRegression(C=_PENALTY, max_iter=2000))
        found[count] = head.fit(features[:count], labels[:count])
    return found
