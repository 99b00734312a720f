"""Cost of an open capture per training step, against the same step without it, and the memory of a record.

    python -m benchmarks capture       # aim: at most 3 % for ViT-S/16 and the GPT-2-shaped stack

The record is cleared between forward and backward pass, as a regulariser does. See `benchmarks.steps` for the way of
measuring.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from torch import nn

from benchmarks.steps import MODELS, block_time, compare
from geoattn.attention import capture


def overhead(name: str, pairs: int, steps: int) -> dict[str, Any]:
    """Overhead of an open capture on one model."""
    step = MODELS[name]()

    def opened() -> float:
        with capture(step.model) as record:
            return block_time(lambda: step(record.clear), steps)

    return {"model": name, **compare(lambda: block_time(step, steps), opened, pairs)}


def memory(n: int = 4096, heads: int = 12, width: int = 768) -> dict[str, Any]:
    """Bytes of the record of one layer, against those of its maps."""
    model = nn.MultiheadAttention(width, heads, batch_first=True).eval()
    x = torch.randn(1, n, width)
    with torch.no_grad(), capture(model) as record:
        model(x, x, x, need_weights=False)
    maps = 4 * heads * n * n
    return {"record_bytes": record.nbytes, "map_bytes": maps, "percent": round(100 * record.nbytes / maps, 2)}


def run(pairs: int = 12, steps: int = 3, models: list[str] | None = None) -> dict[str, Any]:
    """The figures, on all threads of torch."""
    rows = []
    for name in MODELS:
        if "512" in name or (models and not any(part in name for part in models)):
            continue
        small = "L-ViT" in name
        rows.append(overhead(name, 2 * pairs if small else pairs, 10 if small else steps))
        print(rows[-1], flush=True)
    return {
        "torch": str(torch.__version__), "torch_threads": torch.get_num_threads(), "training_step": rows,
        "memory_of_12_heads_at_4096": memory(),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cost of capture.")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--models", nargs="*", help="parts of the names of models")
    print(json.dumps(run(**vars(parser.parse_args())), indent=1))
