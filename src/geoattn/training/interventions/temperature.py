"""Softmax temperature: a baseline that changes attention by one number."""

from __future__ import annotations

import math
from typing import Any, no_type_check

import torch

from geoattn._core.arguments import read_number
from geoattn.attention.masks import BLOCKED
from geoattn.training.attachments import register_attachment
from geoattn.training.interventions.contract import Intervention

__all__ = ["SoftmaxTemperature"]

_FAR = 87.0  # below the largest bias of a row: exp(-87) is next to nothing in float32


@register_attachment("temperature")
class SoftmaxTemperature(Intervention):
    """Divides all attention logits by ``temperature``, in training and in testing.

    Above 1 attention becomes more even (less variance), below 1 sharper.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import SoftmaxTemperature
    >>> model, image = geoattn.models.LViT().eval(), torch.rand(1, 1, 28, 28)
    >>> with SoftmaxTemperature(1e6).attach(model), geoattn.capture(model) as record:
    ...     _ = model(image)
    >>> record[0].attention().max()
    tensor(0.0588, ...)
    """

    training_only = False

    def __init__(self, temperature: Any) -> None:
        self.temperature = read_number("temperature", temperature, above=0)

    @no_type_check  # traced by torch.compile
    def logits(self, scores):
        """Scores over the temperature; what is masked stays masked."""
        return torch.where(scores > BLOCKED, scores / self.temperature, scores)

    @no_type_check
    def options(self, query, key, options):
        """Another scale, and another bias where there is one; what it masks, as Swin does with -100, stays masked."""
        mask, scale = options["attn_mask"], options["scale"]
        if mask is not None and mask.dtype != torch.bool:
            seen = (mask > BLOCKED) & (mask > mask.amax(-1, keepdim=True) - _FAR)
            mask = torch.where(seen, mask / self.temperature, mask)
        scale = (1 / math.sqrt(query.shape[-1]) if scale is None else scale) / self.temperature
        return {**options, "attn_mask": mask, "scale": scale}
