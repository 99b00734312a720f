"""Cost of regularisers per training step of L-ViT (batch of 64), against the same step without one.

17 tokens are the paper's L-ViT for MNIST; 65 are the same model on images of 32 pixels in patches of 4.

    OMP_NUM_THREADS=1 python -m benchmarks.training       # prints JSON

All kinds take turns in one process, in changing order, some steps each. CPU time is taken, as other work on the machine
stretches the time on the wall; the kernel of the curvature runs on one thread for the same reason. Two estimates: best
against best, as noise only adds time, and the median of the ratios of neighbours.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch
from torch.nn import functional

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

    def steps(self, regulariser: Any, count: int = 4) -> list[float]:
        """CPU milliseconds of some steps in a row, as in training: attached once, the first step left out."""
        handle = None if regulariser is None else regulariser.attach(self.model)
        times = []
        try:
            for _ in range(count + 1):
                start = time.process_time()
                self._once(handle)
                times.append(1000 * (time.process_time() - start))
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


def run(rounds: int = 3) -> dict[str, Any]:
    """Milliseconds and overheads by number of tokens and kind; all edges of all maps a few times only."""
    steps = []
    for tokens, config in SIZES.items():
        kinds = {name: kind for name, kind in KINDS.items() if tokens == 17 or name in AT_65}
        bench, count = Bench(config), rounds if tokens == 17 else rounds // 3
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for i in range(count + 1):
            for name in sorted(kinds, key=lambda name: hash((i, name))):
                taken = bench.steps(kinds[name])
                if i >= 1:
                    times[name] += taken
        if tokens == 17:
            everything = CurvatureRegulariser("decrease", maps="all", edges="all", threads=1)
            times["curvature (all edges of all maps)"] = bench.steps(everything, 2)
        steps += [_row(tokens, name, values, times["plain"]) for name, values in times.items()]
    return {
        "command": "OMP_NUM_THREADS=1 python -m benchmarks.training", "torch_threads": torch.get_num_threads(),
        "torch": str(torch.__version__), "rounds": rounds, "steps": steps,
    }  # fmt: skip


def _row(tokens: int, name: str, values: list[float], plain: list[float]) -> dict[str, Any]:
    paired = len(values) == len(plain)  # all edges of all maps did not take turns with the others
    median = statistics.median(v / p for v, p in zip(values, plain, strict=True)) if paired else None
    return {
        "tokens": tokens, "kind": name, "best_ms": round(min(values), 2),
        "median_ms": round(statistics.median(values), 2),
        "overhead_percent_of_best": round(100 * (min(values) / min(plain) - 1), 1),
        "overhead_percent_median_of_pairs": None if median is None else round(100 * (median - 1), 1),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
