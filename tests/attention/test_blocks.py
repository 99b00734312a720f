"""torch.nn and hand-written attention against maps computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from tests.attention.blocks import (
    HEADS,
    WIDTH,
    Block,
    CrossAttention,
    EinsumAttention,
    MergedAttention,
    Router,
    Stack,
    TimmAttention,
    VitPytorchAttention,
    by_hand,
)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 7, WIDTH, generator=torch.Generator().manual_seed(0)) * 2


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def heads_of(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)


def project(module: nn.MultiheadAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = module.in_proj_weight, module.in_proj_bias
    q = functional.linear(query, weight[:WIDTH], bias[:WIDTH])
    return heads_of(q), heads_of(functional.linear(key, weight[WIDTH : 2 * WIDTH], bias[WIDTH : 2 * WIDTH]))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_timm_style(x: Tensor, fused: bool, training: bool) -> None:
    model = Stack(TimmAttention(fused, drop=0.5), TimmAttention(fused, drop=0.5)).train(training)
    seen = []
    handles = [block.attn.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for block in model.blocks]
    with capture(model) as record:
        model(x)
    for handle in handles:
        handle.remove()
    assert record.names == ["blocks.0.attn", "blocks.1.attn"]
    for call, block, tokens in zip(record, model.blocks, seen, strict=True):
        q, k, _ = block.attn.heads(tokens)
        close(call.attention(), by_hand(q, k))  # before dropout, also in training
        assert call.route == ("sdpa" if fused else "softmax")
        assert call.valid.all()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_masks_of_timm_blocks(x: Tensor, fused: bool, padding: str) -> None:
    model = TimmAttention(fused)
    valid = torch.ones(3, 7, dtype=torch.bool)
    valid[1, slice(2) if padding == "left" else slice(5, None)] = False
    mask = valid[:, None, None, :].expand(3, 1, 7, 7)
    with capture(model) as record:
        model(x, attn_mask=mask)
    q, k, _ = model.heads(x)
    assert torch.equal(record[0].valid, valid)
    close(record[0].attention(), by_hand(q, k, mask) * valid[:, None, :, None])


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("kind", [VitPytorchAttention, EinsumAttention, MergedAttention])
def test_softmax_attention(x: Tensor, kind: type[VitPytorchAttention], inplace: bool) -> None:
    attention = kind(dropout=0.5, inplace=inplace)
    with capture(Stack(attention), inputs=True) as record:
        Stack(attention)(x)  # another model with the same module
    assert record.names == ["blocks.0.attn"]
    call = record[0]
    q, k, v = attention.split(call.tokens)
    close(call.attention(), by_hand(q, k))
    close(call.value, v)
    scale = attention.scale if kind is MergedAttention else 1.0
    close(call.query, q * scale)
    close(call.key, k)


def test_softmax_attention_in_one_axis_of_batch_and_heads(x: Tensor) -> None:
    attention = MergedAttention()
    attention.fused = True
    with capture(attention) as record:
        attention(x)
    q, k, _ = attention.split(x)
    assert record[0].route == "sdpa"
    close(record[0].attention(), by_hand(q, k))


def test_router_and_classifier_are_no_attention(x: Tensor) -> None:
    model = nn.Sequential(Router(), TimmAttention(False), Router())
    with capture(model) as record:
        model(x)
    assert record.names == ["1"]
    with capture(Stack()) as record:
        Stack()(x)
    with pytest.raises(GeoattnError, match="no attention ran"):
        list(record)


def test_cross_attention_is_marked(x: Tensor) -> None:
    model, context = CrossAttention(), torch.randn(3, 4, WIDTH)
    with capture(model, inputs=True) as record:
        model(x, context)
        model(x, context=torch.randn(3, 7, WIDTH))
        model(x)
    assert [call.kind for call in record] == ["cross", "cross", "self"]
    assert record[0].attention().shape == (3, HEADS, 7, 4)
    assert record[0].source is context
    assert record[0].tokens is x
    assert record[0].offset is None
    assert record[0].valid.shape == (3, 7)
    assert record[0].valid_keys.shape == (3, 4)


def test_bare_function_in_the_model_itself(x: Tensor) -> None:
    class Bare(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)

    model, q = Bare(), torch.randn(2, 3, 5, 4)
    with capture(model) as record:
        model(q)
        model(q[0, 0])
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    assert record.names == ["Bare"]
    close(record[0].attention(), by_hand(q, q, causal, 0.3))
    close(record[1].attention(), by_hand(q[:1, :1], q[:1, :1], causal, 0.3))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(x: Tensor, batch_first: bool, need_weights: bool) -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5, batch_first=batch_first)
    given = x if batch_first else x.transpose(0, 1)
    other = torch.randn(3, 4, WIDTH)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[2, :3] = True
    with capture(module, inputs=True) as record:
        module(given, given, given, need_weights=need_weights, key_padding_mask=mask)
        key = other if batch_first else other.transpose(0, 1)
        module(given, key, key, need_weights=need_weights)
    q, k = project(module, x, x)
    real = ~mask[:, None, None, :]
    close(record[0].attention(), by_hand(q, k, real) * ~mask[:, None, :, None])
    assert torch.equal(record[0].valid, ~mask)
    assert record[0].route == ("softmax" if need_weights else "sdpa")
    close(record[0].tokens, x)
    q, k = project(module, x, other)
    assert record[1].kind == "cross"
    close(record[1].attention(), by_hand(q, k))
    close(record[1].source, other)


def test_multihead_attention_returns_what_it_returns(x: Tensor) -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    for options in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        expected = module(x, x, x, **options)
        with capture(module) as record:
            actual = module(x, x, x, **options)
        torch.testing.assert_close(actual[0], expected[0])
        assert (actual[1] is None) == (expected[1] is None)
        assert len(record) == 1


def test_multihead_attention_without_batch_and_with_extra_keys(x: Tensor) -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True, add_zero_attn=True)
    with capture(module) as record:
        module(x[0], x[0], x[0], need_weights=False)
    assert record[0].shape == (1, HEADS, 7, 9)
    assert record[0].offset == 0
    torch.testing.assert_close(record[0].attention().sum(-1), torch.ones(1, HEADS, 7))


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_transformer_encoder_without_gradients(x: Tensor, nested: bool, padding: str) -> None:
    """Where torch takes its fused path, which shows no attention, the open capture keeps it from doing so."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    mask = torch.zeros(3, 7, dtype=torch.bool)
    if padding != "none":
        mask[1, slice(2) if padding == "left" else slice(4, None)] = True
    with torch.no_grad():
        expected = model(x)
        with capture(model) as record:
            actual = model(x, src_key_padding_mask=mask if padding != "none" else None)
            plain = model(x)
    torch.testing.assert_close(plain, expected, atol=1e-5, rtol=0)
    assert actual.shape == expected.shape
    assert record.names == ["layers.0.self_attn", "layers.1.self_attn"]
    q, k = project(model.layers[0].self_attn, x, x)
    close(record[0].attention(), by_hand(q, k, ~mask[:, None, None, :]) * ~mask[:, None, :, None])
    assert torch.equal(record[1].valid, ~mask)


