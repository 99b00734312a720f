"""Make the embedded model: train L-ViT on digits and write weights/lvit-digits.safetensors.

    python -m geoattn.models.make_embedded [FILE]

The recipe is the paper's (Appendix D): Adam, learning rate 5e-4, batches of 64 images, dropout 0.1. Patches
of 2 x 2 make 17 tokens of an 8 x 8 image, as many as the paper has. One thread, so that the same machine
makes the same bytes; about two minutes.

The model knows its training set and gets 91 % of the test set right (94 % when the split is random). This may be
why: vit-pytorch normalises each patch first, so of four pixels the model sees the pattern, but neither the
brightness nor the contrast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from geoattn.datasets.dataset import Dataset
from geoattn.datasets.loader import load_data
from geoattn.models.loading import load_model
from geoattn.models.lvit import LViT
from geoattn.models.lvit_file import save_lvit

__all__ = ["accuracy", "make_embedded", "train"]

_RATE, _BATCH, _EPOCHS, _SEED = 5e-4, 64, 40, 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def train(model: LViT, data: Dataset, *, epochs: int, seed: int, say: Callable[[str], object]) -> None:
    """Adam on the cross entropy, in place; the order of the images and the dropout follow ``seed``."""
    images, labels = data.pixels(), data.targets()
    adam = torch.optim.Adam(model.parameters(), lr=_RATE)
    torch.manual_seed(seed)
    model.train()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(data)).split(_BATCH):
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += float(loss.detach()) * len(batch)
        say(f"epoch {epoch:2d} of {epochs}: loss {total / len(data):.4f}")
    model.eval()


def accuracy(model: LViT, data: Dataset) -> float:
    """Share of the images whose most probable class is right."""
    with torch.no_grad():
        return float((model.eval()(data.pixels()).argmax(dim=1) == data.targets()).double().mean())


def make_embedded(
    path: Path,
    *,
    epochs: int = _EPOCHS,
    limit: int | None = None,
    seed: int = _SEED,
    say: Callable[[str], object] = _say,
) -> dict[str, Any]:
    """Train on all images or on ``limit`` of them, write the file, and return the notes that are in it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        training, test = load_data("digits", split="train", limit=limit), load_data("digits", split="test")
        model = load_model("lvit-digits", weights="random", seed=seed)
        assert isinstance(model, LViT)
        with torch.random.fork_rng(devices=[]):
            train(model, training, epochs=epochs, seed=seed, say=say)
        notes = {
            "data": training.name, "train_images": len(training), "train_checksum": training.checksum,
            "test_images": len(test), "test_checksum": test.checksum,
            "train_accuracy": accuracy(model, training), "test_accuracy": accuracy(model, test),
            "optimiser": "Adam", "learning_rate": _RATE, "batch": _BATCH, "epochs": epochs, "seed": seed,
            "torch": str(torch.__version__),
            "command": "python -m geoattn.models.make_embedded",
        }  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    save_lvit(model, path, **notes)
    return notes


if __name__ == "__main__":
    embedded = Path(__file__).parent / "weights" / "lvit-digits.safetensors"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else embedded
    made = make_embedded(target)
    _say(f"{target}: {target.stat().st_size:,} bytes, test accuracy {made['test_accuracy']:.4f}")
