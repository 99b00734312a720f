"""Gradients, dropout and checkpointing."""

from __future__ import annotations

import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from tests.attention.blocks import WIDTH, EinsumAttention, Stack, TimmAttention, VitPytorchAttention
from tests.attention.zoo import ARCHITECTURES


class Checkpointed(nn.Module):
    """Two blocks under checkpointing."""

    def __init__(self, *attention: nn.Module, reentrant: bool = False) -> None:
        super().__init__()
        self.inner, self.reentrant = Stack(*attention), reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.inner.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def penalty(record) -> Tensor:
    return sum(call.attention().square().sum() for call in record)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "make", [lambda: TimmAttention(True), lambda: TimmAttention(False), VitPytorchAttention, EinsumAttention]
)
def test_gradient_of_a_penalty_is_that_by_finite_differences(make) -> None:
    torch.manual_seed(0)
    model = make().double()
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        with capture(model) as record:
            model(x)
        return penalty(record)

    assert torch.autograd.gradcheck(loss, x.requires_grad_(), fast_mode=True)


def test_gradients_flow_where_rows_are_fully_masked() -> None:
    model = TimmAttention(True)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    mask[0, ..., :2] = False  # left padding: the first two rows see nothing
    x = torch.randn(2, 4, WIDTH, requires_grad=True)
    with capture(model) as record:
        model(x, attn_mask=mask)
    assert record[0].valid.tolist() == [[False, False, True, True], [True] * 4]
    penalty(record).backward()
    assert torch.isfinite(x.grad).all()
    assert not record[0].attention()[0, :, :2].any()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_checkpointing_gives_the_same_gradients(fused: bool, inside: bool) -> None:
    """The backward pass runs the forward pass again, inside the block or after it: never recorded twice."""
    torch.manual_seed(0)
    model = Checkpointed(TimmAttention(fused), TimmAttention(fused))
    x = torch.randn(2, 5, WIDTH)
    with capture(model.inner) as record:
        out = x
        for block in model.inner.blocks:
            out = block(out)
    expected = gradients(model, out.sum() + penalty(record))
    with capture(model) as record:
        out = model(x)
        if inside:
            actual = gradients(model, out.sum() + penalty(record))
    if not inside:
        actual = gradients(model, out.sum() + penalty(record))
    assert record.names == ["inner.blocks.0.attn", "inner.blocks.1.attn"]
    assert len(record) == 2
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_reentrant_checkpointing_is_refused() -> None:
    model = Checkpointed(TimmAttention(True), reentrant=True)
    x = torch.randn(2, 5, WIDTH, requires_grad=True)
    with pytest.raises(GeoattnError, match=r"'inner.blocks.0.attn' runs under reentrant .* use_reentrant=False"):
        with capture(model):
            model(x)
    assert not list(model.inner.blocks[0]._forward_hooks)
    model(x).sum().backward()  # the model is as it was


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_checkpointing_of_transformers(implementation: str) -> None:
    config = tf.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = tf.BertModel(config, add_pooling_layer=False).train()
    batch = ARCHITECTURES["bert"].batch("right")

    def step() -> tuple[list[Tensor], int]:
        torch.manual_seed(1)  # the same dropout
        with capture(model) as record:
            loss = model(**batch).last_hidden_state.square().sum() + penalty(record)
        return gradients(model, loss), len(record)

    expected, count = step()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    actual, again = step()
    assert count == again == 2
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    with pytest.raises(GeoattnError, match="reentrant"):
        step()


def test_dropout_does_not_touch_the_maps() -> None:
    batch = ARCHITECTURES["bert"].batch("right")
    for implementation in ("sdpa", "eager"):
        model = ARCHITECTURES["bert"].build(implementation).train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        with capture(model) as record:
            model(**batch)
        without = [call.attention() for call in record]
        for layer in model.encoder.layer:
            layer.attention.self.dropout.p = 0.6
        with capture(model) as record:
            model(**batch)
        torch.testing.assert_close(record[0].attention(), without[0])
        torch.testing.assert_close(record[1].attention().sum(-1), without[1].sum(-1))


def test_open_capture_over_many_steps() -> None:
    torch.manual_seed(0)
    model = Stack(TimmAttention(True), VitPytorchAttention())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    x, sharpness = torch.randn(4, 6, WIDTH), []
    with capture(model) as record:
        for _ in range(20):
            optimiser.zero_grad()
            model(x)
            loss = penalty(record)
            loss.backward()
            optimiser.step()
            sharpness.append(float(loss.detach()))
            assert [call.visit for call in record] == [0, 0]
            record.clear()
    assert sharpness[-1] < sharpness[0]  # the penalty was learnt
    with pytest.raises(GeoattnError, match="no attention ran"):
        record[0]
