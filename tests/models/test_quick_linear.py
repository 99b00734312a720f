"""Linear layers through oneDNN: the same function and gradients as torch's, in every call that they may get."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.session import capture
from geoattn.models.loading import load_model
from geoattn.models.quick_linear import QuickLinear, with_quick_linear


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 8), (2, 1, 4, 8), (1, 8)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(8, 6, bias=bias)
    quick = QuickLinear(copy.deepcopy(plain))
    found = []
    for layer in (plain, quick):
        x = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).requires_grad_()
        out = layer(x)
        (out * torch.arange(6.0)).sin().sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in layer.parameters())])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_differences() -> None:
    """Not only of torch's own layer: along a random direction of all parameters and the input."""
    torch.manual_seed(1)
    quick, x = QuickLinear(nn.Linear(16, 4)), torch.randn(7, 16, requires_grad=True)
    parts = [x, quick.weight, quick.bias]
    grads = torch.autograd.grad(quick(x).square().sum(), parts)
    ways = [torch.randn_like(p) for p in parts]
    slope = sum(float((g * w).sum()) for g, w in zip(grads, ways, strict=True))

    def at(t: float) -> float:
        a, w, b = (p.detach().double() + t * way for p, way in zip(parts, ways, strict=True))
        return float((a @ w.T + b).square().sum())

    assert slope == pytest.approx((at(1e-5) - at(-1e-5)) / 2e-5, rel=1e-5)


@pytest.mark.parametrize(
    "x", [torch.rand(3, 8).double(), torch.rand(8), torch.rand(0, 8), torch.rand(3, 8, dtype=torch.bfloat16)]
)
def test_other_calls_are_those_of_torch(x: torch.Tensor) -> None:
    plain = nn.Linear(8, 4).to(x.dtype)
    assert torch.equal(QuickLinear(plain)(x), plain(x))


def test_autocast_keeps_its_type() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert QuickLinear(nn.Linear(8, 4))(torch.rand(3, 8)).dtype == torch.bfloat16


def test_a_frozen_layer_gets_no_gradient() -> None:
    quick, x = QuickLinear(nn.Linear(8, 4)).requires_grad_(False), torch.rand(3, 8, requires_grad=True)
    quick(x).sum().backward()
    assert quick.weight.grad is None
    assert x.grad is not None


def test_no_second_derivative_is_an_error() -> None:
    quick, x = QuickLinear(nn.Linear(8, 4)), torch.rand(3, 8, requires_grad=True)
    with pytest.raises(GeoattnError, match="no second derivative"):
        torch.autograd.grad(quick(x).square().sum(), x, create_graph=True)


def test_models_keep_parameters_outputs_and_attention() -> None:
    plain = load_model("bert-tiny", weights="random", classes=2, seed=0, vocab_size=50).eval()
    quick = with_quick_linear(copy.deepcopy(plain))
    ids = torch.arange(12).view(2, 6)
    assert sum(isinstance(module, QuickLinear) for module in quick.modules()) > 10
    assert list(quick.state_dict()) == list(plain.state_dict())
    with torch.no_grad(), capture(plain) as one, capture(quick) as other:
        torch.testing.assert_close(quick(ids).logits, plain(ids).logits, atol=1e-5, rtol=1e-5)
    assert other.names == one.names
    torch.testing.assert_close(other[0].attention(), one[0].attention(), atol=1e-5, rtol=1e-5)


def test_tied_weights_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    quick = with_quick_linear(model)
    assert quick[0].weight is quick[1].weight
