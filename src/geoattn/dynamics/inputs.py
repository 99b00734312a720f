"""Checks at the door: tokens, matrices and numbers become tensors, or one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError

__all__ = ["read_matrix", "read_one_matrix", "read_symmetric", "read_tokens", "read_weights"]

# How far a norm may be from one before it is an error: rounding in the precision the tokens came in.
_NORM_TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-9}


def read_tokens(tokens: Any, *, normalise: bool = False, sphere: bool = True) -> Float[Tensor, "*b n d"]:
    """Tokens (..., n, d) on the unit sphere, float32 or float64, detached.

    Norms within rounding of one are set to one exactly; others are an error unless ``normalise``. With ``sphere=False``
    norms are free. Integers become float64, half precision float32.

    Examples
    --------
    >>> read_tokens([[3.0, 4.0]], normalise=True)
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """
    x = _as_tensor("tokens", tokens)
    limit = _NORM_TOLERANCE[x.dtype]
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    if x.ndim < 2:
        raise GeoattnError(f"tokens must have shape (..., n, d); got {tuple(x.shape)}. One token is tokens[None, :].")
    if 0 in x.shape or x.shape[-1] < 2:
        raise GeoattnError(f"tokens must hold at least one token in dimension 2 or more; got shape {tuple(x.shape)}.")
    if not x.isfinite().all():
        raise GeoattnError(f"tokens must be finite; token {_first(~x.isfinite().all(-1))} is not.")
    if not sphere:
        return x.clone()
    norm = x.norm(dim=-1, keepdim=True)
    if (norm == 0).any():
        raise GeoattnError(f"token {_first(norm[..., 0] == 0)} is the zero vector, which has no direction. Remove it.")
    off = (norm - 1).abs()
    if not normalise and (off > limit).any():
        raise GeoattnError(
            f"tokens must lie on the unit sphere within {limit:.0e}; token {_first(off[..., 0] > limit)} has norm"
            f" {float(norm[off > limit][0]):.6g}. Pass normalise=True to divide by the norms."
        )
    x = x / norm
    return x / x.norm(dim=-1, keepdim=True)  # once more: the first division may leave two units in the last place


def read_matrix(name: str, matrix: Any, d: int, like: Tensor) -> Float[Tensor, "*c d d"] | None:
    """None (the identity), a number (times the identity) or (..., d, d), in the dtype and on the device of ``like``."""
    if matrix is None:
        return None
    if isinstance(matrix, (int, float, np.integer, np.floating)) and not isinstance(matrix, bool):
        return read_number(name, matrix) * torch.eye(d, dtype=like.dtype, device=like.device)
    m = _as_tensor(name, matrix).to(like)
    if m.ndim < 2 or tuple(m.shape[-2:]) != (d, d):
        raise GeoattnError(
            f"{name} must be a number or a matrix ({d}, {d}) to go with tokens in dimension {d}; got shape"
            f" {tuple(m.shape)}."
        )
    if not m.isfinite().all():
        raise GeoattnError(f"{name} must be finite.")
    return m


def read_one_matrix(name: str, matrix: Any) -> Float[Tensor, "d d"]:
    """One (d, d) matrix in float64."""
    m = _as_tensor(name, matrix).double()
    if m.ndim != 2 or m.shape[0] != m.shape[1] or m.shape[0] < 2:
        raise GeoattnError(f"{name} must be one (d, d) matrix, d at least 2; got shape {tuple(m.shape)}.")
    if not m.isfinite().all():
        raise GeoattnError(f"{name} must be finite.")
    return m


def read_symmetric(name: str, matrix: Any) -> Float[Tensor, "d d"]:
    """One symmetric (d, d) matrix in float64."""
    m = read_one_matrix(name, matrix)
    off = float((m - m.T).abs().max())
    if off > 1e-12 * max(1.0, float(m.abs().max())):
        raise GeoattnError(
            f"{name} must be symmetric here; |{name} - {name}^T| reaches {off:.3g}. The energy of an asymmetric matrix"
            f" is that of no gradient flow; pass ({name} + {name}^T) / 2 if that is what you mean."
        )
    return (m + m.T) / 2


def read_weights(weights: Any, shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "*b n"]:
    """Masses of the tokens, (..., n), not negative and with sum one; None is 1/n each."""
    if weights is None:
        return torch.full(shape, 1.0 / shape[-1], dtype=like.dtype, device=like.device)
    w = _as_tensor("weights", weights).to(like)
    if w.ndim < 1 or w.shape[-1] != shape[-1] or w.ndim > len(shape):
        raise GeoattnError(f"weights must have shape (..., {shape[-1]}), one per token; got {tuple(w.shape)}.")
    if not w.isfinite().all() or (w < 0).any():
        raise GeoattnError("weights must be finite and not negative.")
    total = w.sum(-1)
    if ((total - 1).abs() > 1e-6).any():
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        raise GeoattnError(f"weights must sum to one; got {worst:.9g}. Divide by their sum.")
    try:
        return (w / total[..., None]).expand(shape)
    except RuntimeError:
        raise GeoattnError(f"weights of shape {tuple(w.shape)} do not fit tokens of batch {shape}.") from None


def _as_tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool or value.layout != torch.strided:
            raise GeoattnError(f"{name} must be a dense real tensor; got {value.dtype}, {value.layout}.")
        return value.detach() if value.is_floating_point() else value.double()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise GeoattnError(f"{name} must be an array of numbers; NumPy says: {error}.") from None
    if array.dtype.kind not in "fiu":
        raise GeoattnError(f"{name} must be an array of real numbers; got dtype {array.dtype}.")
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array))  # a copy: the caller's array stays the caller's


def _first(bad: Tensor) -> str:
    place = tuple(int(k) for k in bad.nonzero()[0])
    return str(place[0]) if len(place) == 1 else str(place)
