"""Dropout on attention weights: a baseline."""

from __future__ import annotations

from typing import Any, no_type_check

from torch.nn import functional

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.training.attachments import register_attachment
from geoattn.training.interventions.contract import Intervention

__all__ = ["AttentionDropout"]


@register_attachment("dropout")
class AttentionDropout(Intervention):
    """Dropout on the attention weights while the model trains, on top of what the model does itself.

    Each weight is set to 0 with probability ``rate``, the others grow by 1 / (1 - rate).

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import AttentionDropout
    >>> model = geoattn.models.LViT().train()
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
    def options(self, query, key, options):
        """Two independent dropouts are one."""
        rate = 1 - (1 - options["dropout_p"]) * (1 - self.rate)
        return {**options, "dropout_p": rate}
