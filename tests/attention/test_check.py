"""The self-check: silent when all is well, clear when it is not."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.attention import CaptureWarning, capture
from geoattn.attention.check import check_call
from tests.attention.blocks import WIDTH, Stack, TalkingHeads, TimmAttention, VitPytorchAttention
from tests.attention.zoo import ARCHITECTURES


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))


def test_all_is_well(x: Tensor) -> None:
    model = Stack(TimmAttention(True), TimmAttention(False), VitPytorchAttention())
    with capture(model) as record:
        model(x)
        model(x)
    checks = record.check()
    assert [check.name for check in checks] == 2 * record.names
    for check in checks:
        assert check.ok
        assert check.error < 1e-5
        assert check.padded == 0
        assert check.row_sums == pytest.approx((1.0, 1.0), abs=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_is_no_obstacle(x: Tensor, fused: bool) -> None:
    model = TimmAttention(fused, drop=0.5)
    with capture(model) as record:
        model(x)
    (check,) = record.check()
    assert check.error < 1e-5
    assert check.ok


def test_dropout_does_not_hide_an_error(x: Tensor) -> None:
    model = TimmAttention(False, drop=0.5)
    with capture(model) as record:
        model(x)
    call = record[0]
    assert call.probe is not None
    assert not check_call(replace(call, probe=replace(call.probe, used=2 * call.probe.used))).ok


def test_sinks() -> None:
    model = ARCHITECTURES["gpt-oss"].build("eager")
    with pytest.warns(CaptureWarning, match=r"'layers.0.self_attn': rows sum to .* a sink that is no token"):
        with torch.no_grad(), capture(model) as record:
            model(**ARCHITECTURES["gpt-oss"].batch("none"))
    check = record.check()[0]
    assert check.error < 1e-5  # it is what the model used
    assert check.row_sums[1] < 1


def test_sinks_of_a_single_layer(x: Tensor) -> None:
    """As in mimo: some layers have a sink, and the first has none."""

    class Sink(VitPytorchAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            scores = q @ k.transpose(-1, -2) * self.scale
            weights = torch.cat([scores, torch.ones_like(scores[..., :1])], -1).softmax(-1)[..., :-1]
            return self.to_out((weights @ v).transpose(1, 2).flatten(2))

    model = Stack(VitPytorchAttention(), Sink(), VitPytorchAttention())
    with pytest.warns(CaptureWarning, match=r"'blocks.1.attn': rows sum to .* a sink that is no token"):
        with capture(model) as record:
            model(x)
    assert [call.sink for call in record] == [0, 1, 0]


def test_rows_that_are_not_probabilities(x: Tensor) -> None:
    torch.manual_seed(0)
    model = TalkingHeads()
    with pytest.warns(CaptureWarning, match="negative .* logits|not to one"), capture(model) as record:
        model(x)
    assert record.check()[0].error < 1e-5
    nn.init.constant_(model.talk.weight, 0.5)
    nn.init.zeros_(model.talk.bias)
    with pytest.warns(CaptureWarning, match="rows sum to 2 to 2, not to one"), capture(model):
        model(x)


def test_logits(x: Tensor) -> None:
    class Logits(VitPytorchAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            attn = (q @ k.transpose(-1, -2)).softmax(-1).log() @ v
            return self.to_out(attn.transpose(1, 2).flatten(2))

    model = Logits()
    with pytest.warns(CaptureWarning, match="logits, not weights"), capture(model):
        model(x)


def test_weights_changed_after_dropout(x: Tensor) -> None:
    class Changed(VitPytorchAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            attn = self.dropout((q @ k.transpose(-1, -2)).softmax(-1))
            return self.to_out(((attn * 2) @ v).transpose(1, 2).flatten(2))

    model = Changed(dropout=0.5).eval()
    with pytest.warns(CaptureWarning, match="rows sum to 2 to 2"), capture(model):
        model(x)


def test_mask_that_is_not_obeyed(x: Tensor) -> None:
    class Deaf(nn.Module):
        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            q = x[:, None]
            return functional.scaled_dot_product_attention(q, q, q)

    model, mask = Deaf(), torch.ones(3, 5, dtype=torch.long)
    mask[0, 4] = 0
    with pytest.warns(CaptureWarning, match="attention_mask is not obeyed"), capture(model) as record:
        model(x, attention_mask=mask)
    assert record.check()[0].padded > 0


def test_one_warning_for_each_route(x: Tensor) -> None:
    model = Stack(TalkingHeads(), TalkingHeads())
    with warnings.catch_warnings(record=True) as caught, capture(model) as record:
        warnings.simplefilter("always")
        model(x)
        model(x)
    assert len(caught) == 1
    assert len([check for check in record.check() if not check.ok]) == 4


def test_a_padded_sample_is_skipped() -> None:
    model = ARCHITECTURES["bert"].build("sdpa")
    batch = ARCHITECTURES["bert"].batch("none")
    batch["attention_mask"][0] = 0
    with torch.no_grad(), capture(model) as record:
        model(**batch)
    assert math.isnan(record.check()[0].error)
    assert not record[0].attention(sample=0).any()
