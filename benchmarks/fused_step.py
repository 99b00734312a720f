"""A training step of L-ViT with the fused blocks, against the same step with the blocks of torch and quick dropout.

    OMP_NUM_THREADS=1 python -m benchmarks fused_step

The batch is 64 images of 17 tokens, the optimiser Adam, dropout 0.1. ``variance`` is the regulariser at strength 0.3
once its gamma is set (after 200 steps). See `benchmarks.steps` for the way of measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.steps import block_time, compare
from geoattn.models.fused_step import with_fused_step
from geoattn.models.lvit import LViT
from geoattn.models.quick_dropout import with_quick_dropout
from geoattn.training import VarianceRegulariser


class TrainingStep:
    """What `geoattn.training.train` does in a step, on one batch."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        torch.manual_seed(0)
        self.images, self.labels = torch.rand(64, 1, 28, 28), torch.randint(10, (64,))
        self.model = wrap(LViT()).train()
        self.adam = torch.optim.Adam(self.model.parameters(), lr=5e-4, fused=True)
        self.handle: Any = None

    def __call__(self) -> None:
        loss = functional.cross_entropy(self.model(self.images), self.labels)
        if self.handle is not None:
            loss = loss + self.handle.penalty(loss)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()


def run(pairs: int = 12, steps: int = 5) -> dict[str, Any]:
    """Milliseconds of both kinds of steps, plain and with the regulariser; ``plain_ms`` is that of torch's blocks."""
    by_torch, fused = TrainingStep(with_quick_dropout), TrainingStep(with_fused_step)
    rows = [{"kind": "plain", **_beside(by_torch, fused, pairs, steps)}]
    print(rows[-1], flush=True)
    for step in (by_torch, fused):
        step.handle = VarianceRegulariser("increase", strength=0.3).attach(step.model)
        for _ in range(220):
            step()
    rows.append({"kind": "variance", **_beside(by_torch, fused, pairs, steps)})
    print(rows[-1], flush=True)
    return {"torch": str(torch.__version__), "torch_threads": torch.get_num_threads(), "step": rows}


def _beside(one: TrainingStep, two: TrainingStep, pairs: int, steps: int) -> dict[str, Any]:
    return compare(lambda: block_time(one, steps), lambda: block_time(two, steps), pairs)


if __name__ == "__main__":
    run()
