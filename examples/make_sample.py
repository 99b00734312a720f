"""Train a small vision transformer on scikit-learn's digits and keep its attention on a few test images.

Writes src/geoattn/data/attention_sample.npz. Takes about a minute on one core:

    .venv/bin/python examples/make_sample.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

TARGET = Path(__file__).parents[1] / "src" / "geoattn" / "data" / "attention_sample.npz"
WIDTH, LAYERS, HEADS, PATCH, TOKENS, CLASSES = 64, 4, 4, 2, 17, 10
EPOCHS, BATCH, SEED, KEPT = 40, 64, 0, 6


class Block(nn.Module):
    """One pre-norm encoder layer that returns its attention weights too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).reshape(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)  # each (b, h, n, d)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)  # (b, h, n, n)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.mlp(self.norm_2(x)), weights


class DigitTransformer(nn.Module):
    """Patches of 2 x 2 pixels and a class token, four layers, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, WIDTH)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        b = len(images)
        side = 8 // PATCH
        patches = images.reshape(b, side, PATCH, side, PATCH).transpose(2, 3).reshape(b, side * side, PATCH * PATCH)
        x = torch.cat([self.cls.expand(b, -1, -1), self.embed(patches)], dim=1) + self.positions
        kept = []
        for block in self.blocks:
            x, weights = block(x)
            kept.append(weights)
        return self.head(self.norm(x[:, 0])), torch.stack(kept)  # (b, classes), (l, b, h, n, n)


def main() -> None:
    # one thread and fixed algorithms: the same file on each run of one machine
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    train_x, test_x, train_y, test_y = (
        torch.from_numpy(part)
        for part in train_test_split(images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target)
    )
    model = DigitTransformer()
    steps = EPOCHS * -(-len(train_x) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train_x)).split(BATCH):
            loss = nn.functional.cross_entropy(model(train_x[batch])[0], train_y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        logits, attention = model(test_x)
    print(f"test accuracy {(logits.argmax(-1) == test_y).float().mean():.3f} on {len(test_y)} images")
    # the first test image of each of the digits 0 to 5
    chosen = torch.stack([(test_y == digit).nonzero()[0, 0] for digit in range(KEPT)])
    np.savez_compressed(
        TARGET,
        attention=attention[:, chosen].numpy(),
        images=(test_x[chosen] * 16).to(torch.uint8).numpy(),
        labels=test_y[chosen].to(torch.uint8).numpy(),
    )
    print(f"{TARGET.name}: attention {tuple(attention[:, chosen].shape)}, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
