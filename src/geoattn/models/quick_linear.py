"""Linear layers through oneDNN: the same function as `torch.nn.Linear`, faster where torch's own library is slow."""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError

__all__ = ["QuickLinear", "refuse_second_derivative", "with_quick_linear"]

_PRODUCT: Any = torch.ops.mkldnn._linear_pointwise if torch.backends.mkldnn.is_available() else None


class QuickLinear(nn.Linear):
    """x W^T + b by the matrix product of oneDNN, for float32 tensors of a processor.

    torch multiplies float32 matrices by MKL, which may use AVX2 alone on processors that Intel did not make. oneDNN
    uses AVX-512 wherever there is one. A training step of MiniLM takes a third less time on such an EPYC, one of L-ViT
    a tenth less. The products differ by the order of their sums. Any other call (another type or device, autocast,
    ``torch.compile``) is that of `torch.nn.Linear`. There is no second derivative: asking for one is an error.

    Examples
    --------
    >>> import torch
    >>> plain = torch.nn.Linear(8, 4)
    >>> quick = QuickLinear(plain)
    >>> x = torch.rand(3, 5, 8)
    >>> bool(torch.allclose(quick(x), plain(x), atol=1e-6)), quick.weight is plain.weight
    (True, True)
    """

    def __init__(self, plain: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.training = plain.training

    @no_type_check  # called in every layer of every step
    def forward(self, x):
        """(..., in) -> (..., out)."""
        if not _fits(x, self.weight):
            return functional.linear(x, self.weight, self.bias)
        return _Product.apply(x.reshape(-1, self.in_features), self.weight, self.bias).view(
            *x.shape[:-1], self.out_features
        )


def _fits(x: Any, weight: Any) -> bool:
    return (
        _PRODUCT is not None
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and all(type(t) in (Tensor, nn.Parameter) and t.dtype == torch.float32 and t.device.type == "cpu"
                for t in (x, weight))
        and x.ndim > 1
        and x.numel() > 0
    )  # fmt: skip


class _Product(torch.autograd.Function):
    """x (t, in), W (out, in), b (out) -> (t, out)."""

    @staticmethod
    @no_type_check
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return _PRODUCT(x, weight, bias, "none", [], "")

    @staticmethod
    @no_type_check
    def backward(ctx, up):
        refuse_second_derivative("linear layer through oneDNN", "with_quick_linear")
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _PRODUCT(up, weight.t().contiguous(), None, "none", [], "") if to_x else None,
            _PRODUCT(up.t().contiguous(), x.t().contiguous(), None, "none", [], "") if to_weight else None,
            up.sum(0) if to_bias else None,
        )


def refuse_second_derivative(what: str = "fused training step", by: str = "with_fused_step") -> None:
    """Gradients with create_graph=True would be constants: silence would be a wrong second derivative."""
    if torch.is_grad_enabled():
        raise GeoattnError(f"the {what} has no second derivative; use create_graph=False, or the model without {by}.")


def with_quick_linear(model: nn.Module) -> nn.Module:
    """The model itself, with a `QuickLinear` in place of each `torch.nn.Linear`; parameters and names stay.

    Examples
    --------
    >>> import torch
    >>> from geoattn.models import quick_linear
    >>> model = quick_linear.with_quick_linear(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    >>> type(model[0]).__name__, list(model.state_dict())
    ('QuickLinear', ['0.weight', '0.bias'])
    """
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                setattr(parent, name, QuickLinear(child))
    return model
