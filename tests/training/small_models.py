"""A small L-ViT and a small BERT with a batch, for tests of what attaches to a model."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from torch import Tensor, nn

from geoattn.models.lvit import LViT, LViTConfig

SMALL = LViTConfig(
    image_size=8, patch_size=2, dim=16, depth=2, heads=2, dim_head=8, mlp_dim=16, dropout=0.0, emb_dropout=0.0
)  # fmt: skip

BATCH = {
    "input_ids": torch.arange(2 * 6).reshape(2, 6) % 50,
    "attention_mask": torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]]),
    "labels": torch.tensor([0, 1]),
}


def lvit() -> LViT:
    torch.manual_seed(0)
    return LViT(SMALL)


def bert(implementation: str) -> Any:
    config = tf.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    config._attn_implementation = implementation
    torch.manual_seed(0)
    return tf.BertForSequenceClassification(config).double()


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]
