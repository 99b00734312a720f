"""Training steps of models of sizes that people train, and how to compare two kinds of steps.

The machine drifts by more than what is measured. So a block of steps of one kind stands beside a block of the other, in
changing order, in one process, and each block is divided by its neighbour. The overhead is the median of these ratios;
its interval of 95 % lies between order statistics, which holds for any distribution.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from scipy.stats import binom
from torch import nn
from torch.nn import functional

from geoattn.models.lvit import LViT


class Step:
    """A model with a batch and an optimiser; call it to train one step."""

    def __init__(self, model: nn.Module, batch: torch.Tensor, loss: Callable[[Any], torch.Tensor]) -> None:
        self.model, self.batch, self.loss = model.train(), batch, loss
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def __call__(self, between: Callable[[], Any] | None = None) -> None:
        """One step; ``between`` forward and backward pass may give something to add to the loss."""
        self.optimiser.zero_grad()
        loss = self.loss(self.model(self.batch))
        added = None if between is None else between()
        (loss if added is None else loss + added).backward()
        self.optimiser.step()


def vit_small() -> Step:
    """ViT-S/16 at 224 pixels: 197 tokens, batch 8."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    model = ViTModel(config, add_pooling_layer=False)
    return Step(model, torch.rand(8, 3, 224, 224), lambda out: out[0].square().mean())


def gpt2(tokens: int = 256) -> Step:
    """A GPT-2-shaped stack: 4 layers, width 768, 12 heads, batch 2, without the vocabulary head."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=1000, n_layer=4, n_positions=tokens, use_cache=False, bos_token_id=0, eos_token_id=0
    )  # fmt: skip
    model = GPT2Model(config)
    return Step(model, torch.randint(1000, (2, tokens)), lambda out: out[0].square().mean())


def lvit() -> Step:
    """L-ViT of the Ricci paper: 17 tokens, batch 64."""
    torch.manual_seed(0)
    labels = torch.randint(10, (64,))
    return Step(LViT(), torch.rand(64, 1, 28, 28), lambda out: functional.cross_entropy(out, labels))


MODELS: dict[str, Callable[[], Step]] = {
    "ViT-S/16, 197 tokens, batch 8": vit_small,
    "GPT-2-shaped, 256 tokens, batch 2": gpt2,
    "GPT-2-shaped, 512 tokens, batch 2": lambda: gpt2(512),
    "L-ViT, 17 tokens, batch 64": lvit,
}


def block_time(work: Callable[[], object], steps: int) -> float:
    """Median milliseconds of some steps in a row, after one that is not counted.

    With one thread of torch this is time of the processor, which other work on the machine disturbs least; with more
    it is time on the wall.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    times = []
    for _ in range(steps):
        start = clock()
        work()
        times.append(1000 * (clock() - start))
    return statistics.median(times)


def compare(plain: Callable[[], float], other: Callable[[], float], pairs: int) -> dict[str, Any]:
    """What ``other`` takes more than ``plain``, in percent: median and interval of 95 %."""
    found = []
    for i in range(pairs):
        one, two = (plain, other) if i % 2 else (other, plain)
        first, second = one(), two()
        found.append((first, second) if i % 2 else (second, first))
    ratios = sorted(100 * (mine / free - 1) for free, mine in found)
    below = int(binom.ppf(0.025, pairs, 0.5))
    low, high = (ratios[below - 1], ratios[-below]) if below else (ratios[0], ratios[-1])
    return {
        "pairs": pairs, "plain_ms": round(statistics.median(free for free, _ in found), 1),
        "ms": round(statistics.median(mine for _, mine in found), 1),
        "overhead_percent": round(statistics.median(ratios), 2), "interval": [round(low, 2), round(high, 2)],
    }  # fmt: skip
