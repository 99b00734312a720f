"""Profiles of models whose attention has an unusual shape, against curvature of maps that are computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from torch.nn import functional

import geoattn as ga
from geoattn.training.variance_from_maps import call_variance
from tests.attention.zoo import ARCHITECTURES


def means(profile: Any) -> dict[tuple[int, int], float]:
    table = profile.to_pandas()
    table = table[(table.statistic == "mean") & (table.lens == "curvature") & table["head"].notna()]
    return {(int(r.layer), int(r["head"])): r.value for _, r in table.iterrows()}


def by_hand(maps: list[Tensor]) -> float:
    """The mean curvature of the edges of all samples."""
    return float(np.concatenate([ga.ollivier_ricci(one.double().numpy()).values() for one in maps]).mean())


@pytest.mark.filterwarnings("ignore::geoattn.CaptureWarning")
@pytest.mark.parametrize("sink", ["node", "renormalise"])
def test_gpt_oss(sink: Any) -> None:
    architecture = ARCHITECTURES["gpt-oss"]
    model, batch = architecture.build("eager"), architecture.batch("none")
    with pytest.raises(ga.GeoattnError, match="sink='node'"):
        ga.profile(model, [batch])
    profile = ga.profile(model, [batch], sink=sink, lenses=["sinks", "spectrum", "weights"], examples=0)
    with torch.no_grad():
        layers = model(**batch, output_attentions=True).attentions
    found = means(profile)
    assert len(found) == 8
    for (layer, head), value in found.items():
        maps = layers[layer][:, head].double()
        rest = 1 - maps.sum(-1)
        assert (rest > 1e-3).all()
        if sink == "node":
            n = maps.shape[-1]
            full = torch.zeros(len(maps), n + 1, n + 1, dtype=torch.float64)
            full[:, :n, :n], full[:, :n, n], full[:, n, n] = maps, rest, 1
            maps = full
        maps = maps / maps.sum(-1, keepdim=True)
        assert value == pytest.approx(by_hand(list(maps)), abs=1e-6)


def test_qwen3_vl_counts_images_as_samples() -> None:
    """Two texts with three images of two sizes: a layer of the vision tower has three samples."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0], "mrope_interleaved": True}
    text = {
        "vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "rope_parameters": rope,
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "patch_size": 2,
        "spatial_merge_size": 2, "temporal_patch_size": 1, "in_channels": 3, "out_hidden_size": 16,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    config = tf.Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=50, video_token_id=51, vision_start_token_id=52,
        vision_end_token_id=53,
    )  # fmt: skip
    model = tf.Qwen3VLModel._from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter.mul_(100)
    grid = torch.tensor([[1, 4, 4], [1, 4, 8], [1, 4, 4]])
    first = [52, *[50] * 4, 53, 52, *[50] * 8, 53]
    ids = torch.tensor([first, [52, *[50] * 4, 53, *[5] * (len(first) - 6)]])
    batch = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "image_grid_thw": grid,
        "pixel_values": torch.randn(int(grid.prod(-1).sum()), 12), "mm_token_type_ids": (ids == 50).long(),
    }  # fmt: skip
    profile = ga.profile(model, [batch, batch], examples=1)
    assert profile.layers == ("visual.blocks.0.attn", "visual.blocks.1.attn", "language_model.layers.0.self_attn")
    samples = profile.to_pandas().dropna(subset=["layer"]).groupby("layer").samples.unique()
    assert [list(samples[k]) for k in range(3)] == [[6], [6], [4]]

    maps: list[list[Tensor]] = []
    with torch.no_grad(), ga.capture(model) as record:
        model(**batch)
    for name in profile.layers:
        maps.append([call.attention() for call in record if call.name == name])
    assert [m.shape[-1] for m in maps[0]] == [16, 32, 16]
    for (layer, head), value in means(profile).items():
        parts = [one for part in maps[layer] for one in part[:, head]]
        assert value == pytest.approx(by_hand(parts), abs=1e-6)
    with pytest.raises(ga.GeoattnError, match=r"visual.blocks.0.attn attends over more images than there are samples"):
        ga.features(model, [batch])
    assert len(ga.features(model, [batch], layers="language_model")) == 2


class JointBlock(nn.Module):
    """The attention of SD3: image and text have projections of their own, and one map holds both."""

    heads = 2

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv, self.add_qkv = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def split(self, hidden_states: Tensor, encoder_hidden_states: Tensor) -> list[Tensor]:
        streams = self.to_qkv(hidden_states).chunk(3, -1), self.add_qkv(encoder_hidden_states).chunk(3, -1)
        joined = [torch.cat(pair, 1) for pair in zip(*streams, strict=True)]
        return [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in joined]

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        out = functional.scaled_dot_product_attention(*self.split(hidden_states, encoder_hidden_states))
        image, text = out.transpose(1, 2).flatten(2).split([hidden_states.shape[1], encoder_hidden_states.shape[1]], 1)
        return hidden_states + image, encoder_hidden_states + text


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(JointBlock(8) for _ in range(2))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        for block in self.blocks:
            image, text = block(hidden_states=image, encoder_hidden_states=text)
        return image


@pytest.mark.parametrize("words", [3, 5])  # as many words as patches, or not
def test_sd3(words: int) -> None:
    model = Diffusion().eval()
    batch = {"image": torch.randn(2, 5, 8), "text": torch.randn(2, words, 8)}
    with torch.no_grad(), ga.capture(model) as record:
        model(**batch)
    assert [call.kind for call in record] == ["joint", "joint"]
    profile = ga.profile(model, [batch], examples=0)
    with torch.no_grad():
        q, k, _ = model.blocks[0].split(batch["image"], batch["text"])
    maps = (q @ k.mT / 2).softmax(-1)
    for head in range(2):
        assert means(profile)[0, head] == pytest.approx(by_hand(list(maps[:, head])), abs=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "swin"])
def test_masked_entries_are_no_entries(name: str) -> None:
    """Fused and eager models have the same variance, also where a mask is -100 (Swin)."""
    architecture = ARCHITECTURES[name]
    found = []
    for implementation in ("sdpa", "eager"):
        model, batch = architecture.build(implementation), architecture.batch("none")
        profile = ga.profile(model, [batch], lenses=["weights"], examples=0)
        with torch.no_grad(), ga.capture(model) as record:
            model(**batch)
        found.append([profile.value("variance", layer=k, lens="weights")[0] for k in range(len(record))])
        expected = [float(call_variance(call).mean()) for call in record]
        assert found[-1] == pytest.approx(expected, rel=1e-4)
    assert found[0] == pytest.approx(found[1], rel=1e-5)
