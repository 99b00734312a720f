"""What several tests share: a plain NumPy drift, formula as printed, and the cosine of the first two tokens."""

from __future__ import annotations

import numpy as np


def plain_velocity(x, beta=1.0, D=None, V=None, flow="SA", causal=False, weights=None, shift=0.0):
    """The velocity of (n, d) tokens by the whole n x n matrix."""
    n, d = x.shape
    D = np.eye(d) if D is None else D
    V = np.eye(d) if V is None else V
    w = np.full(n, 1 / n) if weights is None else weights
    w = np.broadcast_to(w, (n, n))
    if causal:
        w = np.tril(w)
    logits = beta * x @ D @ x.T
    share = w / w.sum(1, keepdims=True)
    if flow == "L2":
        apart = x[:, None] - x
        logits = -beta / 2 * np.einsum("ija,ab,ijb->ij", apart, D, apart)
    if flow in ("SA", "L2"):
        A = np.exp(logits) * w
        A = A / A.sum(1, keepdims=True)
    elif flow == "sinkhorn":
        A = np.exp(logits) * w
        for _ in range(3000):
            A = A * (w[0] / (w[0] @ A))
            A = A / A.sum(1, keepdims=True)
    elif flow == "hardmax":
        seen = np.where(w > 0, logits, -np.inf)
        A = w * (seen == seen.max(1, keepdims=True))
        A = A / A.sum(1, keepdims=True)
    else:
        A = {"USA": np.exp(logits - shift), "sigmoid": 1 / (1 + np.exp(shift - logits)), "linear": logits}[flow] * share
    y = A @ x @ V.T
    return y - (x * y).sum(1, keepdims=True) * x


def cosines(run):
    """The cosine of the first two tokens over time."""
    return (run.tokens @ run.tokens.mT)[..., 0, 1]
