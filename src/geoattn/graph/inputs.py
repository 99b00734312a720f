"""Checks at the door: attention, weights, networkx graphs and masks become float64 arrays, or one clear error."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from geoattn._core.errors import GeoattnError
from geoattn.graph.axes import name_axes
from geoattn.graph.captured import is_recorded, read_call
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_inputs import is_networkx, refuse_multigraph

__all__ = ["Weights", "read_weights", "where"]

# How far a row of attention may be from one before it is an error: rounding in its own precision.
_ROW_TOLERANCE = {"float16": 8 * 2.0**-10, "bfloat16": 8 * 2.0**-7, "float32": 1e-5, "float64": 1e-6}


@dataclass(frozen=True)
class Weights:
    """Checked weights of many graphs, still in the precision they came in; `chunk` gives them in float64.

    ``flat`` is (g, n, n), ``valid`` is (g, n): True for a real token; ``padded``: whether any is not. ``shape`` is the
    batch shape in front.
    """

    flat: Any
    valid: Bool[np.ndarray, "g n"]
    padded: bool
    shape: tuple[int, ...]
    dtype: str
    convention: Convention

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self.flat.shape[-1]

    def chunk(self, start: int, stop: int) -> Float[np.ndarray, "c n n"]:
        """Graphs start..stop in float64: padding removed, checked, rows of attention summing to one."""
        values = _to_float64(self.flat[start:stop])
        if self.padded:
            valid = self.valid[start:stop]
            values = np.where(valid[:, :, None] & valid[:, None, :], values, 0.0)
        self._check(values, start)
        sums = values.sum(axis=-1, keepdims=True) if self.convention.measure == "markov" else None
        if sums is not None:
            self._check_sums(sums[..., 0], start)
        if self.convention.heads == "mean" and values.shape[0]:
            heads = self.flat.shape[0] // math.prod(self.shape)
            values = values.reshape(-1, heads, self.n, self.n).mean(axis=1)
            sums = None if sums is None else values.sum(axis=-1, keepdims=True)
        if sums is not None:
            values /= np.where(sums > 0, sums, 1.0)
        return values

    def pull_back(
        self, rows: Float[np.ndarray, "c n n"], to_rows: Float[np.ndarray, "c n n"]
    ) -> Float[np.ndarray, "g n n"]:
        """Gradient of what `chunk` returned for all graphs, back to the weights as they came."""
        raw = np.where(self.valid[:, :, None] & self.valid[:, None, :], _to_float64(self.flat), 0.0)
        heads = len(raw) // len(rows)
        if self.convention.measure == "markov":  # through rows / sum(rows)
            mean = raw.reshape(-1, heads, self.n, self.n).mean(axis=1)
            sums = mean.sum(axis=-1, keepdims=True)
            centred = to_rows - (to_rows * rows).sum(axis=-1, keepdims=True)
            to_rows = centred / np.where(sums > 0, sums, 1.0)
        gradient = np.repeat(to_rows / heads, heads, axis=0)
        return np.where(self.valid[:, :, None] & self.valid[:, None, :], gradient, 0.0)

    def _check(self, values: Float[np.ndarray, "c n n"], start: int) -> None:
        if values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf:  # neither holds with a NaN
            return
        finite = np.isfinite(values)
        if not finite.all():
            at = _first(~finite, start, self)
            raise GeoattnError(
                f"attention must be finite; got {values[~finite][0]} at {at}. Mask padded tokens with mask=, and look"
                " for overflow in the model."
            )
        raise GeoattnError(
            f"weights must not be negative; got {values[values < 0][0]:.6g} at {_first(values < 0, start, self)}."
            " Pass attention after the softmax, not logits."
        )

    def _check_sums(self, sums: Float[np.ndarray, "c n"], start: int) -> None:
        off = np.where(self.valid[start : start + len(sums)], np.abs(sums - 1.0), 0.0)
        limit = _ROW_TOLERANCE[self.dtype]
        if (off > limit).any():
            worst = np.unravel_index(int(off.argmax()), off.shape)
            total = sums[worst]
            raise GeoattnError(
                f"rows of attention must sum to one within {limit:.1g} ({self.dtype}) for measure 'markov'; row"
                f" {worst[1]} of {where(start + int(worst[0]), self)} sums to {total:.9g}. Normalise with"
                " attention / attention.sum(-1, keepdims=True), take the weights before dropout, mask padded tokens"
                " with mask=, or choose a convention for general weights such as 'grc-0.6'."
            )


def read_weights(attention: Any, convention: Convention, mask: Any = None) -> Weights:
    """Check shape, dtype and mask; values are checked chunk by chunk so that memory stays small."""
    if is_recorded(attention):
        attention, mask = read_call(attention, mask)
    if is_networkx(attention):
        attention = _from_networkx(attention, convention)
    array = _as_array(attention)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise GeoattnError(
            f"attention must have shape (..., n, n); got {tuple(array.shape)}. Cross-attention between two sequences"
            " is not a graph on one set of tokens."
        )
    n, batch = int(array.shape[-1]), tuple(int(s) for s in array.shape[:-2])
    if n < 2:
        raise GeoattnError(f"attention must have at least two tokens; got shape {tuple(array.shape)}.")
    if 0 in batch:
        raise GeoattnError(f"attention is empty: shape {tuple(array.shape)} holds no graph.")
    valid = _read_mask(mask, batch, n)
    shape = batch
    if convention.heads == "mean":
        if not batch:
            raise GeoattnError(
                "convention with heads='mean' needs an axis of heads: attention of shape (..., h, n, n)."
            )
        shape = batch[:-1]
        valid = valid.reshape(*batch, n)
        if not (valid == valid[..., :1, :]).all():
            raise GeoattnError("mask differs between heads, which heads='mean' cannot average.")
        valid = valid.reshape(-1, n)
    padded = mask is not None and not valid.all()
    return Weights(array.reshape(-1, n, n), valid, padded, shape, _dtype_name(array.dtype), convention)


def _read_mask(mask: Any, batch: tuple[int, ...], n: int) -> Bool[np.ndarray, "g n"]:
    """(..., n) with leading axes that match those of the attention; missing middle axes (heads) are repeated."""
    if mask is None:
        return np.ones((math.prod(batch), n), dtype=bool)
    m = np.asarray(mask.detach().cpu().numpy() if hasattr(mask, "detach") else mask)
    if m.dtype != bool:
        if m.dtype.kind not in "iu" or not np.isin(m, (0, 1)).all():
            raise GeoattnError(f"mask must be boolean (True = a real token) or 0/1 integers; got dtype {m.dtype}.")
        m = m.astype(bool)
    if m.ndim < 1 or m.shape[-1] != n or m.ndim - 1 > len(batch):
        raise GeoattnError(f"mask must have shape (..., {n}) to go with attention {(*batch, n, n)}; got {m.shape}.")
    lead = m.shape[:-1]
    spread = m.reshape(*lead, *([1] * (len(batch) - len(lead))), n)
    try:
        return np.ascontiguousarray(np.broadcast_to(spread, (*batch, n))).reshape(-1, n)
    except ValueError:
        raise GeoattnError(f"mask of shape {m.shape} does not fit attention of shape {(*batch, n, n)}.") from None


def _from_networkx(graph: Any, convention: Convention) -> Float[np.ndarray, "n n"]:
    import networkx as nx

    refuse_multigraph(graph)
    if graph.is_directed() and not convention.directed:
        raise GeoattnError("graph is directed: use a convention with direction='directed', or graph.to_undirected().")
    try:
        return np.asarray(nx.to_numpy_array(graph, weight="weight"), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GeoattnError(f"edge attribute 'weight' of the graph must be a number on every edge ({error}).") from None


def _as_array(x: Any) -> Any:
    if hasattr(x, "detach"):  # a torch tensor: kept as it is, converted chunk by chunk
        if x.device.type == "meta":
            raise GeoattnError("attention is on the meta device and holds no values.")
        if str(x.layout) != "torch.strided":
            raise GeoattnError(f"attention must be a dense tensor; got layout {x.layout}. Convert with .to_dense().")
        if not x.is_floating_point():
            raise GeoattnError(f"attention must be a floating-point tensor; got {x.dtype}. Convert with .float().")
        return x.detach()
    _refuse_edges(x)
    if isinstance(x, np.ma.MaskedArray):
        raise GeoattnError("attention is a masked array; pass its data, and padded tokens by mask=.")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise GeoattnError(f"attention must be an array of shape (..., n, n); NumPy says: {error}.") from None
    if array.dtype.kind != "f" and hasattr(x, "columns"):
        raise GeoattnError(
            "a table is not a matrix of numbers; make a graph of a table of edges, for example"
            " networkx.from_pandas_edgelist(table, 'source', 'target', edge_attr='weight')."
        )
    if array.dtype.kind != "f" and str(array.dtype) != "bfloat16":
        raise GeoattnError(f"attention must have a floating dtype; got {array.dtype}. Convert with .astype(float).")
    return array


def _refuse_edges(x: Any) -> None:
    """An error for what is no array but stands for a graph: the name of a file, or a list of pairs of nodes."""
    if isinstance(x, (str, os.PathLike)):
        raise GeoattnError(
            f"attention must be an array or a graph; got the text {str(x)[:200]!r}. Read the file first, such as"
            " networkx.read_graphml(path), networkx.read_weighted_edgelist(path, delimiter=',') or numpy.load(path); or"
            " give it to the command line: geoattn curvature FILE."
        )
    if not isinstance(x, (list, tuple)) or not all(isinstance(row, (list, tuple)) and len(row) in (2, 3) for row in x):
        return
    named = any(isinstance(end, str) for row in x for end in row[:2])
    if x and (named or any(len(row) != len(x) for row in x)):
        raise GeoattnError(
            f"attention must be an array of shape (..., n, n) or a graph; got a list of {len(x)} pairs. Make a graph of"
            " it: networkx.Graph(pairs), or with weights a networkx.Graph() and its add_weighted_edges_from(pairs)."
        )


@functools.cache  # to print a dtype takes longer than the other checks together
def _dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if name in _ROW_TOLERANCE else "float64"


def _to_float64(x: Any) -> np.ndarray:
    """A copy in C order: the caller's memory stays the caller's."""
    if hasattr(x, "detach"):
        values = x.double().cpu().numpy()  # a copy already unless it was float64
        return np.array(values, order="C") if _dtype_name(x.dtype) == "float64" else np.ascontiguousarray(values)
    return np.array(x, dtype=np.float64, order="C")


def _first(bad: np.ndarray, start: int, weights: Weights) -> str:
    g, i, j = (int(k[0]) for k in np.nonzero(bad))
    return f"row {i}, column {j} of {where(start + g, weights)}"


def where(graph: int, weights: Weights) -> str:
    """Name a graph by its place in the batch: (sample, head) for two axes in front."""
    heads = weights.flat.shape[0] // max(1, math.prod(weights.shape))
    shape = (*weights.shape, heads) if weights.convention.heads == "mean" else weights.shape
    if not shape:
        return "the graph"
    place = tuple(int(k) for k in np.unravel_index(graph, shape))
    if len(place) > 3:
        return f"graph {place}"
    return ", ".join(f"{name} {k}" for name, k in zip(name_axes(len(place)), place, strict=True)) + f" (index {place})"
