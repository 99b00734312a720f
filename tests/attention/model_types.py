"""Tiny random models of many types of transformers, from their default configurations made small."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

_SMALL: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 4, "intermediate_size": 24, "max_position_embeddings": 64, "d_model": 16, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_layers": 2, "n_heads": 4,
    "dim": 16, "hidden_dim": 24, "ffn_dim": 24, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
    "num_decoder_layers": 2, "image_size": 16, "patch_size": 4, "num_channels": 3, "embed_dim": 16, "emb_dim": 16,
    "embedding_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8, "sliding_window": 8, "word_embed_proj_dim": 16, "projection_dim": 16,
    "n_inner": 24, "rotary_dim": 4, "type_vocab_size": 2, "conv_dim": [16, 16], "conv_stride": [2, 2],
    "conv_kernel": [3, 3], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "ffn_hidden_size": 24,
}  # fmt: skip

#: Types whose fused and eager attention is compared with a log of the kernels.
TYPES = """
albert altclip apertus arcee bart beit bert bert-generation biogpt bitnet blenderbot blenderbot-small camembert
chinese_clip clip clip_text_model clip_vision_model cohere cohere2 ctrl data2vec-audio data2vec-text data2vec-vision
deit diffllama dinov2 dinov2_with_registers distilbert dpr electra ernie ernie4_5 eurobert exaone4 falcon gemma
gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox granite granitemoe helium hubert ijepa layoutlm llama m2m_100 marian
mbart mistral mixtral mobilebert modernbert mt5 olmo olmo2 olmoe opt pegasus persimmon phi phi3 plbart qwen2 qwen2_moe
qwen3 qwen3_moe roberta roberta-prelayernorm roc_bert seed_oss sew siglip_vision_model smollm3 stablelm starcoder2 t5
umt5 unispeech
""".split()


def build(kind: str, implementation: str) -> Any:
    """A model of two layers with scores far from uniform."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind]()
    _shrink(config)
    names = MODEL_MAPPING_NAMES[kind]
    model = getattr(tf, names if isinstance(names, str) else names[0])
    model = model._from_config(config, attn_implementation=implementation)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.mul_(4)
    return model.float().eval()


def food(model: Any) -> dict[str, torch.Tensor]:
    """Three samples of what the model eats."""
    generator = torch.Generator().manual_seed(1)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(3, 3, 16, 16, generator=generator)}
    if model.main_input_name == "input_values":
        return {"input_values": torch.randn(3, 200, generator=generator)}
    ids = torch.randint(3, 50, (3, 9), generator=generator)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(model.config, "is_encoder_decoder", False):
        batch["decoder_input_ids"] = torch.randint(3, 50, (3, 6), generator=generator)
    if "CLIP" in type(model).__name__ and hasattr(model.config, "vision_config"):
        batch["pixel_values"] = torch.randn(3, 3, 16, 16, generator=generator)
    return batch


def _shrink(config: Any) -> None:
    for value in list(vars(config).values()):
        if isinstance(value, tf.PretrainedConfig):
            _shrink(value)
    for name, value in _SMALL.items():
        now = getattr(config, name, None)
        fits = isinstance(now, (list, tuple)) if isinstance(value, list) else isinstance(now, (int, float))
        if isinstance(getattr(type(config), name, None), property):
            continue
        if hasattr(config, name) and (fits or (now is None and name.endswith("_id"))) and not isinstance(now, bool):
            setattr(config, name, value)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        count = config.num_hidden_layers
        config.layer_types = (list(dict.fromkeys(kinds)) * count)[:count]
