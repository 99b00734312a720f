"""Graphs that are hard on an exact transport solver, reproducible by name, size and seed.

`draw("ties", 5, 10, seed=0)` gives ten matrices of five tokens. ATTENTION holds families of attention (rows sum to
one), WEIGHTS families of symmetric non-negative weights for conventions that take any.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

Maker = Callable[[np.random.Generator, int], np.ndarray]

SCALES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def draw(family: str, n: int, count: int, seed: int = 0) -> np.ndarray:
    """`count` matrices (count, n, n) of a family; the same ones for the same arguments."""
    make = ATTENTION.get(family) or WEIGHTS[family]
    rng = np.random.default_rng([zlib.crc32(family.encode()), n, seed])
    return np.stack([make(rng, n) for _ in range(count)])


def rows(weights: np.ndarray) -> np.ndarray:
    """Rows that sum to one; an empty row keeps its mass to itself."""
    weights = weights + np.diag((weights.sum(axis=1) == 0).astype(float))
    return weights / weights.sum(axis=1, keepdims=True)


def softmax(logits: np.ndarray) -> np.ndarray:
    return rows(np.exp(logits - logits.max(axis=1, keepdims=True)))


def symmetric(weights: np.ndarray) -> np.ndarray:
    upper = np.triu(weights, 1)
    return upper + upper.T


# ---- attention


def _softmax(scale: float) -> Maker:
    return lambda rng, n: softmax(scale * rng.normal(size=(n, n)))


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.full((n, n), 1 / n)


def equal_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.tile(softmax(rng.normal(size=(1, n)) * 2), (n, 1))


def ties(rng: np.random.Generator, n: int) -> np.ndarray:
    """Small whole numbers: many lengths and many sums of lengths coincide."""
    return rows(rng.integers(1, 4, size=(n, n)).astype(float))


def sparse_ties(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(rng.integers(0, 3, size=(n, n)).astype(float))


def levels(rng: np.random.Generator, n: int) -> np.ndarray:
    """Weights 2^-k: with -log w every length is a multiple of log 2, but for the normalisation."""
    return rows(0.5 ** rng.integers(0, 4, size=(n, n)))


def dyadic(rng: np.random.Generator, n: int) -> np.ndarray:
    """1, 2 or 4 targets of equal weight: all numbers exact, zero lengths among them."""
    result = np.zeros((n, n))
    for row in result:
        count = int(rng.choice([k for k in (1, 2, 4) if k <= n]))
        row[rng.choice(n, count, replace=False)] = 1 / count
    return result


def circulant(rng: np.random.Generator, n: int) -> np.ndarray:
    """Every token sees the same pattern: full symmetry, ties everywhere."""
    row = softmax(rng.normal(size=(1, n)))[0]
    return np.stack([np.roll(row, k) for k in range(n)])


def blocks(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two levels: tokens of the same group and others; equal weights within each level."""
    group = rng.integers(0, 3, size=n)
    return rows(np.where(group[:, None] == group, rng.integers(2, 9), 1.0))


