"""Attention maps and conventions that Hypothesis draws for the laws."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from geoattn import Convention
from tests.graphs import ATTENTION, draw

PRESETS = ("markov", "hop", "grc-0.5", "grc-0.6")

UNDIRECTED = [
    *map(Convention.of, PRESETS),
    Convention(length="1/w"),
    Convention(length="1-w", direction="max"),
    Convention(alpha="limit"),
    Convention(measure="uniform", alpha=0.3),
]

CONVENTIONS = [
    *UNDIRECTED,
    Convention(direction="directed"),
    Convention(direction="directed", length="hop"),
    Convention(direction="directed", alpha="limit"),
]

conventions = st.sampled_from(CONVENTIONS)

# Their answers hang on the last bit of a weight (a length of -log(1 - 1e-15), masses over 30 orders): not for laws that
# change the order of sums.
FRAGILE = {"nearly_mutual", "wide_rows", "wide_sparse_rows", "softmax-10", "softmax-30"}

SOLID = {"rtol": 1e-9, "atol": 1e-10}


@st.composite
def attentions(draw_: st.DrawFn, most: int = 9) -> np.ndarray:
    """Softmax attention, flat to one-hot, with zeros, with coarse logits so that ties come; or a hostile family."""
    n, seed = draw_(st.integers(2, most)), draw_(st.integers(0, 2**32 - 1))
    family = draw_(st.sampled_from([None, *(f for f in ATTENTION if f not in FRAGILE)]))
    if family is not None:
        return draw(family, n, 1, seed)[0]
    rng = np.random.default_rng(seed)
    logits = draw_(st.sampled_from([0.1, 1.0, 5.0])) * rng.standard_normal((n, n))
    if draw_(st.booleans()):
        logits = np.round(logits)
    weights = np.exp(logits) * (rng.random((n, n)) > draw_(st.sampled_from([0.0, 0.3])))
    weights[np.arange(n), np.arange(n)] += 1e-3
    return weights / weights.sum(-1, keepdims=True)


def same(one: np.ndarray, two: np.ndarray) -> None:
    np.testing.assert_allclose(one, two, **SOLID)
