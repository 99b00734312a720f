"""A small piece of real attention, so that every example runs with nothing to download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float32

__all__ = ["SAMPLE_PATH", "load_sample"]

#: One array ``attention``, and the test ``images`` and ``labels`` it belongs to.
SAMPLE_PATH = Path(__file__).with_name("attention_sample.npz")


def load_sample() -> Float32[np.ndarray, "l b h n n"]:
    """Attention (layers, samples, heads, n, n) of a small vision transformer on handwritten digits.

    Four layers of four heads, softmax weights without dropout, on six test images of scikit-learn's digits,
    cut into 16 patches of 2 x 2 pixels; token 0 is the class token, 1 to 16 are the patches row by row.
    ``examples/make_sample.py`` trained the model and wrote the file.

    Examples
    --------
    >>> from geoattn.datasets import load_sample
    >>> attention = load_sample()
    >>> attention.shape, bool(abs(attention.sum(-1) - 1).max() < 1e-5)
    ((4, 6, 4, 17, 17), True)
    """
    with np.load(SAMPLE_PATH, allow_pickle=False) as data:
        return data["attention"]
