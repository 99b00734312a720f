"""The largest singular value of many linear maps at once: Golub-Kahan-Lanczos with full reorthogonalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geoattn._core.errors import GeoattnError

__all__ = ["Triplets", "largest_singular"]

Product = Callable[[Tensor], Tensor]

_NOISE = 32  # lengths below this many roundings are zero


@dataclass(frozen=True, eq=False)
class Triplets:
    """Per map: the largest Ritz value s, unit vectors with J v close to s u, and how close in the Lanczos relation."""

    value: Float[Tensor, " B"]
    left: Float[Tensor, "B M"]
    right: Float[Tensor, "B N"]
    residual: Float[Tensor, " B"]  # |J^T u - s v|; |J v - s u| is zero up to rounding
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


def largest_singular(
    apply: Product,
    adjoint: Product,
    fresh: Callable[[], Float[Tensor, "B N"]],
    *,
    tolerance: float,
    floor: float = 0.0,
    steps: int,
    basis: int = 32,
) -> Triplets:
    r"""Largest singular triplet of B maps, by their products with vectors and transposed.

    Golub and Kahan: orthonormal :math:`U, V` with :math:`J V_k = U_k B_k`, :math:`J^\top U_k = V_k B_k^\top + \beta
    v_{k+1} e_k^\top`. With :math:`B_k = X \Sigma Y^\top` the pair :math:`(U x_1, V y_1)` has the residual
    :math:`\beta |x_{1,k}|`, so there is a singular value that close to :math:`\sigma_1(B_k)`, which is itself never
    above the largest. Every new vector is orthogonalised twice against all before it, and B is read off the
    coefficients. A full basis is shrunk to its best half (thick restart; Baglama and Reichel 2005), which keeps
    the relations. Where a Krylov space closes, a fresh vector opens the next.

    ``fresh`` gives random start vectors (and those for closed spaces). Each step is one product and one transposed
    product with all B maps. It stops when all have a residual below tolerance times value plus ``floor``, or after
    ``steps``. Memory: 2 B (basis + 1) vectors.
    """
    v = _unit(fresh())
    count, size = v.shape
    kind: dict[str, Any] = {"dtype": torch.float64, "device": v.device}
    right = v.new_zeros(count, basis + 1, size)
    right[:, 0] = v
    left = v.new_zeros(0)  # made when the size of an image is known
    small = torch.zeros(count, basis, basis + 1, **kind)
    tiny = _NOISE * torch.finfo(v.dtype).eps
    done = torch.zeros(count, dtype=torch.bool, device=v.device)
    taken = torch.zeros(count, dtype=torch.long, device=v.device)
    residual = torch.full((count,), float("inf"), **kind)
    x = y = s = torch.zeros(0)
    k = 0
    for step in range(1, steps + 1):
        w = apply(right[:, k])
        if left.numel() == 0:
            left = v.new_zeros(count, basis, w.shape[1])
        w, coefficients, alpha = _orthogonalise(w, left[:, :k])
        small[:, :k, k], small[:, k, k] = coefficients, alpha
        left[:, k] = w
        z, _, beta = _orthogonalise(adjoint(w), right[:, : k + 1])
        if not bool(torch.isfinite(alpha + beta).all()):
            raise GeoattnError("products with the Jacobian are not finite; scale tokens and matrices down.")
        k += 1
        x, s, y = torch.linalg.svd(small[:, :k, :k])
        scale = s[:, 0]
        closed = beta <= tiny * scale
        beta = torch.where(closed, 0.0, beta)
        residual = beta * x[:, k - 1, 0].abs()
        taken = torch.where(done, taken, step)
        done |= residual <= tolerance * scale + floor
        if bool(done.all()):
            break
        small[:, k - 1, k] = beta
        if bool(closed.any()):
            new, _, length = _orthogonalise(_unit(fresh()), right[:, :k])
            new = torch.where((length > 1e-6)[:, None], new, 0.0)  # zero: the basis spans all there is
            z = torch.where(closed[:, None], new, z)
        right[:, k] = z
        if k == basis:
            k = _shrink(left, right, small, x, s, y, residual_row=beta)
            x, s, y = (torch.eye(k, **kind).expand(count, k, k), s[:, :k], torch.eye(k, **kind).expand(count, k, k))
    best_left = torch.einsum("bk,bkm->bm", x[:, :, 0].to(left), left[:, : x.shape[1]])
    best_right = torch.einsum("bk,bkn->bn", y[:, 0].to(right), right[:, : y.shape[1]])
    return Triplets(s[:, 0].clone(), best_left, best_right, residual, taken, done)


def _shrink(left: Tensor, right: Tensor, small: Tensor, x: Tensor, s: Tensor, y: Tensor, residual_row: Tensor) -> int:
    """Keep the best half of a full basis, in place; the next vector stays the next."""
    basis = left.shape[1]
    keep = basis // 2
    left[:, :keep] = torch.einsum("bkj,bkm->bjm", x[:, :, :keep].to(left), left)
    right[:, :keep] = torch.einsum("bjk,bkn->bjn", y[:, :keep].to(right), right[:, :basis])
    right[:, keep] = right[:, basis].clone()
    small.zero_()
    index = torch.arange(keep, device=left.device)
    small[:, index, index] = s[:, :keep]
    small[:, :keep, keep] = residual_row[:, None] * x[:, -1, :keep]  # what the next product will find again
    return keep


def _orthogonalise(
    w: Float[Tensor, "B L"], against: Float[Tensor, "B k L"]
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B k"], Float[Tensor, " B"]]:
    """(unit vector, coefficients, length of the rest); zero where nothing is left. Twice is enough."""
    before = w.norm(dim=1)
    total = torch.zeros(against.shape[:2], dtype=w.dtype, device=w.device)
    for _ in range(2):
        part = torch.einsum("bkl,bl->bk", against, w)
        w = w - torch.einsum("bk,bkl->bl", part, against)
        total += part
    length = w.norm(dim=1)
    nothing = length <= _NOISE * torch.finfo(w.dtype).eps * before
    length = torch.where(nothing, 0.0, length)
    unit = torch.where(nothing[:, None], 0.0, w / torch.where(nothing, 1.0, length)[:, None])
    if bool((length < 1e-3 * before).any()):  # what is left may be mostly rounding: its direction once more
        unit = unit - torch.einsum("bk,bkl->bl", torch.einsum("bkl,bl->bk", against, unit), against)
        unit = torch.where(nothing[:, None], 0.0, unit / unit.norm(dim=1, keepdim=True).clamp_min(0.1))
    return unit, total.double(), length.double()


def _unit(v: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    return v / v.norm(dim=1, keepdim=True)
