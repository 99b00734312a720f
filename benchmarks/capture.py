"""Cost of an open capture per training step, against the same step without it, and the memory of a record.

    python -m benchmarks capture       # aim: at most 3 % for ViT-S/16 and the GPT-2-shaped stack
    OMP_NUM_THREADS=1 GEOATTN_MODELS=FOLDER python -m benchmarks.capture --generation      # aim: at most 1.15

The record is cleared between forward and backward pass, as a regulariser does. See `benchmarks.steps` for the way of
measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
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


def generation(pairs: int = 5, tokens: int = 64) -> dict[str, Any]:
    """Time of a generation by SmolLM2-135M with a cache under an open capture, over that of the plain one beside it."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(Path(os.environ["GEOATTN_MODELS"]) / "smollm2-135m").eval()
    prompt = torch.tensor([[1, 504, 2365, 282, 253]])

    def plain() -> float:
        start = time.perf_counter()
        model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        return time.perf_counter() - start

    def opened() -> float:
        with capture(model):
            return plain()

    times = [(plain(), opened()) for _ in range(pairs + 1)][1:]  # the first pair warms up
    ratios = sorted(second / first for first, second in times)
    return {
        "model": "SmolLM2-135M", "tokens": tokens, "pairs": pairs, "torch_threads": torch.get_num_threads(),
        "dtype": str(model.dtype), "plain_ms_a_token": round(1e3 / tokens * statistics.median(t for t, _ in times), 2),
        "ms_a_token": round(1e3 / tokens * statistics.median(t for _, t in times), 2),
        "ratio": round(statistics.median(ratios), 3), "ratios": [round(r, 3) for r in ratios],
    }  # fmt: skip


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
    parser.add_argument("--generation", action="store_true", help="only the time of a generation")
    options = vars(parser.parse_args())
    only = options.pop("generation")
    print(json.dumps(generation() if only else run(**options), indent=1))
