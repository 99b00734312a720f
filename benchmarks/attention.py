"""The input of the benchmarks: softmax attention of random queries and keys."""

import numpy as np


def softmax_attention(graphs: int, n: int, scale: float = 1.0, *, width: int = 64, seed: int = 0) -> np.ndarray:
    """softmax(scale * q k^T / sqrt(width)) with standard normal q and k: logits of standard deviation `scale`."""
    rng = np.random.default_rng([seed, n])
    q, k = rng.standard_normal((2, graphs, n, width))
    logits = scale * q @ k.swapaxes(-1, -2) / np.sqrt(width)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
