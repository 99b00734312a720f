"""The local Lipschitz constant of any differentiable function of tokens: a captured block, a whole model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.smoothness.local import packed
from geoattn.smoothness.operator_norm import operator_norm
from geoattn.smoothness.result import Smoothness

__all__ = ["local_lipschitz_of"]


def local_lipschitz_of(
    function: Callable[[Tensor], Tensor],
    tokens: Any,
    *,
    samples: bool = False,
    starts: Any = 2,
    tolerance: Any = None,
    iterations: Any = 400,
    seed: Any = 0,
) -> Smoothness:
    r""":math:`\|D_X f\|_2` of a function f of one tensor, by automatic differentiation.

    What is inside f counts: a block with residual, norms and MLP is measured with them. For the bare attention map use
    `local_lipschitz`, which is exact in linear memory; this one holds what autograd holds, O(n^2) for attention.

    Parameters
    ----------
    function
        From a tensor to a tensor; deterministic (``model.eval()``), twice differentiable or with forward derivatives.
        Parameters must have the dtype of the tokens: for certificates in float64 pass ``module.double()``.
    tokens
        A float tensor of any shape.
    samples
        True when the first axis holds samples that the function treats one by one: one constant for each.
    tolerance
        Default 1e-6 for float64 tokens, 1e-3 for others, as autograd in float32 rounds at about 1e-6 of the norm.
    starts, iterations, seed
        As in `local_lipschitz`.

    Returns
    -------
    Smoothness
        As `local_lipschitz`; the residual is evaluated in the dtype of the tokens.

    Examples
    --------
    >>> import torch
    >>> from geoattn.smoothness import local_lipschitz_of
    >>> layer = torch.nn.Linear(2, 2, bias=False, dtype=torch.float64)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
    >>> local_lipschitz_of(layer, torch.zeros(5, 2, dtype=torch.float64)).value
    3.0
    """
    if not isinstance(tokens, Tensor) or not tokens.is_floating_point() or tokens.numel() == 0:
        raise GeoattnError("tokens must be a torch tensor of floats with at least one number.")
    if samples and tokens.ndim < 2:
        raise GeoattnError(f"samples=True needs an axis of samples and one of coordinates; got {tuple(tokens.shape)}.")
    x = tokens.detach()
    if not bool(torch.isfinite(x).all()):
        raise GeoattnError("tokens must be finite; look for NaN from overflow or padding.")
    starts, iterations = read_count("starts", starts, least=1), read_count("iterations", iterations, least=1)
    seed = read_count("seed", seed, least=0)
    if tolerance is None:
        tolerance = 1e-6 if x.dtype == torch.float64 else 1e-3
    tolerance = read_number("tolerance", tolerance, above=0)
    operator = _Derivative(function, x, samples)
    b = x.shape[0] if samples else 1
    found = operator_norm(
        operator, operator, (b, x.numel() // b), x.reshape(-1)[:1], real=None,
        starts=starts, tolerance=tolerance, steps=iterations, seed=seed,
    )  # fmt: skip
    settings = {
        "starts": starts, "tolerance": tolerance, "iterations": iterations, "seed": seed, "dtype": str(x.dtype),
        "derivative": operator.way, "geoattn": __version__, "torch": torch.__version__,
    }  # fmt: skip
    shape = (b, *(x.shape[1:] if samples else x.shape))
    out = (b, *(operator.out_shape[1:] if samples else operator.out_shape))
    return packed(found, found.right.view(shape), found.left.view(out), None, samples, settings)


class _Derivative:
    """J and its transpose by torch.func; by two backward passes where an operation has no forward derivative."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor, samples: bool) -> None:
        self.x, self.samples = x, samples

        def plain(t: Tensor) -> Tensor:
            # the fused kernels have neither forward nor second derivatives
            with sdpa_kernel(SDPBackend.MATH):
                out = function(t)
            if not isinstance(out, Tensor) or not out.is_floating_point():
                raise GeoattnError(f"function must return one float tensor; got {type(out).__name__}.")
            return out

        self.function = plain
        with torch.no_grad():
            first, second = plain(x), plain(x)
        if not bool(torch.isfinite(first).all()):
            raise GeoattnError("function returned values that are not finite at these tokens.")
        if not torch.equal(first, second):
            raise GeoattnError("function is not deterministic: two calls differ. Switch dropout off with model.eval().")
        if samples and first.shape[:1] != x.shape[:1]:
            raise GeoattnError(
                f"function must keep the axis of samples; got {tuple(first.shape)} for {tuple(x.shape)}."
            )
        self.out_shape = tuple(first.shape)
        self._pull_back = torch.func.vjp(plain, x)[1]
        self.way = "jvp"
        try:
            self._forward(torch.zeros_like(x))
        except (NotImplementedError, RuntimeError):
            self.way = "double vjp"

    def apply(self, flat: Float[Tensor, "b s N"]) -> Float[Tensor, "b s M"]:
        """J times moves, one after the other."""
        push = self._forward if self.way == "jvp" else self._twice
        return torch.stack([push(v.reshape(self.x.shape)).reshape(len(flat), -1) for v in flat.unbind(1)], dim=1)

    def adjoint(self, flat: Float[Tensor, "b s M"]) -> Float[Tensor, "b s N"]:
        """The transpose of J times cotangents."""
        parts = [self._pull_back(g.reshape(self.out_shape))[0] for g in flat.unbind(1)]
        return torch.stack([p.detach().reshape(len(flat), -1) for p in parts], dim=1)

    def _forward(self, v: Tensor) -> Tensor:
        with warnings.catch_warnings():  # torch about itself, when it first loads its forward derivatives
            warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
            return torch.func.jvp(self.function, (self.x,), (v,))[1].detach()

    def _twice(self, v: Tensor) -> Tensor:
        """J v is the derivative of w -> J^T w, which is linear, in the direction v."""
        with torch.enable_grad():
            x = self.x.clone().requires_grad_()
            w = torch.zeros(self.out_shape, dtype=x.dtype, device=x.device, requires_grad=True)
            (back,) = torch.autograd.grad(self.function(x), x, w, create_graph=True)
            return torch.autograd.grad(back, w, v)[0].detach()
