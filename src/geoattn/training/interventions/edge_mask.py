"""The Bernoulli mask of attention edges (Appendix E.3 of the Ricci paper)."""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn import functional

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.attention.masks import BLOCKED
from geoattn.training.attachments import register_attachment
from geoattn.training.interventions.contract import Intervention

__all__ = ["EdgeMask"]


@register_attachment("edge-mask")
class EdgeMask(Intervention):
    """Removes each attention edge with probability ``rate`` while the model trains; testing is not touched.

    ``where="logits"`` (default) removes it before the softmax, so rows still sum to one over what is left.
    ``where="weights"`` sets the weight to 0 after it and does not renormalise. The self edge (i, i) is always kept, so
    no row is ever empty. Each sample, head and layer has a mask of its own, drawn like dropout, from torch's global
    generator: `torch.manual_seed` fixes it, and activation checkpointing repeats it.

    Where there are fewer or more queries than keys, query i counts as token i + m - n, cut to the keys there are.

    Examples
    --------
    >>> import torch, geoattn
    >>> from geoattn.training import EdgeMask
    >>> model = geoattn.models.LViT().train()
    >>> with EdgeMask(0.5).attach(model), geoattn.capture(model) as record:
    ...     _ = model(torch.rand(8, 1, 28, 28))
    >>> share = (record[0].attention() == 0).double().mean()  # of 17 * 16 of 17 * 17 entries, about half
    >>> bool(0.44 < share < 0.50), bool((record[0].attention().sum(-1) - 1).abs().max() < 1e-5)
    (True, True)
    """

    def __init__(self, rate: Any, where: Any = "logits") -> None:
        self.rate = read_number("rate", rate, least=0)
        if self.rate >= 1:
            raise GeoattnError(f"rate must be at least 0 and below 1; got {rate!r}.")
        if where not in ("logits", "weights"):
            raise GeoattnError(f"where must be 'logits' or 'weights'; got {where!r}.")
        self.where = where

    @no_type_check  # traced by torch.compile
    def logits(self, scores):
        """Scores with -inf where an edge was removed."""
        if self.where != "logits" or self.rate == 0:
            return scores
        gone = ~self._kept(scores)
        allowed = scores.detach() > BLOCKED
        # A row of padding may not see itself; it must not end up empty.
        gone = gone & (allowed & ~gone).any(-1, keepdim=True)
        return scores.masked_fill(gone, -torch.inf)

    @no_type_check
    def weights(self, weights):
        """Weights with 0 where an edge was removed."""
        if self.where != "weights" or self.rate == 0:
            return weights
        dropped = functional.dropout(weights, self.rate, True) * (1 - self.rate)  # dropout lets the others grow
        return torch.where(_self_edges(weights), weights, dropped)

    @no_type_check
    def options(self, query, key, options):
        """With the mask on the logits the fused kernel still serves."""
        if self.rate == 0:
            return options
        if self.where != "logits":
            return None
        shape = (*query.shape[:-1], key.shape[-2])
        kept = self._kept(query.new_empty(()).expand(shape))
        mask, n, m = options["attn_mask"], shape[-2], shape[-1]
        allowed = None
        if options["is_causal"]:
            allowed = torch.ones(n, m, dtype=torch.bool, device=query.device).tril()
        if mask is not None:
            seen = mask if mask.dtype == torch.bool else mask.detach() > BLOCKED
            allowed = seen if allowed is None else allowed & seen
        if allowed is not None:
            kept = kept | ~(kept & allowed).any(-1, keepdim=True)
        if mask is None or mask.dtype == torch.bool:
            mask = kept if allowed is None else kept & allowed
        else:
            mask = mask.masked_fill(~(kept if allowed is None else kept & allowed), -torch.inf)
        return {**options, "attn_mask": mask, "is_causal": False}

    @no_type_check
    def _kept(self, like):
        """True for the edges that stay, drawn anew."""
        kept = torch.rand(like.shape, device=like.device) >= self.rate
        return kept | _self_edges(like)


@no_type_check
def _self_edges(like: Tensor):
    """(n, m) bool: token i + m - n for query i, cut to the keys there are."""
    n, m = like.shape[-2:]
    own = (torch.arange(n, device=like.device) + (m - n)).clamp(0, m - 1)
    return torch.arange(m, device=like.device) == own[:, None]
