"""Cost of an open capture per training step, against the same step without it, and the memory of a record.

    python -m benchmarks capture       # aim: at most 3 % for ViT-S/16 and the GPT-2-shaped stack
    OMP_NUM_THREADS=1 GEOATTN_MODELS=FOLDER python -m benchmarks.capture --generation      # aim: at most 1.15
    OMP_NUM_THREADS=1 GEOATTN_MODELS=FOLDER python -m benchmarks.capture --second          # aim: less than 2 ms

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


def second(pairs: int = 60, tokens: int = 16) -> dict[str, Any]:
    """Processor time that a capture of MiniLM adds to a forward pass, when the model was captured before."""
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(Path(os.environ["GEOATTN_MODELS"]) / "minilm").eval()
    ids = torch.randint(1000, 20000, (1, tokens), generator=torch.Generator().manual_seed(0))

    def plain() -> float:
        start = time.process_time()
        model(input_ids=ids)
        return time.process_time() - start

    def opened() -> float:
        start = time.process_time()
        with capture(model):
            model(input_ids=ids)
        return time.process_time() - start

    with torch.no_grad():
        times = [(plain(), opened()) for _ in range(pairs + 5)][5:]
    return {
        "model": "MiniLM", "tokens": tokens, "pairs": pairs, "torch_threads": torch.get_num_threads(),
        "plain_ms": round(1e3 * statistics.median(t for t, _ in times), 2),
        "added_ms": round(1e3 * statistics.median(b - a for a, b in times), 2),
        "added_least_ms": round(1e3 * (min(b for _, b in times) - min(a for a, _ in times)), 2),
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
    parser.add_argument("--second", action="store_true", help="only the cost of a second capture")
    options = vars(parser.parse_args())
    only, again = options.pop("generation"), options.pop("second")
    print(json.dumps(generation() if only else second() if again else run(**options), indent=1))
