"""Variance of attention weights from maps, and of captured calls."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call
from geoattn.attention.masks import allowed_entries
from geoattn.attention.stored import versions
from geoattn.training.variance_streamed import result_dtype, stream_variance

__all__ = ["attention_variance", "call_variance"]


_TINY = torch.finfo(torch.float32).tiny


def attention_variance(attention: Any, valid: Any = None) -> Float[Tensor, "*b"]:
    r"""Population variance of the entries of each map.

    .. math:: \sigma^2 = \frac1N \sum_{(i,j)\ \mathrm{valid}} (A_{ij} - \mu)^2, \qquad
              \mu = \frac1N \sum_{(i,j)\ \mathrm{valid}} A_{ij}

    The sums go over the N valid entries of a map: masked entries (padding, the future) are not entries. Uniform
    attention has variance 0. One-hot rows over n tokens have the largest variance, (n - 1) / n^2.

    Parameters
    ----------
    attention
        (..., n, m), torch, any float dtype.
    valid
        Boolean, broadcasts to the attention: True for an entry. None: all of them.

    Returns
    -------
    Tensor
        (...), in the dtype of the attention (float32 for 16-bit). NaN for a map without entries. Differentiable.
        Entries are centred before they are squared, in float64.

    Examples
    --------
    >>> import torch
    >>> from geoattn.training import attention_variance
    >>> attention_variance(torch.eye(4))
    tensor(0.1875)
    >>> attention_variance(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1, 0], [1, 1]]).bool())
    tensor(0.0556)
    """
    if not isinstance(attention, Tensor) or not attention.is_floating_point() or attention.ndim < 2:
        raise GeoattnError(f"attention must be a float tensor of shape (..., n, m); got {_what(attention)}.")
    x = attention.to(torch.float32 if attention.device.type == "mps" else torch.float64)  # mps has no float64
    if valid is None:
        x = x - x.mean(dim=(-2, -1), keepdim=True)
        return x.square().mean(dim=(-2, -1)).to(result_dtype(attention.dtype))
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
        raise GeoattnError(f"valid must be a boolean tensor, True for an entry; got {_what(valid)}.")
    try:
        valid = valid.to(x.device).expand(x.shape)
    except RuntimeError:
        raise GeoattnError(
            f"valid must broadcast to the attention, {tuple(x.shape)}; got shape {tuple(valid.shape)}."
        ) from None
    count = valid.sum(dim=(-2, -1), keepdim=True)
    mean = x.masked_fill(~valid, 0.0).sum(dim=(-2, -1), keepdim=True) / count
    centred = (x - mean).masked_fill(~valid, 0.0)
    variance = centred.square().sum(dim=(-2, -1)) / count[..., 0, 0]
    return variance.to(result_dtype(attention.dtype))


def call_variance(call: Call) -> Float[Tensor, "b h"]:
    """Variance of each map of a captured call, with gradients to the model: streamed where queries and keys are kept.

    Entries are those that the mask of the call allows between real tokens. Where the model made its maps itself the
    mask is not known: an entry that is too small for float32 in all heads of a sample counts as masked.
    """
    stored = call._read()
    with torch._C.DisableTorchFunction():  # an open capture must not take this for attention of the model
        if stored.weights is None and stored.versions == versions(stored.query, stored.key):
            bias = stored.mask.entries
            if bias is None or not bias.requires_grad:  # a trained bias gets its gradient from the map
                query, key, mask = stored.operands()
                unmasked = mask == (None, None) and stored.key_mask is None and stored.query_mask is None
                real = (None, None) if unmasked else (call.valid, call.valid_keys)
                variance, leaks = stream_variance(query, key, stored.scale, mask, *real)
                if not leaks:
                    return variance
        weights = call.attention()
        real = call.valid[:, None, :, None] & call.valid_keys[:, None, None, :]
        if stored.weights is None:
            allowed = allowed_entries(stored.mask, *call.shape[2:])
            return attention_variance(weights, real if allowed is None else real & allowed.to(real.device))
        seen = (weights.detach().abs() > _TINY).any(dim=1, keepdim=True)
        return attention_variance(weights, real & seen)


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, shape {tuple(value.shape)}"
    return type(value).__name__
