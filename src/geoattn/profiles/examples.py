"""A few samples kept whole, to be looked at: tokens, picture, edges with weight and curvature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from geoattn._core.display import Displayed
from geoattn.profiles.batches import Batch
from geoattn.profiles.pieces import Piece

__all__ = ["Example", "Examples", "edges_to_show"]

_WHOLE_UP_TO = 24  # tokens: smaller graphs are kept with all their edges
_STRONGEST = 3  # edges per token of the larger ones
_ALL_UP_TO = 65  # tokens: of larger graphs only a few edges are solved for an example
_FEW, _FEWER, _LONG = 16, 8, 512  # edges of a head, of graphs of more than 65 and of more than 512 tokens
_MOST_NEGATIVE = 20
_LONGEST_SIDE = 96  # pixels of a kept picture


@dataclass(frozen=True, eq=False, repr=False)
class Example(Displayed):
    """One sample. ``edges[layer]`` (e, 3) holds head, i, j; ``weights`` S_ij and ``kappa`` belong to them.

    ``tokens`` are labels, one per token. ``image`` (height, width, channel) belongs to ``grid`` (rows, columns, number
    of tokens before the patches). Of graphs with more than 24 tokens the strongest edges are kept, three per token, and
    the most negative ones; of graphs with more than 65 tokens the 16 strongest (8 with more than 512) and the most
    negative of those that the profile has drawn. ``moves[layer]`` (h, n)
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

    def __init__(self, wanted: int, tokenizer: Any = None) -> None:
        self.wanted, self._tokenizer = wanted, tokenizer
        self._parts: dict[int, dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]] = {}
        self._heads: dict[int, dict[str, Any]] = {}
        self._moves: dict[int, dict[int, np.ndarray]] = {}

    def take(
        self, piece: Piece, batch: Batch, offset: int, solved: dict[int, tuple[np.ndarray, np.ndarray]]
    ) -> None:  # fmt: skip
        """The maps of the wanted samples, whose edges the lens of the first convention has ``solved``.

        ``solved`` has places (e, 3), as head, i, j, and curvatures by number of the sample. ``offset`` is the number of
        the first sample of the batch.
        """
        samples, layer = piece.numbers, piece.layer
        if len(samples) != len(np.unique(samples)):
            return  # windows: a part of an image is not a picture
        for k, sample in enumerate(samples):
            if sample >= self.wanted or int(sample) not in solved:
                return
            n = piece.valid.shape[-1]
            if sample not in self._heads:
                self._heads[sample] = self._describe(batch, int(sample) - offset, n, piece.valid[k].any(axis=0))
            elif len(self._heads[sample]["tokens"]) != n:
                continue  # another sequence than that of the first layer
            found = _shown_edges(piece, k, *solved[int(sample)])
            self._parts.setdefault(sample, {}).setdefault(layer, []).append(found)

    def take_moves(self, sample: int, layer: int, moves: np.ndarray) -> None:
        """(h, n) worst moves of the heads of a layer, if the sample is one of those that are kept."""
        if sample in self._heads and len(self._heads[sample]["tokens"]) == moves.shape[1]:
            self._moves.setdefault(sample, {})[layer] = moves

    def empty(self) -> "Examples":
        """With the same wishes, and nothing in it."""
        return Examples(self.wanted, self._tokenizer)

    def none(self) -> "Examples":
        """That wants no sample."""
        return Examples(0, self._tokenizer)

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


def edges_to_show(attention: Tensor, valid: Bool[np.ndarray, "h n"]) -> Bool[np.ndarray, "h n n"]:
    """Which edges of some maps an example shows: all of small graphs, of larger ones the strongest of each head."""
    h, n = valid.shape
    wanted = np.zeros((h, n, n), dtype=bool)
    for head, mask in enumerate(wanted):  # one by one: a long map is not held several times
        real = torch.from_numpy(valid[head]).to(attention.device)
        weights = attention[head].double()
        weights = (weights + weights.T).mul_(real[:, None] & real).triu_(1)
        if n <= _ALL_UP_TO:
            mask[:] = (weights > 0).cpu().numpy()
        else:  # so many and no more: equal weights are no reason to solve them all
            best, place = weights.flatten().topk(min(_count(n), n * n))
            mask.ravel()[place[best > 0].cpu().numpy()] = True
    return wanted


def _count(n: int) -> int:
    """How many of the strongest edges of a head an example keeps."""
    return n * _STRONGEST if n <= _ALL_UP_TO else _FEW if n <= _LONG else _FEWER


def _shown_edges(
    piece: Piece, k: int, place: np.ndarray, kappa: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Edges, weights and curvatures of sample k that an example keeps, of those that are solved."""
    n = piece.valid.shape[-1]
    place, kappa = place[place[:, 1] < place[:, 2]], kappa[place[:, 1] < place[:, 2]]
    place, first = np.unique(place, axis=0, return_index=True)  # what is shown may be drawn once more, and is in order
    kappa = kappa[first]
    inside = place - np.array([piece.heads.start, 0, 0])
    head, i, j = torch.from_numpy(inside).T
    maps = piece.attention[k]
    weights = ((maps[head, i, j].double() + maps[head, j, i].double()) / 2).cpu().numpy()
    if n > _WHOLE_UP_TO:
        chosen = np.zeros(len(place), dtype=bool)
        for own in (np.flatnonzero(inside[:, 0] == head) for head in range(len(maps))):
            chosen[own[np.argsort(-weights[own], kind="stable")[: _count(n)]]] = True  # the strongest are all solved
            known = own[np.isfinite(kappa[own])]
            chosen[known[np.argsort(kappa[known])[:_MOST_NEGATIVE]]] = True
        place, weights, kappa = place[chosen], weights[chosen], kappa[chosen]
    return place, weights, kappa


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
