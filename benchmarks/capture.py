"""Cost of capture: time of a training step of L-ViT with and without it, memory of a record at n = 4,096.

    python -m benchmarks.capture       # prints JSON

A loop that trains is measured as it runs: blocks of steps, each after a first one that is not counted, with and without
capture in turns, in one process. Time on the wall, of all threads that PyTorch has. A step of this size varies by a
third from moment to moment (fresh pages, other work on the machine), which only adds time: best step, lower quartile
and median of all steps are given.
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


def blocks(fused: bool, steps: int = 10) -> dict[str, Callable[[], list[float]]]:
    """Functions that make a block of training steps and give the milliseconds of each.

    plain; open: in a capture that stays open, its record cleared between forward and backward, as a regulariser
    does; held: cleared after the step, so that queries and keys outlive the backward pass; entered: in a capture
    entered for each step.
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

    def times(work: Callable[[], object]) -> list[float]:
        work()  # in a capture with its self-check
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            work()
            seconds.append(1000 * (time.perf_counter() - start))
        return seconds

    def plain() -> list[float]:
        return times(step)

    def opened() -> list[float]:
        with capture(model) as record:
            return times(lambda: step(record.clear))

    def held() -> list[float]:
        with capture(model) as record:
            return times(lambda: (step(), record.clear()))

    def entered() -> list[float]:
        def enter_and_step() -> None:
            with capture(model):
                step()

        return times(enter_and_step)

    return {"plain": plain, "open": opened, "held": held, "entered": entered}


def time_step(fused: bool, rounds: int) -> dict[str, Any]:
    """Milliseconds of a training step, and what capture adds, in percent."""
    kinds = blocks(fused)
    names = list(kinds)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % 4 :] + names[: i % 4]:  # in changing order
            times[name] += kinds[name]()
    figures = {"best": min, "quartile": quartile, "median": statistics.median}
    return {
        "steps_of_each": len(times["plain"]),
        **{f"{what}_ms": {name: round(of(times[name]), 2) for name in names} for what, of in figures.items()},
        "overhead_percent": {what: round(_overhead(times, of), 2) for what, of in figures.items()},
    }


def overhead(fused: bool, enough: float, most: int = 40) -> float:
    """Percent that an open capture adds to the lower quartile of steps, over as many blocks as it takes to be below
    ``enough``.

    All that is measured counts, up to ``most`` blocks: on a busy machine more are needed.
    """
    kinds = blocks(fused)
    times: dict[str, list[float]] = {"plain": [], "open": []}
    percent = float("inf")
    for i in range(most):
        for name in ("plain", "open") if i % 2 else ("open", "plain"):
            times[name] += kinds[name]()
        percent = _overhead(times, quartile)
        if i >= 3 and percent < enough:
            break
    return percent


def quartile(values: list[float]) -> float:
    """The lower quartile."""
    return statistics.quantiles(values, n=4)[0]


def _overhead(times: dict[str, list[float]], figure: Callable[[list[float]], float]) -> float:
    return 100 * (figure(times["open"]) / figure(times["plain"]) - 1)


def memory(n: int = 4096, heads: int = 12, width: int = 768) -> dict[str, Any]:
    """Bytes of the record of one layer, against those of its maps."""
    model = nn.MultiheadAttention(width, heads, batch_first=True).eval()
    x = torch.randn(1, n, width)
    with torch.no_grad(), capture(model) as record:
        model(x, x, x, need_weights=False)
    maps = 4 * heads * n * n
    percent = round(100 * record.nbytes / maps, 2)
    return {"record_bytes": record.nbytes, "map_bytes": maps, "percent": percent}


def run(rounds: int = 12) -> dict[str, Any]:
    """The figures, on one thread and on all."""
    threads = torch.get_num_threads()
    steps: dict[str, Any] = {}
    for count in sorted({1, threads}):
        torch.set_num_threads(count)
        for fused in (True, False):
            row = steps[f"{'fused' if fused else 'softmax'}, threads {count}"] = time_step(fused, rounds)
            print(f"{'fused' if fused else 'softmax':8} {count} thread(s): {row['overhead_percent']} %", flush=True)
    return {
        "torch": torch.__version__,
        "training_step_of_lvit_batch_64": steps,
        "memory_of_12_heads_at_4096": memory(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cost of capture.")
    parser.add_argument("--rounds", type=int, default=12)
    print(json.dumps(run(**vars(parser.parse_args())), indent=1))
