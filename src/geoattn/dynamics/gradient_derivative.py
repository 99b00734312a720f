"""The covariant derivative of the one-form of attention, as a matrix and by its products."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["NORMS", "Derivative", "Norm", "covariant_derivative"]

Norm = Literal["round", "mobility"]
NORMS = ("round", "mobility")


def covariant_derivative(
    x: Float[Tensor, "n d"],
    w: Float[Tensor, " n"],
    A: Float[Tensor, "d d"],
    V: Float[Tensor, "d d"],
    norm: Norm = "round",
) -> Float[Tensor, "m m"]:
    r"""J of `gradient_share` as a matrix of size n d, zero in the directions of the tokens; logits <x_i, A x_j>.

    .. math:: J_{ij} = \sqrt{w_i w_j} \, P_i \, e^{x_i \cdot A x_j} (V + V x_j x_i^\top A) P_j + \delta_{ij} P_i \Big(
              \sum_l w_l e^{x_i \cdot A x_l} \big(V x_l (A x_l)^\top - \langle x_i, V x_l\rangle\big) \Big) P_i

    up to a positive factor for ``round``, and :math:`J_{ij} / \sqrt{m_i m_j}` for ``mobility``.
    """
    n, d = x.shape
    logits = x @ A @ x.mT
    half = _half_masses(logits, w, norm)
    project = torch.eye(d, dtype=x.dtype) - x[:, :, None] * x[:, None, :]
    values, keys, queries = x @ V.mT, x @ A.mT, x @ A
    weights = (logits - half[:, None] - half[None, :]).exp() * (w[:, None] * w[None, :]).sqrt()
    blocks = weights[:, :, None, None] * (V + values[None, :, :, None] * queries[:, None, None, :])
    loads = (logits - 2 * half[:, None]).exp() * w
    own = torch.einsum("il,la,lb->iab", loads, values, keys)
    own = own - torch.einsum("il,il->i", loads, x @ values.mT)[:, None, None] * torch.eye(d, dtype=x.dtype)
    index = torch.arange(n)
    blocks[index, index] += own
    blocks = torch.einsum("iab,ijbc,jcd->ijad", project, blocks, project)
    return blocks.movedim(1, 2).reshape(n * d, n * d)


class Derivative:
    """J of `covariant_derivative` times moves, and transposed; all moves are (s, n, d), s of them at once.

    O(s n d (n + d)) time and O(s n (n + d)) memory.

    Examples
    --------
    >>> import torch
    >>> x, w, I = torch.eye(3, dtype=torch.float64), torch.full((3,), 1 / 3, dtype=torch.float64), torch.eye(3)
    >>> D = I.double()
    >>> u = torch.roll(x, 1, 0)[None]
    >>> torch.allclose(Derivative(x, w, D, D).apply(u), Derivative(x, w, D, D).adjoint(u))
    True
    """

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        w: Float[Tensor, " n"],
        A: Float[Tensor, "d d"],
        V: Float[Tensor, "d d"],
        norm: Norm = "round",
    ) -> None:
        self.x, self.V = x, V
        logits = x @ A @ x.mT
        half = _half_masses(logits, w, norm)
        self.kernel = (logits - 2 * half[:, None]).exp() * w
        scale = (half - half.mean()).exp() * w.sqrt()
        self.left, self.right = scale[:, None], 1 / scale[:, None]
        self.values, self.keys, self.queries = x @ V.mT, x @ A.mT, x @ A
        self.radial = (x * (self.kernel @ self.values)).sum(-1, keepdim=True)

    def tangent(self, u: Float[Tensor, "s n d"]) -> Float[Tensor, "s n d"]:
        """The part of a move along the spheres."""
        return u - (self.x * u).sum(-1, keepdim=True) * self.x

    def apply(self, u: Float[Tensor, "s n d"]) -> Float[Tensor, "s n d"]:
        """J u."""
        v = self.right * self.tangent(u)
        moved = v @ self.keys.mT + self.queries @ v.mT
        out = (self.kernel * moved) @ self.values + (self.kernel @ v) @ self.V.mT - self.radial * v
        return self.tangent(self.left * out)

    def adjoint(self, u: Float[Tensor, "s n d"]) -> Float[Tensor, "s n d"]:
        """The transpose of J, times u."""
        g = self.left * self.tangent(u)
        pulled = self.kernel * (g @ self.values.mT)
        out = pulled @ self.keys + pulled.mT @ self.queries + (self.kernel.mT @ g) @ self.V - self.radial * g
        return self.tangent(self.right * out)


def _half_masses(logits: Tensor, w: Tensor, norm: Norm) -> Tensor:
    """Half the logarithm of what each row is divided by: the largest weight of all, or the mass m of the row."""
    if norm == "round":
        return torch.full_like(w, float(logits.max()) / 2)
    return torch.logsumexp(logits + w.log(), dim=-1) / 2
