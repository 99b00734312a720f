"""Two plain ways to change attention that the papers' methods should be compared with: temperature and dropout."""

from __future__ import annotations

import math
from typing import Any, no_type_check

import torch
from torch.nn import functional

from geoattn.capture.maps import BLOCKED
from geoattn.errors import GeoattnError
from geoattn.training.interventions import Intervention
from geoattn.training.regulariser import read_number

__all__ = ["AttentionDropout", "SoftmaxTemperature"]


class SoftmaxTemperature(Intervention):
    """Divides all attention logits by ``temperature``, in training and in testing.

    Above 1 attention becomes more even (less variance), below 1 sharper.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training.baselines import SoftmaxTemperature
    >>> model, image = geoattn.LViT().eval(), torch.rand(1, 1, 28, 28)
    >>> with SoftmaxTemperature(1e6).attach(model), geoattn.capture(model) as record:
    ...     _ = model(image)
    >>> record[0].attention().max()
    tensor(0.0588, ...)
    """

    training_only = False

    def __init__(self, temperature: Any) -> None:
        self.temperature = read_number("temperature", temperature, least=0, strict=True)

    @no_type_check  # traced by torch.compile
    def logits(self, scores):
        """Scores over the temperature; what is masked stays masked."""
        return torch.where(scores > BLOCKED, scores / self.temperature, scores)

    @no_type_check
    def fused(self, query, key, value, options):
        """Another scale, and another bias where there is one."""
        mask, scale = options["attn_mask"], options["scale"]
        if mask is not None and mask.dtype != torch.bool:
            mask = torch.where(mask > BLOCKED, mask / self.temperature, mask)
        scale = (1 / math.sqrt(query.shape[-1]) if scale is None else scale) / self.temperature
        options = {**options, "attn_mask": mask, "scale": scale}
        return functional.scaled_dot_product_attention(query, key, value, **options)


class AttentionDropout(Intervention):
    """Dropout on the attention weights while the model trains, on top of what the model does itself.

    Each weight is set to 0 with probability ``rate``, the others grow by 1 / (1 - rate).

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training.baselines import AttentionDropout
    >>> model = geoattn.LViT().train()
    >>> with AttentionDropout(0.3).attach(model) as handle:
    ...     _ = model(torch.rand(2, 1, 28, 28))
    ...     handle.figures()["calls"]
    8.0
    """

    def __init__(self, rate: Any) -> None:
        self.rate = read_number("rate", rate, least=0)
        if self.rate >= 1:
            raise GeoattnError(f"rate must be at least 0 and below 1; got {rate!r}.")

    @no_type_check
    def logits(self, scores):
        """As they are."""
        return scores

    @no_type_check
    def weights(self, weights):
        """Dropped out."""
        return functional.dropout(weights, self.rate, True)

    @no_type_check
    def fused(self, query, key, value, options):
        """Two independent dropouts are one."""
        rate = 1 - (1 - options["dropout_p"]) * (1 - self.rate)
        return functional.scaled_dot_product_attention(query, key, value, **{**options, "dropout_p": rate})
