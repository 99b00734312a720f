"""Cost of capture: time of a training step of L-ViT with and without it, memory of a record at n = 4,096.

    OMP_NUM_THREADS=1 python -m benchmarks.capture       # prints JSON

Steps with and without capture take turns in one process. CPU time is taken, as other work on the machine
stretches the time on the wall. Noise only adds time, so the lower quartiles are compared; the best steps and the
median of the differences between neighbours are given beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from geoattn.capture import capture
from geoattn.training.lvit import Attention, LViT


class SoftmaxAttention(Attention):
    """The attention of L-ViT as vit-pytorch writes it: a softmax, dropout, a product."""

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.to_qkv(self.norm(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(dim=-1)
        out = functional.dropout(weights, self.dropout, self.training) @ v
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


def build(fused: bool) -> LViT:
    torch.manual_seed(0)
    model = LViT()
    if not fused:
        for layer in model.transformer.layers:
            layer[0] = SoftmaxAttention(model.config)
    return model


def steps(fused: bool) -> dict[str, Callable[[], float]]:
    """Functions that make a training step and give its seconds.

    plain; open: in a capture that stays open, its record read and cleared between forward and backward, as a
    regulariser does; held: cleared after the step, so that queries and keys outlive the backward pass, which must
    then take fresh memory; entered: in a capture entered for this step.
    """
    model = build(fused)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images, labels = torch.rand(64, 1, 28, 28), torch.randint(10, (64,))

    def step(between: Callable[[], object] = int) -> None:
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        between()
        loss.backward()
        optimiser.step()

    def plain() -> float:
        step()
        return _seconds(step)

    def opened() -> float:
        with capture(model) as record:
            step(record.clear)  # with the self-check of the first call
            return _seconds(lambda: step(record.clear))

    def held() -> float:
        with capture(model) as record:
            step(record.clear)

            def step_and_clear() -> None:
                step()
                record.clear()

            return _seconds(step_and_clear)

    def entered() -> float:
        def enter_and_step() -> None:
            with capture(model):
                step()

        step()
        return _seconds(enter_and_step)

    return {"plain": plain, "open": opened, "held": held, "entered": entered}


def time_step(fused: bool, rounds: int) -> dict[str, Any]:
    """Milliseconds of a training step, and what capture adds."""
    kinds = steps(fused)
    names = list(kinds)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds + 3):
        for name in names[i % 4 :] + names[: i % 4]:  # in changing order
            seconds = kinds[name]()
            if i >= 3:
                times[name].append(1000 * seconds)
    pairs = statistics.median(b - a for a, b in zip(times["plain"], times["open"], strict=True))
    return {
        "best_ms": {name: round(min(values), 2) for name, values in times.items()},
        "quartile_ms": {name: round(quartile(values), 2) for name, values in times.items()},
        "overhead_percent": round(100 * (quartile(times["open"]) / quartile(times["plain"]) - 1), 2),
        "overhead_percent_of_best": round(100 * (min(times["open"]) / min(times["plain"]) - 1), 2),
        "overhead_percent_by_pairs": round(100 * pairs / statistics.median(times["plain"]), 2),
    }


def overhead(fused: bool, enough: float, most: int = 120) -> float:
    """Percent that an open capture adds to a step, over as many pairs as it takes to be below ``enough``.

    All that is measured counts, up to ``most`` pairs: on a busy machine more are needed.
    """
    kinds = steps(fused)
    kinds["open"]()
    plain: list[float] = []
    opened: list[float] = []
    percent = float("inf")
    while percent > enough and len(plain) < most:
        for i in range(8):
            for name in ("plain", "open") if i % 2 else ("open", "plain"):
                (plain if name == "plain" else opened).append(kinds[name]())
        percent = 100 * (quartile(opened) / quartile(plain) - 1)
    return percent


def quartile(values: list[float]) -> float:
    """The lower quartile."""
    return statistics.quantiles(values, n=4)[0]


def _seconds(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def memory(n: int = 4096, heads: int = 12, width: int = 768) -> dict[str, Any]:
    """Bytes of the record of one layer, against those of its maps."""
    model = nn.MultiheadAttention(width, heads, batch_first=True).eval()
    x = torch.randn(1, n, width)
    with torch.no_grad(), capture(model) as record:
        model(x, x, x, need_weights=False)
    maps = 4 * heads * n * n
    percent = round(100 * record.nbytes / maps, 2)
    return {"record_bytes": record.nbytes, "map_bytes": maps, "percent": percent}


def run(rounds: int = 80) -> dict[str, Any]:
    """The figures."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "training_step_of_lvit_batch_64": {
            "fused": time_step(True, rounds),
            "softmax": time_step(False, rounds),
        },
        "memory_of_12_heads_at_4096": memory(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cost of capture.")
    parser.add_argument("--rounds", type=int, default=80)
    print(json.dumps(run(**vars(parser.parse_args())), indent=1))
