"""A plain NumPy drift, loop and formula as printed: the reference of the tests and of the benchmark."""

from __future__ import annotations

import numpy as np


def plain_velocity(x, beta=1.0, D=None, V=None, flow="SA", causal=False, weights=None):
    """The velocity of (n, d) tokens by the whole n x n matrix."""
    n, d = x.shape
    D = np.eye(d) if D is None else D
    V = np.eye(d) if V is None else V
    w = np.full(n, 1 / n) if weights is None else weights
    kernel = np.exp(beta * x @ D @ x.T) * w
    if causal:
        kernel = np.tril(kernel)
        w = np.tril(np.broadcast_to(w, (n, n)))
    z = kernel.sum(1) if flow == "SA" else w.sum(-1)
    y = (kernel @ x @ V.T) / (z[:, None] if np.ndim(z) else z)
    return y - (x * y).sum(1, keepdims=True) * x
