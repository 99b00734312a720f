"""Cost of regularisers per training step of L-ViT (batch of 64), against the same step without one.

17 tokens are the paper's L-ViT for MNIST; 65 are the same model on images of 32 pixels in patches of 4.

    OMP_NUM_THREADS=1 python -m benchmarks.training       # prints JSON

Each block of steps with a regulariser stands beside a block without, the first step of a block left out, in changing
order, in one process, one thread, time on the wall. The machine drifts by more than a regulariser costs, so each block
is divided by its neighbour: the median of these ratios is the overhead. Its interval of 95 % is that between order
statistics, which holds for any distribution; kinds with an aim have four times as many pairs.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch
from scipy.stats import binom
from torch.nn import functional

from geoattn.training.baselines import AttentionDropout, SoftmaxTemperature
from geoattn.training.curvature_regulariser import CurvatureRegulariser
from geoattn.training.edge_mask import EdgeMask
from geoattn.training.lvit import LViT, LViTConfig
from geoattn.training.row_entropy import RowEntropy
from geoattn.training.variance_regulariser import VarianceRegulariser

KINDS: dict[str, Any] = {
    "variance": VarianceRegulariser("increase"),
    "curvature (default sample)": CurvatureRegulariser("decrease", threads=1),
    "entropy": RowEntropy("decrease"),
    "edge mask": EdgeMask(0.3),
    "temperature": SoftmaxTemperature(2.0),
    "dropout": AttentionDropout(0.1),
}


SIZES = {17: LViTConfig(), 65: LViTConfig(image_size=32, patch_size=4)}
WITH_AIM = ("variance", "curvature (default sample)")


class Bench:
    """One model; `steps` takes the time of training steps of some kind."""

    def __init__(self, config: LViTConfig) -> None:
        torch.manual_seed(0)
        self.model = LViT(config)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=5e-4)
        self.images = torch.rand(64, 1, config.image_size, config.image_size)
        self.labels = torch.randint(10, (64,))

    def steps(self, regulariser: Any, count: int) -> list[float]:
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


def run(rounds: int = 20) -> dict[str, Any]:
    """Milliseconds and overheads by number of tokens and kind; all edges of all maps a few times only."""
    torch.set_num_threads(1)
    rows = []
    for tokens, config in SIZES.items():
        bench, count = Bench(config), 4 * rounds if tokens == 17 else rounds // 2
        kinds = {
            name: (kind, count if name in WITH_AIM else rounds, 5)
            for name, kind in KINDS.items() if tokens == 17 or name in WITH_AIM
        }  # fmt: skip
        if tokens == 17:
            everything = CurvatureRegulariser("decrease", maps="all", edges="all", threads=1)
            kinds["curvature (all edges of all maps)"] = (everything, 2, 2)
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for i in range(count):
            for name, (kind, most, steps) in kinds.items():
                if i < most:
                    first, second = (None, kind) if i % 2 else (kind, None)
                    one, two = (statistics.median(bench.steps(which, steps)) for which in (first, second))
                    pairs[name].append((one, two) if i % 2 else (two, one))
        rows += [_row(tokens, name, found) for name, found in pairs.items()]
        for row in rows[-len(kinds) :]:
            low, high = row["interval"]
            print(f"{tokens:3} tokens  {row['kind']:36} {row['overhead_percent']:6.1f} % [{low}, {high}]", flush=True)
    return {
        "command": "OMP_NUM_THREADS=1 python -m benchmarks.training", "torch_threads": torch.get_num_threads(),
        "torch": str(torch.__version__), "rounds": rounds, "steps": rows,
    }  # fmt: skip


def _row(tokens: int, name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ratios = sorted(100 * (mine / plain - 1) for plain, mine in pairs)
    below = int(binom.ppf(0.025, len(ratios), 0.5))  # ranks between which the median lies with 95 %
    low, high = (ratios[below - 1], ratios[-below]) if below else (None, None)
    return {
        "tokens": tokens, "kind": name, "pairs": len(pairs),
        "plain_ms": round(statistics.median(plain for plain, _ in pairs), 1),
        "ms": round(statistics.median(mine for _, mine in pairs), 1),
        "overhead_percent": round(statistics.median(ratios), 1),
        "interval": [None if bound is None else round(bound, 1) for bound in (low, high)],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
