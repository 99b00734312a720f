"""The probability measure at each token, with its derivative."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from geoattn.graph.convention import Convention

__all__ = ["measure_pull_back", "node_measures"]

# GraphRicciCurvature spreads the mass evenly when all neighbours are so far that their weights sum to less than this.
_EXPONENTIAL_FLOOR = 1e-7


def node_measures(
    attention: Float[np.ndarray, "g n n"], lengths: Float[np.ndarray, "g n n"], convention: Convention
) -> Float[np.ndarray, "g n n"]:
    """m_x in row x: alpha on x, the rest by the rule of the convention. A token with no neighbour keeps all."""
    alpha = convention.laziness
    if convention.measure == "markov":
        share, divided = attention, False
    else:
        share, inverse_total = _neighbour_shares(lengths, convention)
        divided = inverse_total.all()  # each row by its positive sum: no need to look for tokens with no neighbour
    alone = None if divided else share.sum(axis=-1) == 0
    if share is attention and not alpha and alone is not None and not alone.any():
        return attention  # the rows themselves: a long map is not held twice
    measures = (1 - alpha) * share
    node = np.arange(lengths.shape[-1])
    measures[:, node, node] += alpha if alone is None else np.where(alone, 1.0, alpha)
    return measures


def _neighbour_shares(
    lengths: Float[np.ndarray, "g n n"], convention: Convention
) -> tuple[Float[np.ndarray, "g n n"], Float[np.ndarray, "g n 1"]]:
    """Shares over the neighbours, and 1 / the sum they were divided by (0 where they do not depend on lengths)."""
    if convention.measure == "uniform":
        return _even(lengths), np.zeros((*lengths.shape[:-1], 1))
    with np.errstate(over="ignore"):  # infinitely far: no share
        decay = lengths**convention.exponent
    np.exp(np.negative(decay, out=decay), out=decay)
    total = decay.sum(axis=-1, keepdims=True)
    far = total <= _EXPONENTIAL_FLOOR
    if not far.any():
        return decay / total, 1.0 / total
    near = np.where(far, 1.0, total)
    return np.where(far, _even(lengths), decay / near), np.where(far, 0.0, 1.0 / near)


def _even(lengths: Float[np.ndarray, "g n n"]) -> Float[np.ndarray, "g n n"]:
    edge = np.isfinite(lengths)
    return edge / np.maximum(edge.sum(axis=-1, keepdims=True), 1)


def measure_pull_back(
    to_measures: Float[np.ndarray, "g n n"], lengths: Float[np.ndarray, "g n n"], convention: Convention
) -> tuple[Float[np.ndarray, "g n n"] | None, Float[np.ndarray, "g n n"] | None]:
    """Gradients to the attention rows and to the lengths; None for the one the measure does not depend on."""
    scale = 1 - convention.laziness
    if convention.measure == "markov":
        return scale * to_measures, None
    if convention.measure == "uniform":
        return None, None
    share, inverse_total = _neighbour_shares(lengths, convention)
    centred = to_measures - (to_measures * share).sum(axis=-1, keepdims=True)
    power = convention.exponent
    steep = np.zeros_like(lengths)  # 0 at length 0, where a power below 1 has no slope
    np.power(lengths, power - 1, out=steep, where=np.isfinite(lengths) & (lengths > 0) & (share > 0))
    to_lengths = -scale * power * centred * share * steep
    return None, np.where(inverse_total > 0, to_lengths, 0.0)
