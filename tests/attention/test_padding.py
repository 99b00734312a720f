"""What is padding when the model does not say it in a 2-D attention_mask."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.attention import capture

B, N, D = 3, 5, 4


class Eager(nn.Module):
    """Hand-written attention with one head; ``low`` is put where the mask is False."""

    def __init__(self, low: float = -torch.inf, key: int | None = None, drop: float = 0.0) -> None:
        super().__init__()
        self.low, self.key, self.drop = low, key, drop

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = x @ x.transpose(-1, -2)
        if self.key is not None:
            scores = scores - self.drop * functional.one_hot(torch.tensor(self.key), N)
        if mask is not None:
            scores = scores.masked_fill(~mask, self.low)
        return scores.softmax(-1) @ x


class Given(nn.Module):
    """Fused attention in a module that is given some 2-D attention_mask."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None, allowed: Tensor | None = None) -> Tensor:
        q = x[:, None]
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=allowed)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, D, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("drop", [50.0, 150.0, 400.0])
@pytest.mark.parametrize("masked", [True, False])
def test_a_token_that_nobody_looks_at_is_no_padding(x: Tensor, drop: float, masked: bool) -> None:
    """Weights too small for float32 are exactly 0, as masked ones are."""
    model = Eager(key=2, drop=drop)
    with capture(model) as record:
        model(x, torch.ones(N, N, dtype=torch.bool)) if masked else model(x)
    weights = record[0].attention()
    assert (weights[..., 2] == 0).all() == (drop > 104)
    assert record[0].valid.all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 1, N))


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float32).min, -1e9, -1e4, -1e3])
def test_a_masked_token_is_padding(x: Tensor, low: float) -> None:
    real = torch.ones(B, N, dtype=torch.bool)
    real[1, 3:] = False
    model = Eager(low)
    with capture(model) as record:
        model(x, real[:, None, :])
    assert torch.equal(record[0].valid, real)
    assert not record[0].attention()[1, :, 3:].any()


def test_masks_after_the_softmax(x: Tensor) -> None:
    class After(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            weights = (x @ x.transpose(-1, -2)).softmax(-1) * mask
            return (weights / weights.sum(-1, keepdim=True)) @ x

    real = torch.ones(B, N, dtype=torch.bool)
    real[2, 0] = False
    model = After()
    with capture(model) as record:
        model(x, real[:, None, :])
    assert torch.equal(record[0].valid, real)


def test_a_mask_of_numbers_to_add(x: Tensor) -> None:
    real = torch.ones(B, N, dtype=torch.bool)
    real[0, 4] = False
    for low in (-torch.inf, -1e9, -1e4):
        model = Given()
        with capture(model) as record:
            model(x, torch.zeros(B, N).masked_fill(~real, low), real[:, None, None, :])
        assert torch.equal(record[0].valid, real)


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float32])
def test_a_causal_mask_with_as_many_samples_as_tokens(dtype: torch.dtype) -> None:
    x = torch.randn(N, N, D)
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    model = Given()
    with capture(model) as record:
        model(x, causal.to(dtype), causal)
    assert record[0].valid.all()
    torch.testing.assert_close(record[0].attention().sum(-1), torch.ones(N, 1, N))


def test_a_full_square_mask_is_of_tokens() -> None:
    x, real = torch.randn(N, N, D), torch.ones(N, N, dtype=torch.bool)
    real[3, 2:] = False
    model = Given()
    with capture(model) as record:
        model(x, real.long(), real[:, None, None, :])
    assert torch.equal(record[0].valid, real)
