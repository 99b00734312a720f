"""Entropy of attention rows: a baseline regulariser."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call
from geoattn.attention.record import Record
from geoattn.training.attachments import register_attachment
from geoattn.training.distributed import mean_over_samples
from geoattn.training.regularisers.contract import Penalty, Regulariser, layer_name
from geoattn.training.strength import read_weight

__all__ = ["RowEntropy", "call_entropy"]


@register_attachment("entropy")
class RowEntropy(Regulariser):
    r"""Adds :math:`\mp\gamma \bar H` to the loss, :math:`H_i = -\sum_j A_{ij} \log A_{ij}` in nats.

    ``increase`` rewards entropy (even attention), ``decrease`` punishes it. The mean goes over valid rows, samples and
    heads, then over layers. H lies between 0 and log n. Builds each map once: O(n^2) memory per layer.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import RowEntropy
    >>> model = geoattn.models.LViT()
    >>> with RowEntropy("decrease", gamma=2.0).attach(model) as handle:
    ...     _ = model(torch.rand(4, 1, 28, 28))
    ...     penalty = float(handle.penalty().detach())
    >>> 0 < penalty < 2 * 2.8333  # 2 log 17
    True
    """

    def __init__(
        self, direction: Any = "increase", gamma: Any = None, *, strength: Any = None, adapt: Any = False
    ) -> None:
        if direction not in ("increase", "decrease"):
            raise GeoattnError(f"direction must be 'increase' or 'decrease'; got {direction!r}.")
        self.direction = direction
        self.gamma, self.strength = read_weight(gamma, strength, adapt, default=0.01)

    def penalise(self, record: Record, step: int) -> Penalty:
        """The penalty of one forward pass, and the entropy of each layer."""
        layers: dict[str, Any] = {}
        for call in record:
            layers[layer_name(call.name, call.visit, layers)] = call_entropy(call)
        first = next(iter(layers.values())).device
        entropy = torch.stack([value.to(first) for value in layers.values()]).mean()
        sign = -1.0 if self.direction == "increase" else 1.0
        return Penalty(
            sign * self.gamma * entropy, {"entropy": entropy, **{f"entropy/{k}": v for k, v in layers.items()}}
        )


def call_entropy(call: Call) -> Float[Tensor, ""]:
    """Mean entropy of the valid rows of all maps of a call, in nats, with gradients."""
    with torch._C.DisableTorchFunction():  # an open capture must not see this
        weights = call.attention()
        # log at the smallest positive number instead of 0: the slope of 0 log 0 would be infinite
        rows = -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1)
        valid = call.valid[:, None, :].expand(rows.shape)
        return mean_over_samples(rows[valid])
