"""Cost of regularisers and of the monitor per training step, against the same step without them.

    OMP_NUM_THREADS=1 python -m benchmarks training

Aims, with 1 and with 2 threads: at 197 and 256 tokens variance 10 %, curvature with its default sample 15 %, the
monitor with its default interval 2 %; at 512 tokens variance 15 %. See `benchmarks.steps` for the way of measuring. The
cost of the monitor is that of one measured step, divided by its interval.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

from benchmarks.steps import MODELS, Step, block_time, compare
from geoattn.training import (
    AttentionDropout,
    CurvatureRegulariser,
    EdgeMask,
    Monitor,
    RowEntropy,
    SoftmaxTemperature,
    VarianceRegulariser,
)

KINDS: dict[str, Any] = {
    "variance": VarianceRegulariser("increase"),
    "curvature": CurvatureRegulariser("decrease"),
    "monitor": Monitor(every=1),
    "entropy": RowEntropy("decrease"),
    "edge mask": EdgeMask(0.3),
    "temperature": SoftmaxTemperature(2.0),
    "dropout": AttentionDropout(0.1),
}


def overhead(step: Step, kind: str, pairs: int, steps: int) -> dict[str, Any]:
    """Overhead of one attachment on one model."""

    def attached() -> float:
        with KINDS[kind].attach(step.model) as handle:
            return block_time(lambda: step(handle.penalty), steps)

    row = compare(lambda: block_time(step, steps), attached, pairs)
    if kind == "monitor":
        interval = Monitor().every
        row["overhead_percent_by_default"] = round(row["overhead_percent"] / interval, 2)
    return row


def run(pairs: int = 10, steps: int = 2, models: list[str] | None = None, kinds: list[str] | None = None) -> Any:
    """Overheads by model and kind; at 512 tokens the variance alone."""
    rows = []
    for name, make in MODELS.items():
        if models and not any(part in name for part in models):
            continue
        step = make()
        for kind in kinds or (["variance"] if "512" in name else list(KINDS)):
            rows.append({"model": name, "kind": kind, **overhead(step, kind, pairs, steps)})
            print(rows[-1], flush=True)
    return {"torch": str(torch.__version__), "torch_threads": torch.get_num_threads(), "training_step": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cost of regularisers.")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--models", nargs="*", help="parts of the names of models")
    parser.add_argument("--kinds", nargs="*", help=", ".join(KINDS))
    print(json.dumps(run(**vars(parser.parse_args())), indent=1))
