"""Cost of regularisers and of the monitor per training step, against the same step without them.

    OMP_NUM_THREADS=1 python -m benchmarks training

Aims, with 1 and with 2 threads: at 197 and 256 tokens variance 10 %, curvature with its default sample 15 %, the
monitor with its default interval 2 %; at 512 tokens variance 15 %. See `benchmarks.steps` for the way of measuring. The
cost of the monitor by default is that of a step between its samples, where its capture is open, plus that of a measured
step divided by the interval.
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
    LipschitzRegulariser,
    Monitor,
    RowEntropy,
    SoftmaxTemperature,
    VarianceRegulariser,
)

KINDS: dict[str, Any] = {
    "variance": VarianceRegulariser("increase"),
    "curvature": CurvatureRegulariser("decrease"),
    "monitor, between samples": Monitor(every=10**9),  # the first step of a block, which is not timed, is measured
    "monitor, measured step": Monitor(every=1),
    "entropy": RowEntropy("decrease"),
    "lipschitz": LipschitzRegulariser(),
    "edge mask": EdgeMask(0.3),
    "temperature": SoftmaxTemperature(2.0),
    "dropout": AttentionDropout(0.1),
}


def overhead(step: Step, kind: str, pairs: int, steps: int) -> dict[str, Any]:
    """Overhead of one attachment on one model."""

    def attached() -> float:
        with KINDS[kind].attach(step.model) as handle:
            return block_time(lambda: step(handle.penalty), steps)

    return compare(lambda: block_time(step, steps), attached, pairs)


def monitor_by_default(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The overhead of the monitor with its default interval, from the two kinds of steps of each model."""
    kinds = ("monitor, between samples", "monitor, measured step")
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["kind"]] = row["overhead_percent"]
    every = Monitor().every
    return [
        {"model": model, "every": every, "overhead_percent": round(one[kinds[0]] + one[kinds[1]] / every, 2)}
        for model, one in found.items()
        if all(kind in one for kind in kinds)
    ]


def run(pairs: int = 10, steps: int = 2, models: list[str] | None = None, kinds: list[str] | None = None) -> Any:
    """Overheads by model and kind; at 512 tokens the variance alone."""
    rows: list[dict[str, Any]] = []
    for name, make in MODELS.items():
        if models and not any(part in name for part in models):
            continue
        step = make()
        for kind in kinds or (["variance"] if "512" in name else list(KINDS)):
            rows.append({"model": name, "kind": kind, **overhead(step, kind, pairs, steps)})
            print(rows[-1], flush=True)
    return {
        "torch": str(torch.__version__), "torch_threads": torch.get_num_threads(), "training_step": rows,
        "monitor_by_default": monitor_by_default(rows),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cost of regularisers.")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--models", nargs="*", help="parts of the names of models")
    parser.add_argument("--kinds", nargs="*", help=", ".join(KINDS))
    print(json.dumps(run(**vars(parser.parse_args())), indent=1))
