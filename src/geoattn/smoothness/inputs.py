"""Checks at the door: tokens, matrices, masks and numbers become float64 tensors, or one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = ["read_mask", "read_matrices", "read_tensor", "read_tokens"]


def read_tensor(x: Any, name: str) -> Float[Tensor, "..."]:
    """A dense float64 tensor on the device it came from (NumPy: the CPU), detached. Values are not checked."""
    if isinstance(x, Tensor):
        if x.device.type == "meta" or x.layout != torch.strided:
            raise GeoattnError(f"{name} must be a dense tensor with values; got {x.layout} on device {x.device}.")
        if not x.is_floating_point():
            raise GeoattnError(f"{name} must have a floating dtype; got {x.dtype}. Convert with .double().")
        return x.detach().double()
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise GeoattnError(f"{name} must be an array of numbers; NumPy says: {error}.") from None
    if array.dtype.kind != "f":
        raise GeoattnError(f"{name} must have a floating dtype; got {array.dtype}. Convert with .astype(float).")
    return torch.from_numpy(np.array(array, dtype=np.float64))


def read_tokens(tokens: Any, mask: Any, name: str = "tokens") -> tuple[Float[Tensor, "b n d"], Any, bool]:
    """(b, n, d) tokens, (b, n) mask of real ones or None, and whether a batch came. Padding is set to zero."""
    x = read_tensor(tokens, name)
    if x.ndim not in (2, 3):
        raise GeoattnError(f"{name} must have shape (n, d), or (b, n, d) for b samples; got {tuple(x.shape)}.")
    if 0 in x.shape:
        raise GeoattnError(f"{name} must hold at least one token of at least one number; got shape {tuple(x.shape)}.")
    batched = x.ndim == 3
    x = x if batched else x[None]
    valid = read_mask(mask, (x.shape[0], x.shape[1]), batched, f"mask of {name}")
    if valid is not None:
        valid = valid.to(x.device)
        x = x.masked_fill(~valid[..., None], 0.0)
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        b, i, k = (int(v) for v in bad.nonzero()[0])
        where = f"token {i}, coordinate {k}" + (f" of sample {b}" if batched else "")
        raise GeoattnError(
            f"{name} must be finite; got {float(x[b, i, k])} at {where}. Mask padded tokens with mask=, and look for"
            " overflow in the model."
        )
    return x, valid, batched


def read_mask(mask: Any, shape: tuple[int, int], batched: bool, name: str) -> Bool[Tensor, "b n"] | None:
    """(b, n) bool, True for a real token; (n,) is the same for all samples. None when every token is real."""
    if mask is None:
        return None
    m = torch.as_tensor(np.asarray(mask.detach().cpu() if isinstance(mask, Tensor) else mask))
    if m.dtype != torch.bool:
        if m.is_floating_point() or m.is_complex() or not bool(((m == 0) | (m == 1)).all()):
            raise GeoattnError(f"{name} must be boolean (True = a real token) or 0/1 integers; got {m.dtype}.")
        m = m.bool()
    if m.shape not in ((shape[1],), shape):
        expected = f"{shape} or ({shape[1]},)" if batched else f"({shape[1]},)"
        raise GeoattnError(f"{name} must have shape {expected}; got {tuple(m.shape)}.")
    m = m.expand(shape)
    if not bool(m.any(dim=1).all()):
        empty = int((~m.any(dim=1)).nonzero()[0])
        raise GeoattnError(f"{name} leaves no real token" + (f" in sample {empty}." if batched else "."))
    return None if bool(m.all()) else m


def read_matrices(x: Any, name: str, *, columns: int | None = None) -> Float[Tensor, "h p d"]:
    """(h, p, d) finite matrices, one per head; a single (p, d) is one head."""
    w = read_tensor(x, name)
    if w.ndim not in (2, 3) or 0 in w.shape:
        raise GeoattnError(f"{name} must have shape (p, d), or (h, p, d) for h heads; got {tuple(w.shape)}.")
    if columns is not None and w.shape[-1] != columns:
        raise GeoattnError(f"{name} must have {columns} columns to act on its input; got shape {tuple(w.shape)}.")
    if not bool(torch.isfinite(w).all()):
        raise GeoattnError(f"{name} must be finite; got {float(w[~torch.isfinite(w)][0])}.")
    return w if w.ndim == 3 else w[None]
