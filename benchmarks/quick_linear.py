"""A training step with linear layers through oneDNN, against the same step with those of torch.

    OMP_NUM_THREADS=1 python -m benchmarks quick_linear

BERT and L-ViT with random weights, dropout 0.1, AdamW. See `benchmarks.steps` for the way of measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.steps import Step, block_time, compare, lvit
from geoattn.models.quick_linear import with_quick_linear

_SHAPES = {  # width, layers, heads, texts in a batch, tokens
    "BERT-Tiny, 33 tokens, batch 16": (128, 2, 2, 16, 33),
    "MiniLM, 128 tokens, batch 16": (384, 6, 12, 16, 128),
}


def bert(shape: tuple[int, int, int, int, int], wrap: Callable[[nn.Module], nn.Module]) -> Step:
    """A BERT with a vocabulary of 8,192 words."""
    from transformers import BertConfig, BertModel

    width, layers, heads, texts, tokens = shape
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=8192, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    ids = torch.randint(8192, (texts, tokens))
    return Step(wrap(BertModel(config, add_pooling_layer=False)), ids, lambda out: out[0].square().mean())


def run(pairs: int = 9, steps: int = 3) -> dict[str, Any]:
    """Milliseconds of both kinds of steps; ``plain_ms`` is that of torch's linear layers."""
    rows, kinds = (
        [],
        {name: (bert(shape, lambda m: m), bert(shape, with_quick_linear)) for name, shape in _SHAPES.items()},
    )
    small = lvit()
    with_quick_linear(small.model)
    kinds["L-ViT, 17 tokens, batch 64"] = (lvit(), small)
    for name, (by_torch, quick) in kinds.items():
        times = [lambda step=step: block_time(step, steps) for step in (by_torch, quick)]
        rows.append({"model": name, **compare(times[0], times[1], pairs)})
        print(rows[-1], flush=True)
    return {"torch": str(torch.__version__), "torch_threads": torch.get_num_threads(), "step": rows}


if __name__ == "__main__":
    run()
