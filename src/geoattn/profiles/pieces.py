"""The maps of one attention call, piece by piece, as the lenses take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call

__all__ = ["SINKS", "Piece", "pieces", "with_sink"]

#: What can be done with rows that sum to less than one: see `profile`.
SINKS = ("refuse", "node", "renormalise")

_PIECE_BYTES = 64 << 20  # of the maps of a piece in their own precision
_ROWS_BYTES = 16 << 20  # of the rows of them that are built at once


@dataclass(frozen=True, eq=False)
class Piece:
    """Maps of some samples and heads of one attention call, as a lens takes them.

    ``attention`` (b, h, n, n) are the maps, ``valid`` (b, h, n) is True for tokens of the graph. ``layer`` and
    ``numbers`` (b,) are the numbers of the layer and of the samples; windows of one image have one number. ``samples``
    and ``heads`` say which part of ``call`` it is. The layer has ``head_count`` heads. ``first`` is the number of the
    first row of the piece among all rows of the data.

    Examples
    --------
    >>> import geoattn as ga
    >>> class Diagonal(ga.profiles.MeanLens):
    ...     name = "diagonal"
    ...
    ...     def measure(self, piece):
    ...         self.shapes = tuple(piece.attention.shape), piece.valid.shape, piece.head_count
    ...         own = piece.attention.diagonal(dim1=-2, dim2=-1).cpu().numpy() * piece.valid
    ...         return ga.profiles.Moments(piece.valid.sum(-1), {"own": own.sum(-1)})
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    >>> lens = Diagonal()
    >>> profile = ga.profile(model, digits, lenses=lens)
    >>> lens.shapes
    ((2, 1, 17, 17), (2, 1, 17), 1)
    """

    attention: Tensor
    valid: Bool[np.ndarray, "b h n"]
    samples: slice
    heads: slice
    numbers: Int[np.ndarray, " b"]
    layer: int
    first: int
    head_count: int
    call: Call


def pieces(
    call: Call, content: Bool[Tensor, "b n"] | None, *, numbers: Int[np.ndarray, " b"], layer: int, first: int,
    sink: str = "refuse",
) -> Iterator[Piece]:  # fmt: skip
    """Pieces that keep memory small: whole samples if they fit, else groups of heads.

    With ``content`` given, the other tokens leave the graph and each row is divided by what remains of it: the weights
    given that attention goes to content. A row that gives nothing to content is a token outside the graph. ``numbers``
    are those of the samples of the call, ``first`` is that of its first row. ``sink`` says what becomes of rows that
    sum to less than one: a further token takes the rest, or they are divided by their sum.
    """
    b, h, n, m = call.shape
    per_map = n * m * 4
    step = max(1, _PIECE_BYTES // (per_map * h))
    heads = h if step > 1 or per_map * h <= _PIECE_BYTES else max(1, _PIECE_BYTES // per_map)
    valid = call.valid.cpu() if content is None else call.valid.cpu() & content
    for start in range(0, b, step):
        samples = slice(start, min(b, start + step))
        for head in range(0, h, heads):
            some = slice(head, min(h, head + heads))
            attention = _build(call, samples, some)
            keep = valid[samples][:, None].expand(-1, some.stop - some.start, -1)
            if content is not None:
                attention, keep = _given_content(attention, keep.to(attention.device))
            attention, keep = with_sink(attention, keep.to(attention.device), sink)
            yield Piece(attention, keep.cpu().numpy(), samples, some, numbers[samples], layer, first + start, h, call)


def _build(call: Call, samples: slice, heads: slice) -> Tensor:
    """The maps, on the device of the model; long ones by blocks of rows, which saves copies of the whole."""
    b, h, n, m = samples.stop - samples.start, heads.stop - heads.start, *call.shape[2:]
    step = max(1, _ROWS_BYTES // (b * h * m * 4))
    first = call.attention(sample=samples, head=heads, rows=slice(0, min(n, step))).detach()
    if step >= n:
        return first
    whole = first.new_empty((b, h, n, m))
    whole[:, :, :step] = first
    for start in range(step, n, step):
        rows = slice(start, min(n, start + step))
        whole[:, :, rows] = call.attention(sample=samples, head=heads, rows=rows).detach()
    return whole


def _given_content(attention: Tensor, keep: Bool[Tensor, "b h n"]) -> tuple[Tensor, Bool[Tensor, "b h n"]]:
    weights = attention.double() * keep[:, :, None, :] * keep[:, :, :, None]
    sums = weights.sum(-1, keepdim=True)
    alive = keep & (sums[..., 0] > 0)
    if not torch.equal(alive, keep):  # a token without a row cannot be a column either; once is enough in practice
        return _given_content(attention, alive)
    return weights / sums.clamp_min(torch.finfo(torch.float64).tiny), keep


def with_sink(
    attention: Tensor, keep: Bool[Tensor, "b h n"], sink: str
) -> tuple[Float[Tensor, "b h m m"], Bool[Tensor, "b h m"]]:
    """Rows that sum to one, with the mass of the sink on a last token of its own or divided out."""
    sums = attention.sum(-1, keepdim=True, dtype=torch.float64)
    slack = 1e-5 if attention.dtype in (torch.float32, torch.float64) else 8 * torch.finfo(attention.dtype).eps
    kept = torch.where(keep, sums[..., 0], 1.0)
    if not bool(kept.isfinite().all()) or bool((1 - kept <= slack).all()):
        return attention, keep  # nothing goes elsewhere, or the lenses will name what is not finite
    if sink == "refuse":
        least = float(kept.min())
        raise GeoattnError(
            f"rows of attention sum to {least:.3g} at the least: the rest goes to a sink that is no token; give"
            " sink='node' to make it one, or sink='renormalise' to divide the rows by their sums."
        )
    weights, sums = (torch.where(keep[..., None], values, 0.0) for values in (attention.double(), sums))
    if sink == "renormalise":
        return weights / torch.where(sums > 0, sums, 1.0), keep & (sums[..., 0] > 0)
    weights = torch.nn.functional.pad(weights, (0, 1, 0, 1))
    weights[..., :-1, -1] = ((1 - sums[..., 0]) * keep).clamp_min(0.0)
    weights[..., -1, -1] = 1.0
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return weights, torch.nn.functional.pad(keep, (0, 1), value=True)
