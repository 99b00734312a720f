"""Weights to lengths: symmetrisation and the length of an edge, each with its derivative."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention

__all__ = ["edge_lengths", "edge_weights", "graph_lengths", "length_slope", "weight_pull_back"]

_BLOCK = 1 << 17  # entries that are in work at once: they fit into a cache

_LONGEST = 1e260  # times 2^125 units of mass and some thousand edges it must stay finite


def _place(wanted: np.ndarray) -> tuple[int, ...]:
    return tuple(int(k[0]) for k in np.nonzero(wanted))


def _edge(at: tuple[int, ...]) -> str:
    return f"edge ({at[1]}, {at[2]})"


def edge_weights(attention: Float[np.ndarray, "g n n"], convention: Convention) -> Float[np.ndarray, "g n n"]:
    """S: one weight per pair, 0 where there is no edge; the diagonal is dropped."""
    return _rows_of_weights(attention, convention, slice(None))


def _rows_of_weights(
    attention: Float[np.ndarray, "g n n"], convention: Convention, rows: slice
) -> Float[np.ndarray, "g r n"]:
    a, t = attention[:, rows], attention[:, :, rows].swapaxes(-1, -2)
    rule = convention.direction
    if rule == "mean":
        with np.errstate(over="ignore"):
            s = a + t
        s *= 0.5
        if s.max(initial=0.0) == np.inf:
            s = a / 2 + t / 2
    elif rule == "max":
        s = np.maximum(a, t)
    elif rule == "min":
        s = np.minimum(a, t)
    elif rule == "product":
        s = a * t
    else:
        s = a.copy()
    node = np.arange(attention.shape[-1])[rows]
    s[:, np.arange(len(node)), node] = 0.0
    return s


def graph_lengths(attention: Float[np.ndarray, "g n n"], convention: Convention) -> Float[np.ndarray, "g n n"]:
    """The lengths of all edges, some rows at a time: of a long map nothing else is held as a whole."""
    graphs, n, _ = attention.shape
    step = max(1, _BLOCK // max(graphs * n, 1))
    if step >= n:
        return edge_lengths(edge_weights(attention, convention), convention)
    lengths = np.empty_like(attention)
    try:
        for start in range(0, n, step):
            rows = slice(start, start + step)
            lengths[:, rows] = edge_lengths(_rows_of_weights(attention, convention, rows), convention)
    except GeoattnError:
        return edge_lengths(edge_weights(attention, convention), convention)  # the same error, which names the edge
    return lengths


def weight_pull_back(
    to_weights: Float[np.ndarray, "g n n"], attention: Float[np.ndarray, "g n n"], convention: Convention
) -> Float[np.ndarray, "g n n"]:
    """Gradient of S back to A. At a tie of max or min each of the two gets half."""
    rule = convention.direction
    if rule == "directed":
        return to_weights
    both = to_weights + to_weights.swapaxes(-1, -2)
    a, t = attention, attention.swapaxes(-1, -2)
    if rule == "mean":
        return both / 2
    if rule == "product":
        return both * t
    chosen = a > t if rule == "max" else a < t
    return both * np.where(a == t, 0.5, chosen)


def edge_lengths(weights: Float[np.ndarray, "g r n"], convention: Convention) -> Float[np.ndarray, "g r n"]:
    """Length of each edge, infinite where there is none."""
    edge = weights > 0
    kind = convention.length
    if kind in ("1/w", "-log w"):
        with np.errstate(divide="ignore", over="ignore"):
            # not -log, which is -0.0 for a weight of 1
            length = 1.0 / weights if kind == "1/w" else 0.0 - np.log(weights)
    elif kind == "w":
        length = weights
    elif kind == "1-w":
        length = 1.0 - weights
    else:
        length = np.ones_like(weights)
    length = np.where(edge, length, np.inf)
    if kind in ("-log w", "1-w") and (length < 0).any():
        # a weight may exceed 1 by the rounding of a row that was normalised
        if (length < -1e-12).any():
            raise GeoattnError(
                f"length '{kind}' needs weights of at most 1; the largest is {weights.max():.6g}"
                f" ({_edge(_place(weights == weights.max()))}). Scale the weights, or take length 'w', '1/w' or 'hop'."
            )
        length = np.maximum(length, 0.0)
    too_long = edge & (length > _LONGEST)
    if too_long.any():
        at = _place(too_long)
        raise GeoattnError(
            f"length '{kind}' overflows for a weight of {weights[at]:.3g} ({_edge(at)}). Scale the weights."
        )
    return length


def length_slope(weights: Float[np.ndarray, "g n n"], convention: Convention) -> Float[np.ndarray, "g n n"]:
    """Derivative of the length by the weight, 0 where there is no edge."""
    edge = weights > 0
    safe = np.where(edge, weights, 1.0)
    kind = convention.length
    if kind == "1/w":
        with np.errstate(over="ignore"):  # steeper than any float: the largest one
            slope = np.maximum(-1.0 / safe / safe, -np.finfo(np.float64).max)
    else:
        slope = {"w": 1.0, "-log w": -1.0 / safe, "1-w": -1.0, "hop": 0.0}[kind]
    return np.where(edge, slope, 0.0)