@pytest.mark.parametrize("training", [True, False])
def test_transformer_decoder(x: Tensor, training: bool) -> None:
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, batch_first=True, norm_first=True)
    model = nn.TransformerDecoder(layer, 2).train(training)
    memory = torch.randn(3, 5, WIDTH)
    target_pad, memory_pad = torch.zeros(3, 7, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.bool)
    target_pad[0, 5:], memory_pad[1, :2] = True, True
    causal = nn.Transformer.generate_square_subsequent_mask(7) != 0
    with capture(model) as record:
        model(
            x, memory, tgt_mask=causal, tgt_key_padding_mask=target_pad, memory_key_padding_mask=memory_pad
        )  # fmt: skip
    assert [call.kind for call in record] == ["self", "cross", "self", "cross"]
    own, cross = record[0], record[1]
    attention = model.layers[0].self_attn
    q, k = project(attention, model.layers[0].norm1(x), model.layers[0].norm1(x))
    real = ~causal & ~target_pad[:, None, None, :]
    close(own.attention(), by_hand(q, k, real) * ~target_pad[:, None, :, None])
    assert torch.equal(own.valid, ~target_pad)
    assert torch.equal(cross.valid, ~target_pad)  # known from the self-attention before it
    assert torch.equal(cross.valid_keys, ~memory_pad)
    torch.testing.assert_close(cross.attention().sum(-1), (~target_pad)[:, None].expand(3, HEADS, 7).float())


def test_windows_are_samples(x: Tensor) -> None:
    attention = TimmAttention(True)
    with capture(attention) as record:
        attention(x[:, :6].reshape(6, 3, WIDTH))
    assert record[0].shape == (6, HEADS, 3, 3)


def test_five_axes(x: Tensor) -> None:
    class Axial(nn.Module):
        num_heads = HEADS

        def forward(self, x: Tensor) -> Tensor:
            q = x.reshape(3, 1, 7, HEADS, -1).transpose(2, 3)  # batch, rows of an image, heads, tokens, width
            mask = torch.ones(3, 1, 1, 7, 7, dtype=torch.bool).tril()
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    model = Axial()
    with capture(model) as record:
        model(x)
    q = heads_of(x)
    close(record[0].attention(), by_hand(q, q, torch.ones(7, 7, dtype=torch.bool).tril()))


def test_half_precision(x: Tensor) -> None:
    for fused in (True, False):
        model = Block(TimmAttention(fused)).bfloat16()
        with capture(model) as record:
            model(x.bfloat16())
        q, k, _ = model.attn.heads(model.norm1(x.bfloat16()))
        torch.testing.assert_close(record[0].attention().double(), by_hand(q, k), atol=4e-3, rtol=0)
        assert all(check.ok for check in record.check())
    assert record[0].route == "softmax"


def test_autocast_rounds_queries_as_the_kernel_does() -> None:
    class Bare(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(q, q, q)

    model, q = Bare(), torch.randn(2, 3, 5, 4)
    with torch.autocast("cpu", torch.bfloat16), capture(model) as record:
        out = model(q)
    assert out.dtype == torch.bfloat16
    rounded = q.bfloat16().float()
    close(record[0].attention(), by_hand(rounded, rounded))
