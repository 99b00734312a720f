"""Captured maps equal the maps of the eager model, on every architecture and padding."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch

from geoattn.attention import Call, CaptureWarning, Record, capture
from tests.attention.zoo import ARCHITECTURES, Architecture

# transformers itself, when it imports DeBERTa
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

CASES = [
    (name, implementation, padding)
    for name, architecture in ARCHITECTURES.items()
    for implementation in (["sdpa"] if architecture.sdpa else []) + ["eager"]
    for padding in architecture.paddings
]


def eager_maps(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, ...]]:
    """Maps of the eager model by their place: encoder, decoder, cross, or all there are."""
    out = model(**batch, output_attentions=True)
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    found = {name.removesuffix("attentions").rstrip("_"): getattr(out, name, None) for name in names}
    return {place: maps for place, maps in found.items() if maps}


def calls_at(record: Record, place: str) -> list[Call]:
    if place == "cross":
        return [call for call in record if call.kind == "cross"]
    own = [call for call in record if call.kind == "self"]
    return [call for call in own if call.name.startswith(place)] if place else own


def real_tokens(batch: dict[str, torch.Tensor], place: str) -> torch.Tensor | None:
    return batch.get("decoder_attention_mask" if place in ("decoder", "cross") else "attention_mask")


@pytest.fixture(scope="module")
def models() -> dict[tuple[str, str], Any]:
    return {}


def build(models: dict[tuple[str, str], Any], name: str, implementation: str) -> Any:
    if (name, implementation) not in models:
        models[name, implementation] = ARCHITECTURES[name].build(implementation)
    return models[name, implementation]


@pytest.mark.parametrize(("name", "implementation", "padding"), CASES)
def test_maps_equal_eager(models, name: str, implementation: str, padding: str) -> None:
    architecture: Architecture = ARCHITECTURES[name]
    model, eager = build(models, name, implementation), build(models, name, "eager")
    batch = architecture.batch(padding)
    expect_sinks = pytest.warns(CaptureWarning, match="sink") if architecture.sinks else contextlib.nullcontext()
    with torch.no_grad():
        expected = eager_maps(eager, batch)
        with expect_sinks, capture(model) as record:
            model(**batch)
    assert {call.route for call in record} == {"softmax" if implementation == "eager" else "sdpa"}
    count = 0
    for place, maps in expected.items():
        calls = calls_at(record, place)
        if name == "swin":  # eager reports the last block of each stage, the one with shifted windows
            calls = [call for call in calls if call.name.endswith("blocks.1.attention")]
        assert len(calls) == len(maps)
        count += len(calls)
        mask = real_tokens(batch, place)
        for call, eager_map in zip(calls, maps, strict=True):
            captured = call.attention()
            assert captured.shape == eager_map.shape == call.shape
            if mask is not None:
                torch.testing.assert_close(call.valid, mask.bool())
            real = call.valid[:, None, :, None] & call.valid_keys[:, None, None, :]
            torch.testing.assert_close(captured, eager_map * real, atol=1e-6, rtol=0)
            assert not captured.masked_select(~real).any()
    assert count == len(record) // (2 if name == "swin" else 1)
    assert all(check.error < 1e-5 and check.ok != architecture.sinks for check in record.check())


def test_there_are_enough_architectures() -> None:
    assert len(ARCHITECTURES) >= 20
    wanted = "bert electra vit deit gpt2 llama t5 bart deberta-v2 bloom albert distilbert mistral qwen2 gemma2"
    assert {*wanted.split(), "swin", "whisper"} <= set(ARCHITECTURES)


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_padding_is_found_without_the_models_mask(name: str) -> None:
    """A model that takes only a 4-D mask: what is padding is read from the mask of the call."""
    architecture = ARCHITECTURES[name]
    batch = architecture.batch("right")
    for implementation in ("sdpa", "eager"):
        model = architecture.build(implementation)
        with torch.no_grad(), capture(model) as record:
            model(**batch)
        for call in record:
            blind = copy.copy(call.__dict__)
            stored = blind["stored"]
            hidden = type(stored)(**{**stored.__dict__, "key_mask": None, "query_mask": None})
            again = Call(**{k: v for k, v in blind.items() if k in Call.__dataclass_fields__} | {"stored": hidden})
            torch.testing.assert_close(again.valid_keys, call.valid_keys)
            if call.kind == "self":
                torch.testing.assert_close(again.attention(), call.attention())


def test_grouped_queries_keep_one_key_per_group() -> None:
    model = ARCHITECTURES["llama"].build("sdpa")
    with capture(model, inputs=True) as record:
        model(**ARCHITECTURES["llama"].batch("none"))
    assert record[0].shape[1] == 4
    assert record[0].key.shape[1] == 2
    assert record[0].attention(head=[3, 0]).shape[1] == 2
    torch.testing.assert_close(record[0].attention(head=[3, 0]), record[0].attention()[:, [3, 0]])


def test_shared_layers_are_told_apart() -> None:
    model = ARCHITECTURES["albert"].build("sdpa")
    with capture(model) as record:
        model(**ARCHITECTURES["albert"].batch("none"))
    assert [(call.index, call.visit) for call in record] == [(0, 0), (1, 1)]
    assert len(record.names) == 1
