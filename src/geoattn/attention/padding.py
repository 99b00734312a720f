"""Which tokens are real, read from the mask of an attention call or from its weights."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn.attention.masks import BLOCKED, Mask, allowed_entries

__all__ = ["is_token_mask", "keys_of_mask", "keys_of_weights", "last_key", "real_tokens"]


def is_token_mask(mask: Tensor, batch: int, length: int) -> bool:
    """True when a 2-D mask says which tokens of which sample are real.

    A square one with nothing above the diagonal is a causal mask, which happens to have as many samples as tokens.

    Examples
    --------
    >>> import torch
    >>> is_token_mask(torch.ones(4, 4), 4, 4), is_token_mask(torch.ones(4, 4).tril(), 4, 4)
    (True, False)
    """
    if tuple(mask.shape) != (batch, length):
        return False
    if batch != length or batch < 3:
        return True
    real = real_tokens(mask)
    return not bool((real == torch.ones_like(real).tril()).all())


def real_tokens(mask: Tensor) -> Bool[Tensor, "b m"]:
    """Real tokens of a 2-D mask: not 0, or not far below 0 in a mask that is added to scores."""
    if mask.is_floating_point() and bool((mask < 0).any()):
        return mask > BLOCKED
    return mask != 0


def keys_of_mask(mask: Mask, batch: int, n: int, m: int) -> Bool[Tensor, "b m"]:
    """A key is real when at least one query of one head may see it: padding is hidden from all.

    Examples
    --------
    >>> import torch
    >>> keys_of_mask(Mask(torch.tensor([[[[True, True, False]]]]), diagonal=0), batch=2, n=3, m=3)
    tensor([[ True,  True, False],
            [ True,  True, False]])
    """
    allowed = allowed_entries(mask, n, m)
    if allowed is None:
        return torch.ones(batch, m, dtype=torch.bool)
    return allowed.any(dim=2).any(dim=1).expand(batch, m)


def keys_of_weights(weights: Float[Tensor, "b h n m"], peaks: Any = None) -> Bool[Tensor, "b m"]:
    """A key is real when one row of one head gives it weight.

    Constant rows say nothing: that is what a softmax makes of a row in which everything is masked. Where all
    rows are constant, all keys are real. ``peaks`` (b, h, m), the highest scores of each key, tell a weight that
    is too small for the dtype from one that a mask forbids.

    Examples
    --------
    >>> import torch
    >>> weights = torch.tensor([[[[0.4, 0.6, 0.0], [0.7, 0.3, 0.0], [1 / 3, 1 / 3, 1 / 3]]]])
    >>> keys_of_weights(weights)
    tensor([[ True,  True, False]])
    >>> keys_of_weights(weights, torch.tensor([[[2.0, 1.0, -130.0]]]))
    tensor([[True, True, True]])
    """
    weights = weights.detach()
    constant = (weights == weights[..., :1]).all(-1, keepdim=True) | weights.isnan().any(-1, keepdim=True)
    seen = ((weights != 0) & ~constant).any(dim=2).any(dim=1)
    if peaks is not None:
        seen = seen | (peaks > peaks.amax(-1, keepdim=True) + BLOCKED).any(dim=1)
    return seen | ~seen.any(-1, keepdim=True)


def last_key(mask: Mask, weights: Any, n: int, m: int) -> int:
    """The last key that the last query sees in any sample and head."""
    allowed = allowed_entries(mask, n, m)
    if allowed is None:
        if weights is None:
            return m - 1
        allowed = weights.detach() != 0
    seen = allowed[:, :, -1].any(dim=1).any(dim=0).nonzero()
    return int(seen.max()) if seen.numel() else m - 1
