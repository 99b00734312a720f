"""Maps of bare scaled_dot_product_attention, against what the kernel itself does: with the identity as values it
returns its weights.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from geoattn.attention import CaptureWarning, capture

N, D = 5, 8
INF = float("inf")


class Bare(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def randn(*shape: int) -> Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def kernel_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    m = k.shape[-2]
    identity = torch.eye(m, dtype=q.dtype).expand(*k.shape[:-1], m)
    return functional.scaled_dot_product_attention(q, k, identity, attn_mask=mask, **options)


def captured(q: Tensor, k: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
    model = Bare(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)  # empty rows
        with capture(model) as record:
            model(q, k, k[..., :3], mask)
    return record[0]


@pytest.mark.parametrize(
    ("q", "k", "options"),
    [
        ((2, 4, N, D), (2, 4, N, D), {}),
        ((2, 4, N, D), (2, 4, N, D), {"is_causal": True}),
        ((2, 4, N, D), (2, 4, 7, D), {"is_causal": True}),  # the diagonal begins at the upper left
        ((2, 4, N, D), (2, 4, 3, D), {"is_causal": True}),
        ((2, 4, N, D), (2, 4, N, D), {"scale": 0.1}),
        ((2, 4, N, D), (2, 4, N, D), {"scale": 0.0}),
        ((2, 4, N, D), (2, 4, N, D), {"scale": -1.0}),
        ((2, 4, N, D), (2, 2, N, D), {"enable_gqa": True}),
        ((2, 4, N, D), (2, 1, N, D), {"enable_gqa": True, "is_causal": True}),
        ((4, N, D), (2, N, D), {"enable_gqa": True}),
        ((2, 4, N, D), (2, 1, N, D), {}),  # samples and heads that broadcast
        ((2, 4, N, D), (1, 4, N, D), {}),
        ((1, 4, N, D), (2, 4, N, D), {}),
        ((2, 1, N, D), (2, 4, N, D), {}),
        ((1, 1, N, D), (2, 4, 7, D), {}),
        ((2, 4, N, D), (4, N, D), {}),
        ((4, N, D), (2, 4, N, D), {}),
        ((6, N, D), (6, N, D), {}),
        ((2, 3, 4, N, D), (2, 3, 4, N, D), {}),
        ((2, 3, 4, N, D), (3, 1, N, D), {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_options(q: Any, k: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    queries, keys = randn(*q).to(dtype), randn(*k).to(dtype)
    call, expected = captured(queries, keys, **options), kernel_weights(queries, keys, **options)
    b, h, n, m = call.shape
    assert (n, m) == (q[-2], k[-2])
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(call.attention(), expected.reshape(b, h, n, m), atol=tolerance, rtol=0)
    for i in range(b):  # and by part
        part = call.attention(sample=i, head=[h - 1, 0], rows=slice(1, 4))
        torch.testing.assert_close(part, expected.reshape(b, h, n, m)[i : i + 1, [h - 1, 0], 1:4], atol=1e-6, rtol=0)


@pytest.mark.parametrize("low", [-INF, torch.finfo(torch.float32).min, -1e9, -1e4, -1e3, -100.0])
@pytest.mark.parametrize("shape", [(N, N), (2, 1, N, N), (1, 4, N, N), (2, 4, N, N)])
def test_a_real_query_that_sees_nothing(low: float, shape: tuple[int, ...]) -> None:
    """The third token sees nothing, but others see it. Kernels make a row of 0 of -inf and a full row of numbers."""
    mask = torch.zeros(shape)
    mask[..., 2, :] = low
    q, k = randn(2, 4, N, D), randn(2, 4, N, D) / 2
    call = captured(q, k, mask)
    assert call.valid.all()
    torch.testing.assert_close(call.attention(), kernel_weights(q, k, mask), atol=1e-6, rtol=0)
    allowed = mask == 0
    torch.testing.assert_close(
        captured(q, k, allowed).attention(), kernel_weights(q, k, allowed), atol=1e-6, rtol=0
    )  # fmt: skip


@pytest.mark.parametrize("low", [-INF, torch.finfo(torch.float32).min, -1e9, -1e4, -1e3])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", [1, 4])
def test_padding_by_any_float(low: float, side: str, causal: bool, heads: int) -> None:
    real = torch.ones(2, N, dtype=torch.bool)
    real[1, :2] = side != "left"
    real[1, -2:] = side != "right"
    allowed = real[:, None, None, :].expand(2, heads, N, N)
    allowed = allowed.tril() if causal else allowed
    q, k = randn(2, 4, N, D), randn(2, 4, N, D)
    call = captured(q, k, torch.zeros(allowed.shape).masked_fill(~allowed, low))
    assert torch.equal(call.valid, real)
    scores = (q.double() @ k.double().mT / D**0.5).masked_fill(~allowed, -INF)
    expected = scores.softmax(-1).nan_to_num(0.0) * real[:, None, :, None]
    torch.testing.assert_close(call.attention().double(), expected, atol=1e-6, rtol=0)


def test_a_bias_is_no_mask() -> None:
    """Biases of any size up to those of masks stay what they are: ALiBi over 2,000 tokens goes down to -1,000."""
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    for slope in (0.5, 30.0, 90.0):
        bias = -slope * distance[None, None] * torch.tensor([1.0, 0.5, 0.25, 0.1])[None, :, None, None]
        q, k = randn(2, 4, N, D), randn(2, 4, N, D)
        call = captured(q, k, bias)
        assert call.valid.all()
        torch.testing.assert_close(call.attention(), kernel_weights(q, k, bias), atol=1e-6, rtol=0)


@pytest.mark.parametrize("bias", [causal_lower_right, causal_upper_left])
def test_causal_biases_of_torch(bias: Any) -> None:
    """A tensor whose entries are never filled in."""
    q, k = randn(2, 4, N, D), randn(2, 4, 7, D)
    call = captured(q, k, bias(N, 7))
    torch.testing.assert_close(call.attention(), kernel_weights(q, k, bias(N, 7)), atol=1e-6, rtol=0)
    assert call.offset == (2 if bias is causal_lower_right else 0)


def test_autocast_rounds_masks_too_and_leaves_float64() -> None:
    q, k, bias = randn(2, 4, N, D), randn(2, 4, N, D), 10 * randn(1, 4, N, N)
    with torch.autocast("cpu", torch.bfloat16):
        call = captured(q, k, bias)
        exact = captured(q.double(), k.double())
        expected = kernel_weights(q.double(), k.double())
    rounded = [x.bfloat16().double() for x in (q, k, bias)]
    weights = (rounded[0] @ rounded[1].mT / D**0.5 + rounded[2]).softmax(-1)
    torch.testing.assert_close(call.attention().double(), weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(exact.attention(), expected, atol=1e-14, rtol=0)


def test_gradients_reach_a_trained_bias() -> None:
    bias = torch.zeros(1, 4, N, N, requires_grad=True)
    call = captured(randn(2, 4, N, D), randn(2, 4, N, D), bias)
    call.attention().square().sum().backward()
    assert bias.grad is not None
    assert bias.grad.abs().max() > 0
