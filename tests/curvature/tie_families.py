"""Maps full of ties, with the conventions under which the ties count: masks, untrained layers, unweighted graphs.

`tie_family("near ties", 257, seed=0)` gives one map and its convention. `benchmarks/ties.py` times these families, and
test_ties.py compares their values with POT.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from geoattn import Convention
from tests.graphs import ATTENTION, Maker, rows, symmetric

__all__ = ["TIES", "tie_family"]


def near_ties(rng: np.random.Generator, n: int) -> np.ndarray:
    """All weights equal up to 1e-15: rounding alone tells them apart."""
    return rows(1 + 1e-15 * rng.integers(-4, 5, size=(n, n)))


def uniform_causal(rng: np.random.Generator, n: int) -> np.ndarray:
    """An untrained causal layer: token i looks at each token up to itself alike."""
    return rows(np.tri(n))


def causal_with_zeros(rng: np.random.Generator, n: int) -> np.ndarray:
    return rows(np.tril(rng.random((n, n)) < 0.5) + np.eye(n))


def bipartite(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two halves that look at each other only, equal weights."""
    half = np.arange(n) < n // 2
    return rows(
        (half[:, None] != half) * (rng.random((n, n)) < 0.3) + 1e-3 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    )


def window(rng: np.random.Generator, n: int) -> np.ndarray:
    """Local attention: a window of equal weights."""
    wide = int(rng.integers(2, max(3, n // 8)))
    return rows((np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= wide).astype(float))


def noisy_permutation(rng: np.random.Generator, n: int) -> np.ndarray:
    """One target a token, and the same small weight on all others."""
    return rows(np.eye(n)[rng.permutation(n)] + 0.1 / n)


def quantised(rng: np.random.Generator, n: int) -> np.ndarray:
    """Softmax attention in steps of 1/64: few different weights, many zeros."""
    logits = 2 * rng.normal(size=(n, n))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rows(np.round(64 * weights) / 64)


def half_edges(rng: np.random.Generator, n: int) -> np.ndarray:
    """An unweighted random graph."""
    return rows(symmetric((rng.random((n, n)) < 0.5).astype(float)) + np.eye(n))


def few_edges(rng: np.random.Generator, n: int) -> np.ndarray:
    """An unweighted random graph of degree 6, on a ring: whole distances up to about ten."""
    edges = symmetric((rng.random((n, n)) < 4 / n).astype(float))
    return rows(np.minimum(edges + np.eye(n, k=1) + np.eye(n, k=-1) + np.eye(n, k=n - 1) + np.eye(n, k=1 - n), 1.0))


def whole_lengths(rng: np.random.Generator, n: int) -> np.ndarray:
    """Lengths of 1, 2 and 3, for conventions that take any weights."""
    return symmetric(rng.integers(1, 4, size=(n, n)).astype(float))


_DIRECTED = Convention(direction="directed")

#: family: (maker, convention)
TIES: dict[str, tuple[Maker, Convention]] = {
    "uniform": (ATTENTION["uniform"], Convention.of("markov")),
    "uniform, grc-0.6": (ATTENTION["uniform"], Convention.of("grc-0.6").but(floor=0.0)),
    "equal rows": (ATTENTION["equal_rows"], Convention.of("markov")),
    "near ties": (near_ties, Convention.of("markov")),
    "near ties, min": (near_ties, Convention(direction="min")),
    "near ties, directed": (near_ties, _DIRECTED),
    "uniform causal": (uniform_causal, Convention.of("markov")),
    "causal hop, directed, exponential": (
        causal_with_zeros, Convention(direction="directed", length="hop", measure="exponential")
    ),
    "bipartite hop, limit": (bipartite, Convention(length="hop", alpha="limit")),
    "bipartite hop, directed": (bipartite, Convention(length="hop", direction="directed")),
    "whole distances, hop, limit": (few_edges, Convention(length="hop", alpha="limit")),
    "window hop, uniform measure": (window, Convention(length="hop", measure="uniform")),
    "permutation with noise": (noisy_permutation, Convention.of("markov")),
    "quantised": (quantised, Convention.of("markov")),
    "unweighted half, hop": (half_edges, Convention.of("hop")),
    "unweighted few, hop": (few_edges, Convention.of("hop")),
    "whole lengths, grc-0.5": (whole_lengths, Convention.of("grc-0.5")),
    "blocks": (ATTENTION["blocks"], Convention.of("markov")),
    "circulant": (ATTENTION["circulant"], Convention.of("markov")),
    "duplicates": (ATTENTION["duplicates"], Convention.of("markov")),
}  # fmt: skip


def tie_family(name: str, n: int, seed: int = 0) -> tuple[np.ndarray, Convention]:
    """One map of a family and its convention; the same ones for the same arguments."""
    make: Callable[[np.random.Generator, int], np.ndarray]
    make, convention = TIES[name]
    return make(np.random.default_rng([zlib.crc32(name.encode()), n, seed]), n), convention
