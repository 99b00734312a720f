"""The empirical tangent kernel of a real model, and the PL ratio of a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError

__all__ = ["TangentKernel", "pl_ratio", "tangent_kernel"]


@dataclass(frozen=True, eq=False, repr=False)
class TangentKernel(Displayed):
    """The tangent kernel of a model and its eigenvalues; what `tangent_kernel` returns.

    ``kernel`` (b k, b k) runs over samples and outputs. ``eigenvalues`` ascend; ``smallest`` is lambda_1 of Theorem 4.1
    of the Ricci paper. ``rounding`` is what the arithmetic can resolve: a smallest eigenvalue below it may be 0.

    Examples
    --------
    >>> import torch
    >>> from geoattn.spectral import tangent_kernel
    >>> found = tangent_kernel(torch.nn.Linear(2, 1), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    >>> round(found.smallest, 4), round(found.condition, 4), found.smallest > found.rounding
    (1.6972, 3.1244, True)
    """

    kernel: Float[np.ndarray, "m m"]
    eigenvalues: Float[np.ndarray, " m"]
    rounding: float

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return float(self.eigenvalues[0])

    @property
    def condition(self) -> float:
        """Largest over smallest eigenvalue; inf when the smallest is not above rounding."""
        return float(self.eigenvalues[-1] / self.smallest) if self.smallest > self.rounding else float("inf")


def tangent_kernel(
    model: nn.Module, inputs: Tensor, *, output: Callable[[Any], Tensor] | None = None, chunk: int = 8
) -> TangentKernel:
    r""":math:`K = (\nabla_\theta f)(\nabla_\theta f)^\top` over samples and outputs, in float64.

    Memory O(b k p) for b samples, k outputs and p parameters; time k backward passes per sample, vectorised. ``output``
    takes the tensor (b, k) out of what the model returns. The model is used in evaluation mode and left as it was.

    Examples
    --------
    >>> import torch
    >>> from geoattn.spectral import tangent_kernel
    >>> line = torch.nn.Linear(2, 1)  # f = w x + c, so K = x x^T + 1
    >>> tangent_kernel(line, torch.tensor([[1.0, 0.0], [0.0, 2.0]])).kernel
    array([[2., 1.],
           [1., 5.]])
    """
    if not isinstance(inputs, Tensor) or inputs.ndim < 1 or len(inputs) == 0:
        raise GeoattnError("inputs must be a tensor with at least one sample.")
    parameters = {name: p.detach().double() for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise GeoattnError("the model has no parameter that requires a gradient.")
    rest = {name: p.detach().double() for name, p in model.named_parameters() if not p.requires_grad}
    rest |= {name: b.double() if b.is_floating_point() else b for name, b in model.named_buffers()}
    take = output or (lambda answer: answer)
    x = inputs.double() if inputs.is_floating_point() else inputs

    def one(weights: dict[str, Tensor], sample: Tensor) -> Tensor:
        return take(functional_call(model, {**weights, **rest}, (sample[None],)))[0].reshape(-1)

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        # plain attention: the fused kernels have no rule for vmap of their backward
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            parts = vmap(jacrev(one), (None, 0), chunk_size=chunk)(parameters, x)
    finally:
        for module, training in modes:
            module.training = training
    rows = torch.cat([part.flatten(2) for part in parts.values()], dim=2).flatten(0, 1)
    if not torch.isfinite(rows).all():
        raise GeoattnError("a gradient of the model is not finite; look for overflow in its outputs.")
    kernel = (rows @ rows.T).numpy()
    values = np.linalg.eigvalsh(kernel)
    return TangentKernel(kernel, values, float(len(kernel) * np.finfo(np.float64).eps * values[-1]))


def pl_ratio(loss: Tensor, parameters: Any) -> float:
    r"""The ratio :math:`\|\nabla L\|^2 / L` of a loss L.

    It is at least mu where the loss is mu-PL (Theorem 4.1 of the Ricci paper). The graph of the loss is kept, so that a
    backward pass can follow.

    Examples
    --------
    >>> import torch
    >>> from geoattn.spectral import pl_ratio
    >>> w = torch.tensor([3.0, -1.0], requires_grad=True)
    >>> pl_ratio((w**2).sum() / 2, [w])  # |w|^2 over |w|^2 / 2
    2.0
    """
    if not isinstance(loss, Tensor) or loss.ndim != 0 or not loss.requires_grad:
        raise GeoattnError("loss must be a scalar tensor that requires a gradient.")
    value = float(loss.detach())
    if not value > 0:
        raise GeoattnError(f"the PL ratio needs a positive loss; got {value:.6g}.")
    wanted = [p for p in parameters if p.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
    return float(sum(g.double().square().sum() for g in gradients if g is not None)) / value
