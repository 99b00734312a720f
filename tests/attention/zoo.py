"""Tiny models of many architectures, from configurations with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as tf

BATCH, LENGTH, PADDED = 3, 7, 3  # the second sample has PADDED padded tokens

_ENCODER = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
_DECODER = {**_ENCODER, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
_IMAGE = {
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 3,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_BART = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
    "eos_token_id": 2,
    "bos_token_id": 1,
}


@dataclass(frozen=True)
class Architecture:
    """How to build a tiny model, and what it eats."""

    config: Callable[[], Any]
    model: str
    food: str  # text, image, seq2seq or speech
    sdpa: bool = True  # has an sdpa form beside the eager one
    sinks: bool = False  # rows do not sum to one
    gain: float = 8.0

    def build(self, implementation: str) -> Any:
        torch.manual_seed(0)
        config = self.config()
        config._attn_implementation = implementation
        model = getattr(tf, self.model)(config)
        with torch.no_grad():  # larger scores than those of fresh weights: attention far from uniform
            for name, parameter in model.named_parameters():
                if parameter.ndim == 2 and "embed" not in name:
                    parameter.mul_(self.gain)
        return model.eval()

    @property
    def paddings(self) -> list[str]:
        return ["none"] if self.food == "image" else ["none", "left", "right"]

    def batch(self, padding: str) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        if self.food == "image":
            return {"pixel_values": torch.randn(BATCH, 3, 8, 8, generator=generator)}
        decoder = {
            "decoder_input_ids": torch.randint(3, 50, (BATCH, 5), generator=generator),
            "decoder_attention_mask": torch.ones(BATCH, 5, dtype=torch.long),
        }
        if padding != "none":
            decoder["decoder_attention_mask"][0, slice(2) if padding == "left" else slice(-2, None)] = 0
        if self.food == "speech":
            return {"input_features": torch.randn(BATCH, 8, 2 * LENGTH, generator=generator), **decoder}
        ids = torch.randint(3, 50, (BATCH, LENGTH), generator=generator)
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        if padding == "left":
            mask[1, :PADDED] = 0
        elif padding == "right":
            mask[1, -PADDED:] = 0
        batch = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}
        if self.food == "seq2seq":
            batch |= decoder
        return batch


ARCHITECTURES = {
    "bert": Architecture(lambda: tf.BertConfig(**_ENCODER), "BertModel", "text"),
    "roberta": Architecture(lambda: tf.RobertaConfig(**_ENCODER), "RobertaModel", "text"),
    "electra": Architecture(lambda: tf.ElectraConfig(**_ENCODER, embedding_size=16), "ElectraModel", "text"),
    "albert": Architecture(lambda: tf.AlbertConfig(**_ENCODER, embedding_size=8), "AlbertModel", "text"),
    "distilbert": Architecture(
        lambda: tf.DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=24),
        "DistilBertModel",
        "text",
    ),
    "deberta-v2": Architecture(
        lambda: tf.DebertaV2Config(**_ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"]),
        "DebertaV2Model",
        "text",
        sdpa=False,
    ),
    "gpt2": Architecture(
        lambda: tf.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=40),
        "GPT2Model",
        "text",
    ),
    "gpt-neox": Architecture(lambda: tf.GPTNeoXConfig(**_ENCODER), "GPTNeoXModel", "text"),
    "opt": Architecture(
        lambda: tf.OPTConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=24,
            max_position_embeddings=40,
            word_embed_proj_dim=16,
            dropout=0.0,
        ),
        "OPTModel",
        "text",
    ),
    "llama": Architecture(lambda: tf.LlamaConfig(**_DECODER), "LlamaModel", "text"),
    "mistral": Architecture(lambda: tf.MistralConfig(**_DECODER, sliding_window=4), "MistralModel", "text"),
    "qwen2": Architecture(lambda: tf.Qwen2Config(**_DECODER), "Qwen2Model", "text"),
    "gemma2": Architecture(
        lambda: tf.Gemma2Config(**_DECODER, sliding_window=4, attn_logit_softcapping=5.0),
        "Gemma2Model",
        "text",
        sdpa=False,
    ),
    "bloom": Architecture(
        lambda: tf.BloomConfig(vocab_size=50, hidden_size=16, n_layer=2, n_head=2),
        "BloomModel",
        "text",
        sdpa=False,
    ),
    "gpt-oss": Architecture(
        lambda: tf.GptOssConfig(**_DECODER, num_local_experts=2, num_experts_per_tok=1, sliding_window=4),
        "GptOssModel",
        "text",
        sdpa=False,
        sinks=True,
    ),
    "t5": Architecture(
        lambda: tf.T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
        ),
        "T5Model",
        "seq2seq",
        gain=1.0,
    ),
    "bart": Architecture(lambda: tf.BartConfig(**_BART), "BartModel", "seq2seq"),
    "whisper": Architecture(
        lambda: tf.WhisperConfig(**_BART, num_mel_bins=8, max_source_positions=LENGTH, max_target_positions=20),
        "WhisperModel",
        "speech",
    ),
    "vit": Architecture(lambda: tf.ViTConfig(**_IMAGE), "ViTModel", "image"),
    "deit": Architecture(lambda: tf.DeiTConfig(**_IMAGE), "DeiTModel", "image"),
    "swin": Architecture(
        lambda: tf.SwinConfig(image_size=8, patch_size=1, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4),
        "SwinModel",
        "image",
    ),
}
