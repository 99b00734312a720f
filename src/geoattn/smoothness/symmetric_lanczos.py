"""The largest eigenvalue of one positive semidefinite map in few dimensions, by Lanczos from a given vector."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["largest_eigenvector"]


def largest_eigenvector(
    apply: Callable[[Tensor], Tensor], first: Float[Tensor, " L"], *, tolerance: float, steps: int
) -> Float[Tensor, " L"]:
    r"""The unit Ritz vector of the largest Ritz value of a symmetric map G, from a Krylov space of ``first``.

    It stops where :math:`|G y - \theta y| \le` tolerance :math:`\theta`, where the space closes, or after ``steps``
    products; the caller judges what came. Every new vector is orthogonalised twice against all before it.

    Examples
    --------
    >>> import torch
    >>> y = largest_eigenvector(lambda v: torch.tensor([1.0, 4.0]) * v, torch.ones(2), tolerance=1e-6, steps=9)
    >>> y.abs().round(decimals=4)
    tensor([0., 1.])
    """
    basis = (first / first.norm())[None]
    small = torch.zeros(steps, steps, dtype=torch.float64, device=first.device)
    best = torch.ones(1, dtype=torch.float64, device=first.device)
    for k in range(steps):
        w = apply(basis[k])
        before = w.norm()
        for _ in range(2):
            part = basis @ w
            w = w - part @ basis
            small[: k + 1, k] += part.double()
        beta = float(w.norm())
        values, vectors = torch.linalg.eigh(small[: k + 1, : k + 1], UPLO="U")
        best, last = vectors[:, -1], abs(float(vectors[-1, -1]))
        closed = beta <= 32 * torch.finfo(w.dtype).eps * float(before)
        if closed or beta * last <= tolerance * float(values[-1]) or k + 1 == steps:
            break
        basis = torch.cat([basis, w[None] / beta])
    y = best.to(basis) @ basis
    return y / y.norm()
