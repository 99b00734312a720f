"""A few samples kept whole, to be looked at: tokens, picture, edges with weight and curvature."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from geoattn._core.display import Displayed
from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.graph.convention import Convention
from geoattn.profiles.batches import Batch
from geoattn.profiles.pieces import Piece

__all__ = ["Example", "Examples"]

_WHOLE_UP_TO = 24  # tokens: smaller graphs are kept with all their edges
_STRONGEST = 3  # edges per token of the larger ones
_ALL_UP_TO = 65  # tokens: of larger graphs only a few edges are solved for an example
_FEW = 16
_MOST_NEGATIVE = 20
_LONGEST_SIDE = 96  # pixels of a kept picture


@dataclass(frozen=True, eq=False, repr=False)
class Example(Displayed):
    """One sample. ``edges[layer]`` (e, 3) holds head, i, j; ``weights`` S_ij and ``kappa`` belong to them.

    ``tokens`` are labels, one per token. ``image`` (height, width, channel) belongs to ``grid`` (rows, columns, number
    of tokens before the patches). Of graphs with more than 24 tokens the strongest edges are kept, three per token, and
    the most negative ones; of graphs with more than 65 tokens the 16 strongest. ``moves[layer]`` (h, n)
    says how far each token moves in the direction that a head amplifies most, squares sum to one; empty unless the
    smoothness lens was asked for.
    """

    sample: int
    tokens: tuple[str, ...]
    valid: tuple[bool, ...]
    image: UInt8[np.ndarray, "h w c"] | None
    grid: tuple[int, int, int] | None
    edges: tuple[np.ndarray, ...]  # e differs from layer to layer, which a shape in the type could not say
    weights: tuple[np.ndarray, ...]
    kappa: tuple[np.ndarray, ...]
    moves: tuple[np.ndarray, ...] = ()


class Examples:
    """Collects the first samples while a profile streams."""

    def __init__(self, wanted: int, convention: Convention, tokenizer: Any, threads: int | None) -> None:
        self._wanted, self._convention, self._tokenizer, self._threads = wanted, convention, tokenizer, threads
        self._parts: dict[int, dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]] = {}
        self._heads: dict[int, dict[str, Any]] = {}
        self._moves: dict[int, dict[int, np.ndarray]] = {}

    def take(self, piece: Piece, batch: Batch, offset: int) -> None:
        """The maps of the wanted samples. ``offset`` is the number of the first sample of the batch."""
        samples, layer = piece.numbers, piece.layer
        if len(samples) != len(np.unique(samples)):
            return  # windows: a part of an image is not a picture
        for k, sample in enumerate(samples):
            if sample >= self._wanted:
                return
            n = piece.valid.shape[-1]
            if sample not in self._heads:
                self._heads[sample] = self._describe(batch, int(sample) - offset, n, piece.valid[k].any(axis=0))
            elif len(self._heads[sample]["tokens"]) != n:
                continue  # another sequence than that of the first layer
            found = self._edges(piece, k)
            self._parts.setdefault(sample, {}).setdefault(layer, []).append(found)

    def take_moves(self, sample: int, layer: int, moves: np.ndarray) -> None:
        """(h, n) worst moves of the heads of a layer, if the sample is one of those that are kept."""
        if sample in self._heads and len(self._heads[sample]["tokens"]) == moves.shape[1]:
            self._moves.setdefault(sample, {})[layer] = moves

    def empty(self) -> "Examples":
        """With the same wishes, and nothing in it."""
        return Examples(self._wanted, self._convention, self._tokenizer, self._threads)

    def none(self) -> "Examples":
        """That wants no sample."""
        return Examples(0, self._convention, self._tokenizer, self._threads)

    def absorb(self, other: "Examples") -> None:
        """Take what another one has of other samples."""
        self._parts |= other._parts
        self._heads |= other._heads
        self._moves |= other._moves

    def finish(self, layers: int) -> tuple[Example, ...]:
        """The examples, with an empty entry for layers that have none."""
        empty = (np.zeros((0, 3), dtype=np.int64), np.zeros(0), np.zeros(0))
        done = []
        for sample, parts in sorted(self._parts.items()):
            columns = [[np.concatenate(c) for c in zip(*parts.get(k, [empty]), strict=True)] for k in range(layers)]
            edges, weights, kappa = (tuple(column) for column in zip(*columns, strict=True))
            found = self._moves.get(sample, {})
            moves = tuple(found.get(k, np.zeros((0, 0))) for k in range(layers)) if found else ()
            head = self._heads[sample]
            done.append(Example(int(sample), **head, edges=edges, weights=weights, kappa=kappa, moves=moves))
        return tuple(done)

    def _edges(self, piece: Piece, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        attention = piece.attention[k].double().cpu().numpy()
        valid = piece.valid[k]
        both = valid[:, :, None] & valid[:, None, :]
        weights = np.where(both, attention, 0.0)
        weights = (weights + weights.swapaxes(-1, -2)) / 2
        n = weights.shape[-1]
        wanted = np.triu(weights > 0, 1)
        keep = n * _STRONGEST if n <= _ALL_UP_TO else _FEW
        if n > _WHOLE_UP_TO:
            ranked = np.where(wanted, weights, 0.0).reshape(len(weights), -1)
            strong = np.zeros(
                ranked.shape, dtype=bool
            )  # exactly so many: equal weights are no reason to solve them all
            np.put_along_axis(strong, np.argpartition(-ranked, keep - 1, axis=1)[:, :keep], True, axis=1)
            strong = strong.reshape(wanted.shape) & wanted
            solved = wanted if n <= _ALL_UP_TO else strong
        else:
            strong = solved = wanted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the profile notes it
            result = ollivier_ricci(attention, self._convention, edges=solved, mask=valid, threads=self._threads)
        place, kappa = result.places(), result.column("kappa")
        chosen = strong[tuple(place.T)]
        for head in range(len(weights)):
            own = np.flatnonzero((place[:, 0] == head) & np.isfinite(kappa))
            chosen[own[np.argsort(kappa[own])[:_MOST_NEGATIVE]]] = True
        place, kappa = place[chosen], kappa[chosen]
        strength = weights[tuple(place.T)]
        place = place + np.array([piece.heads.start, 0, 0])
        return place, strength, kappa

    def _describe(self, batch: Batch, k: int, n: int, valid: np.ndarray) -> dict[str, Any]:
        image, grid, tokens = None, None, [str(i) for i in range(n)]
        if batch.ids is not None and batch.ids.shape[1] == n:
            ids = batch.ids[k].tolist()
            tokens = list(map(str, self._tokenizer.convert_ids_to_tokens(ids) if self._tokenizer else ids))
        elif batch.images is not None:
            image = _picture(batch.images[k])
            grid = _grid(batch.images.shape[2], batch.images.shape[3], n)
            if grid is not None:
                rows, columns, leading = grid
                tokens = [["CLS", "token 1", "token 2"][i] if i < 3 else f"token {i}" for i in range(leading)]
                tokens += [f"row {i // columns + 1}, column {i % columns + 1}" for i in range(rows * columns)]
        return {"tokens": tuple(tokens), "valid": tuple(map(bool, valid)), "image": image, "grid": grid}


def _grid(height: int, width: int, n: int) -> tuple[int, int, int] | None:
    """Rows and columns of patches and the tokens before them: the patches keep the shape of the image."""
    for leading in range(min(n, 17)):
        count = n - leading
        columns = round((count * width / height) ** 0.5)
        if columns and count % columns == 0 and abs(count // columns * width - columns * height) < max(width, height):
            return count // columns, columns, leading
    return None


def _picture(image: Tensor) -> UInt8[np.ndarray, "h w c"]:
    """The image stretched to 0 ... 255, made smaller by leaving out pixels, grey or in three channels."""
    pixels = image.detach().float().cpu().numpy().transpose(1, 2, 0)
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
    step = -(-max(pixels.shape[:2]) // _LONGEST_SIDE)
    pixels = pixels[::step, ::step]
    low, high = float(pixels.min()), float(pixels.max())
    return np.round((pixels - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