def one_hot(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(n)[rng.integers(0, n, size=n)]


def mutual(rng: np.random.Generator, n: int) -> np.ndarray:
    """Pairs of one-hot rows that point at each other (distance 0), the rest softmax."""
    result = softmax(rng.normal(size=(n, n)))
    order = rng.permutation(n)
    for k in range(int(rng.integers(1, max(2, n // 2)))):
        i, j = order[2 * k : 2 * k + 2]
        result[i], result[j] = np.eye(n)[j], np.eye(n)[i]
    return result


def nearly_mutual(rng: np.random.Generator, n: int) -> np.ndarray:
    """The same pairs with weight 1 - 1e-4 ... 1 - 1e-15: lengths down to 1e-15 beside lengths of 30."""
    result = softmax(rng.normal(size=(n, n)) * 3)
    order = rng.permutation(n)
    for k in range(int(rng.integers(1, max(2, n // 2)))):
        i, j = order[2 * k : 2 * k + 2]
        for a, b in ((i, j), (j, i)):
            rest = 10.0 ** rng.integers(-15, -3)
            result[a] *= rest
            result[a, b] = 0.0
            result[a, b] = 1 - result[a].sum()
    return rows(result)


def with_zeros(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(softmax(rng.normal(size=(n, n)) * 2) * (rng.random((n, n)) < 0.5))


def few(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two targets per token: long thin graphs."""
    weights = np.zeros((n, n))
    for row in weights:
        row[rng.choice(n, 2, replace=False)] = rng.random(2) + 0.01
    return rows(weights)


def band(rng: np.random.Generator, n: int) -> np.ndarray:
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 2
    return rows(near * (0.1 + rng.random((n, n))))


def duplicates(rng: np.random.Generator, n: int) -> np.ndarray:
    """Tokens that occur several times: equal rows and equal columns."""
    kinds = max(2, n // 2)
    which = rng.integers(0, kinds, size=n)
    return rows(softmax(rng.normal(size=(kinds, kinds)) * 2)[which][:, which])


def disconnected(rng: np.random.Generator, n: int) -> np.ndarray:
    """Up to four components and tokens that see only themselves."""
    part = rng.integers(0, 4, size=n)
    return rows(np.where(part[:, None] == part, rng.random((n, n)) * (part > 0), 0.0) + 0.1 * np.eye(n))


def block_diagonal(rng: np.random.Generator, n: int) -> np.ndarray:
    block = np.arange(n) * 2 // n
    return rows(np.where(block[:, None] == block, np.exp(rng.normal(size=(n, n))), 0.0))


def causal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(np.tril(np.exp(rng.normal(size=(n, n)))))


def causal_sharp(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(np.tril(np.exp(rng.normal(size=(n, n)) * 6)))


def causal_strict(rng: np.random.Generator, n: int) -> np.ndarray:
    """No token sees itself but the first."""
    return rows(np.tril(np.exp(rng.normal(size=(n, n))), -1))


def sink(rng: np.random.Generator, n: int) -> np.ndarray:
    """Nearly all attention on the first token, as in language models."""
    logits = rng.normal(size=(n, n))
    logits[:, 0] += 12
    return softmax(logits)


def selfish(rng: np.random.Generator, n: int) -> np.ndarray:
    return softmax(rng.normal(size=(n, n)) + 15 * np.eye(n))


def wide_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Weights over 30 orders of magnitude in one row."""
    return rows(10 ** rng.uniform(-30, 0, size=(n, n)))


def wide_sparse_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(10 ** rng.uniform(-30, 0, size=(n, n)) * (rng.random((n, n)) < 0.4))


def ring(rng: np.random.Generator, n: int) -> np.ndarray:
    """A walk on a cycle with a little laziness."""
    step = np.roll(np.eye(n), 1, axis=1)
    return rows(step + step.T + rng.integers(0, 2) * np.eye(n))


def tree(rng: np.random.Generator, n: int) -> np.ndarray:
    """A walk on a random tree, equal weights or not."""
    weights = np.zeros((n, n))
    equal = rng.random() < 0.5
    for j in range(1, n):
        weights[rng.integers(0, j), j] = 1.0 if equal else rng.random() + 0.01
    return rows(symmetric(weights))


ATTENTION: dict[str, Maker] = {
    **{f"softmax-{scale:g}": _softmax(scale) for scale in SCALES},
    "uniform": uniform,
    "equal_rows": equal_rows,
    "ties": ties,
    "sparse_ties": sparse_ties,
    "levels": levels,
    "dyadic": dyadic,
    "circulant": circulant,
    "blocks": blocks,
    "one_hot": one_hot,
    "mutual": mutual,
    "nearly_mutual": nearly_mutual,
    "with_zeros": with_zeros,
    "few": few,
    "band": band,
    "duplicates": duplicates,
    "disconnected": disconnected,
    "block_diagonal": block_diagonal,
    "causal": causal,
    "causal_sharp": causal_sharp,
    "causal_strict": causal_strict,
    "sink": sink,
    "selfish": selfish,
    "wide_rows": wide_rows,
    "wide_sparse_rows": wide_sparse_rows,
    "ring": ring,
    "tree": tree,
}


# ---- general weights


def _powers(low: float, high: float, share: float = 1.0) -> Maker:
    return lambda rng, n: symmetric(10 ** rng.uniform(low, high, size=(n, n)) * (rng.random((n, n)) < share))


def unweighted(rng: np.random.Generator, n: int) -> np.ndarray:
    return symmetric((rng.random((n, n)) < 0.5).astype(float))


def whole(rng: np.random.Generator, n: int) -> np.ndarray:
    return symmetric(rng.integers(0, 4, size=(n, n)).astype(float))


def far(rng: np.random.Generator, n: int) -> np.ndarray:
    """From about 4 on the neighbour weights exp(-w^2) sum to less than 1e-7: uniform measures."""
    return symmetric(rng.uniform(1, 9, size=(n, n)) * (rng.random((n, n)) < 0.7))


def thousands(rng: np.random.Generator, n: int) -> np.ndarray:
    return symmetric(rng.uniform(1e3, 5e3, size=(n, n)))


def threshold(rng: np.random.Generator, n: int) -> np.ndarray:
    """On, just below and just above the floor of 1e-7, and sums that cross it."""
    around = [1e-7, np.nextafter(1e-7, 0), np.nextafter(1e-7, 1), 0.5e-7, 0.6e-7, 2e-7, 0.3, 0.0]
    return symmetric(rng.choice(around, size=(n, n)))


def clusters(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two groups with lengths of 5 to 9 inside and a million between them: small differences far away."""
    group = rng.integers(0, 2, size=n)
    inside = group[:, None] == group
    return symmetric(np.where(inside, rng.uniform(5, 9, size=(n, n)), 1e6) * (rng.random((n, n)) < 0.8))


WEIGHTS: dict[str, Maker] = {
    "powers-small": _powers(-30, 0),
    "powers-both": _powers(-15, 15),
    "powers-large": _powers(-2, 28),
    "powers-small-sparse": _powers(-30, 0, 0.5),
    "powers-large-sparse": _powers(-2, 28, 0.5),
    "powers-near": _powers(-7, 1, 0.7),
    "unweighted": unweighted,
    "whole": whole,
    "far": far,
    "thousands": thousands,
    "threshold": threshold,
    "clusters": clusters,
}
