"""Cost of regularisers per training step of L-ViT (batch of 64), against the same step without one.

17 tokens are the paper's L-ViT for MNIST; 65 are the same model on images of 32 pixels in patches of 4.

    OMP_NUM_THREADS=1 python -m benchmarks.training       # prints JSON

All kinds take turns in one process, in changing order, a block of steps each, the first of a block left out. Time on the
wall on one thread. Noise only adds time: best step, lower quartile and median of all steps are compared.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch
from torch.nn import functional

from benchmarks.capture import quartile
from geoattn.training.baselines import AttentionDropout, SoftmaxTemperature
from geoattn.training.curvature_regulariser import CurvatureRegulariser
from geoattn.training.edge_mask import EdgeMask
from geoattn.training.lvit import LViT, LViTConfig
from geoattn.training.row_entropy import RowEntropy
from geoattn.training.variance_regulariser import VarianceRegulariser

KINDS: dict[str, Any] = {
    "plain": None,
    "variance": VarianceRegulariser("increase"),
    "curvature (default sample)": CurvatureRegulariser("decrease", threads=1),
    "entropy": RowEntropy("decrease"),
    "edge mask": EdgeMask(0.3),
    "temperature": SoftmaxTemperature(2.0),
    "dropout": AttentionDropout(0.1),
}


SIZES = {17: LViTConfig(), 65: LViTConfig(image_size=32, patch_size=4)}
AT_65 = ("plain", "variance", "curvature (default sample)")


class Bench:
    """One model; `steps` takes the time of training steps of some kind."""

    def __init__(self, config: LViTConfig) -> None:
        torch.manual_seed(0)
        self.model = LViT(config)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=5e-4)
        self.images = torch.rand(64, 1, config.image_size, config.image_size)
        self.labels = torch.randint(10, (64,))

    def steps(self, regulariser: Any, count: int = 6) -> list[float]:
        """Milliseconds of some steps in a row, as in training: attached once, the first step left out."""
        handle = None if regulariser is None else regulariser.attach(self.model)
        times = []
        try:
            for _ in range(count + 1):
                start = time.perf_counter()
                self._once(handle)
                times.append(1000 * (time.perf_counter() - start))
        finally:
            if handle is not None:
                handle.remove()
        return times[1:]

    def _once(self, handle: Any) -> None:
        self.adam.zero_grad()
        loss = functional.cross_entropy(self.model(self.images), self.labels)
        if handle is not None:
            loss = loss + handle.penalty()
        loss.backward()
        self.adam.step()


def run(rounds: int = 12) -> dict[str, Any]:
    """Milliseconds and overheads by number of tokens and kind; all edges of all maps a few times only."""
    torch.set_num_threads(1)
    steps = []
    for tokens, config in SIZES.items():
        kinds = {name: kind for name, kind in KINDS.items() if tokens == 17 or name in AT_65}
        bench, count, names = Bench(config), rounds if tokens == 17 else rounds // 3, list(kinds)
        times: dict[str, list[float]] = {name: [] for name in names}
        for i in range(count):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                times[name] += bench.steps(kinds[name])
        if tokens == 17:
            everything = CurvatureRegulariser("decrease", maps="all", edges="all", threads=1)
            times["curvature (all edges of all maps)"] = bench.steps(everything, 2)
        steps += [_row(tokens, name, values, times["plain"]) for name, values in times.items()]
        for row in steps[-len(times) :]:
            print(f"{row['tokens']:3} tokens  {row['kind']:36} {row['overhead_percent']} %", flush=True)
    return {
        "command": "OMP_NUM_THREADS=1 python -m benchmarks.training", "torch_threads": torch.get_num_threads(),
        "torch": str(torch.__version__), "rounds": rounds, "steps": steps,
    }  # fmt: skip


def _row(tokens: int, name: str, values: list[float], plain: list[float]) -> dict[str, Any]:
    figures = {"best": min, "quartile": quartile, "median": statistics.median}
    return {
        "tokens": tokens, "kind": name, "steps": len(values),
        "ms": {what: round(of(values), 2) for what, of in figures.items()},
        "overhead_percent": {what: round(100 * (of(values) / of(plain) - 1), 1) for what, of in figures.items()},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
