"""Models whose attention is no map of all pairs of tokens: refused, with the true reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

from geoattn._core.errors import GeoattnError
from tests.attention.battery import record_of

_TEXT = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 130,
}  # fmt: skip


def test_parts_of_attention_that_is_refused_are_refused_too() -> None:
    """BigBird: its first and last blocks look like maps; they are rows of a block-sparse one."""
    torch.manual_seed(0)
    config = tf.BigBirdConfig(**_TEXT, attention_type="block_sparse", block_size=4, num_random_blocks=1)
    model = tf.BigBirdModel(config).eval()
    record, said = record_of(model, torch.randint(3, 50, (2, 64)))
    assert {one.use for one in record.account()} == {"block-sparse"}
    assert len(said) == 1
    with pytest.raises(GeoattnError, match="block-sparse or banded"):
        list(record)


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("Nystromformer", {"segment_means_seq_len": 64, "num_landmarks": 4}, "approximation"),
        ("Longformer", {"attention_window": 8}, "banded"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(kind: str, settings: dict[str, Any], words: str) -> None:
    torch.manual_seed(0)
    model = getattr(tf, f"{kind}Model")(getattr(tf, f"{kind}Config")(**_TEXT, **settings))
    record, said = record_of(model.eval(), torch.randint(3, 50, (2, 64)))
    assert said
    assert words in said[0]
    with pytest.raises(GeoattnError, match=words):
        list(record)


def test_deformable_attention_is_said_to_be_missing() -> None:
    torch.manual_seed(0)
    backbone = tf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8] * 4, depths=[1] * 4, out_features=["stage2", "stage3", "stage4"]
    )
    config = tf.DeformableDetrConfig(
        use_timm_backbone=False, backbone_config=backbone, backbone=None, use_pretrained_backbone=False, d_model=32,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=16,
        decoder_ffn_dim=16, num_queries=6, num_feature_levels=3,
    )  # fmt: skip
    model = tf.DeformableDetrModel(config).eval()
    record, said = record_of(model, torch.randn(2, 3, 64, 64))
    assert [call.shape for call in record] == [(2, 4, 6, 6)]
    assert len(said) == 1
    assert "'encoder.layers.0.self_attn', 'decoder.layers.0.encoder_attn'" in said[0]
    assert "deformable" in said[0]


def test_blocks_are_no_padding() -> None:
    """LongT5 pads nine tokens to blocks of its own."""
    torch.manual_seed(0)
    config = tf.LongT5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4, local_radius=7)
    model = tf.LongT5EncoderModel(config).eval()
    record, said = record_of(model, torch.randint(3, 50, (2, 9)))
    assert len(said) == 1
    assert "in a module with 9 tokens: blocks" in said[0]
    assert "padding" not in said[0]
    assert record[0].in_blocks
    assert record[0].valid.all()
