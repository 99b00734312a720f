"""Softmax attention in the many ways people write it, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention import CaptureWarning, capture
from tests.attention.blocks import by_hand
from tests.attention.forms import (
    FORMS,
    WIDTH,
    B,
    D,
    H,
    N,
    Written,
    batch_outside,
    heads_outside,
    set_transformer,
    soft,
)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", FORMS)
def test_ways_to_write_attention(x: Tensor, form: str) -> None:
    model = Written(FORMS[form])
    with capture(model, inputs=True) as record:
        model(x)
    (call,) = record
    q, k, v = model.heads(x)
    assert call.shape == (B, H, N, N)
    assert call.valid.all()
    torch.testing.assert_close(call.attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(call.value, v[:, :1] if form == "shared values einsum" else v)
    call.attention().square().sum().backward()
    assert model.qkv.weight.grad is not None
    if "autograd" not in form and "subclass" not in form:  # those may hide queries and keys
        torch.testing.assert_close(call.query, q, atol=1e-6, rtol=0)
        torch.testing.assert_close(call.key, k, atol=1e-6, rtol=0)


def test_as_many_heads_as_samples(x: Tensor) -> None:
    """Where numbers do not tell which axis the heads are, the step that joined them does."""
    x = torch.cat([x, x.flip(0)])[:H]
    for form in (set_transformer, heads_outside, batch_outside):
        model = Written(form)
        with capture(model) as record:
            model(x)
        q, k, _ = model.heads(x)
        torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)


def test_masks_of_joined_heads(x: Tensor) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1).reshape(-1, N, D) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.repeat(H, 1, 1), scale=1.0)

    mask = torch.ones(B, N, N, dtype=torch.bool)
    mask[1, :, 4:] = False
    model = Written(attend)
    with capture(model) as record:
        model(x, mask)
    q, k, _ = model.heads(x)
    assert torch.equal(record[0].valid, mask[:, 0])
    expected = by_hand(q, k, mask[:, None], scale=1.0) * mask[:, 0, None, :, None]
    torch.testing.assert_close(record[0].attention().double(), expected, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore::geoattn.attention.CaptureWarning")  # softmaxes that nothing explains
@pytest.mark.parametrize(
    "attend",
    [
        lambda q, k, v: soft(q, k).mT @ v,  # a pooling: sums over queries
        lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v),  # linear attention has no map
        lambda q, k, v: functional.linear(soft(q, k), torch.ones(2, N)),
        lambda q, k, v: soft(q, k).sum(1),
        lambda q, k, v: torch.einsum("bhij,bhid->bhjd", soft(q, k), v),
        lambda q, k, v: torch.einsum("bhij,jd->bhid", soft(q, k), v[0, 0]),
    ],
)
def test_what_is_no_attention(x: Tensor, attend: Callable[..., Tensor]) -> None:
    model = Written(attend)
    with capture(model) as record:
        model(x)
    assert not record
    with pytest.raises(GeoattnError, match="no attention ran"):
        list(record)


def test_attention_beside_linear_attention(x: Tensor) -> None:
    model = Written(lambda q, k, v: soft(q, k) @ v + q.softmax(-1) @ (k.softmax(-2).mT @ v))
    with capture(model) as record:
        model(x)
    assert [call.shape for call in record] == [(B, H, N, N)]


def test_changes_in_place_before_the_product_count(x: Tensor) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = soft(q, k)
        weights[..., 2] = 0
        weights /= weights.sum(-1, keepdim=True)
        return weights @ v

    model = Written(attend)
    with torch.no_grad(), capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    seen = torch.ones(N, dtype=torch.bool)
    seen[2] = False
    torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, seen, 1.0), atol=1e-6, rtol=0)
    assert record.check()[0].error < 1e-5


@pytest.mark.parametrize("training", [True, False])
def test_head_masks_after_dropout_count(x: Tensor, training: bool) -> None:
    """As in older transformers: the map is that of the model without dropout, with its head mask."""
    keep = torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None, None]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (functional.dropout(soft(q, k), 0.5, training) * keep) @ v

    model = Written(attend)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    expected = by_hand(q, k, scale=1.0) * keep
    torch.testing.assert_close(record[0].attention().double(), expected, atol=1e-6, rtol=0)


def test_dropout_of_whole_heads_is_dropout(x: Tensor) -> None:
    model = Written(lambda q, k, v: functional.dropout2d(soft(q, k), 0.5) @ v)
    with capture(model) as record:
        model(x)
    q, k, _ = model.heads(x)
    torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)


def test_queries_in_parts(x: Tensor) -> None:
    """Which of the tokens the queries are is not known: no offset, and an error where it matters."""

    def attend(q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask[:, None, None, :].bool()
        parts = [functional.scaled_dot_product_attention(t, k, v, attn_mask=mask, scale=1.0) for t in q.split(2, -2)]
        return torch.cat(parts, -2)

    model, mask = Written(attend), torch.ones(B, N)
    with capture(model) as record:
        model(x, mask)
    q, k, _ = model.heads(x)
    assert [call.offset for call in record] == [None] * 3
    rows = torch.cat([call.attention() for call in record], dim=2)
    torch.testing.assert_close(rows.double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)
    mask[1, 4:] = 0
    with capture(model) as record:
        model(x, mask)
    with pytest.raises(GeoattnError, match="reads 2 queries of 6 tokens, some of which are padding"):
        record[0].attention()


def test_windows_that_the_module_cuts(x: Tensor) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.reshape(B, H, 3, 2, D) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    model = Written(attend)
    with capture(model) as record:
        model(x)
    q, k, _ = (t.reshape(B, H, 3, 2, D).transpose(1, 2).reshape(3 * B, H, 2, D) for t in model.heads(x))
    torch.testing.assert_close(record[0].attention().double(), by_hand(q, k, scale=1.0), atol=1e-6, rtol=0)


def test_overlapping_blocks_are_reported(x: Tensor) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t.unfold(2, 4, 2).transpose(-1, -2) for t in (k, v))  # two blocks of four keys
        return functional.scaled_dot_product_attention(q[:, :, 1:5].reshape(B, H, 2, 2, D), k, v)

    model = Written(attend)
    with pytest.warns(CaptureWarning, match="maps of 2 x 4 in a module with 6 tokens: blocks"), capture(model):
        model(x)
