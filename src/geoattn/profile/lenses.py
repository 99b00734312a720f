"""What is measured on each map: a lens turns a piece of a call into counts and totals by sample and head."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from geoattn.capture.call import Call
from geoattn.capture.maps import allowed_entries
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.result import Curvature
from geoattn.errors import DegenerateCurvatureWarning
from geoattn.graph.convention import Convention
from geoattn.profile.histogram import EDGES, count_values
from geoattn.profile.pieces import Piece
from geoattn.profile.tally import Moments
from geoattn.spectrum.eigenvalues import spectrum

__all__ = ["ALL_EDGES_UP_TO", "LENSES", "ON_REQUEST", "CurvatureLens", "Extremes", "spectrum_lens", "weights_lens"]

#: What `profile` measures, and what it measures when asked to, because it costs more.
LENSES = ("curvature", "weights", "spectrum")
ON_REQUEST = ("smoothness",)

#: With edges="auto" all edges of maps of at most so many tokens are solved, and SAMPLE of those of larger ones.
ALL_EDGES_UP_TO = 65
SAMPLE = 512


@dataclass(eq=False)
class Extremes:
    """What cannot be a mean: the histogram by head, the extremes, the certificate."""

    histogram: np.ndarray
    low: np.ndarray
    high: np.ndarray
    square: np.ndarray
    max_gap: float = 0.0
    edges: int = 0
    values: int = 0
    statuses: dict[str, int] = field(default_factory=dict)

    @classmethod
    def none(cls, h: int) -> "Extremes":
        """Of h heads before anything was seen."""
        nothing = np.full(h, np.nan)
        return cls(np.zeros((h, len(EDGES) - 1), dtype=np.int64), nothing, nothing.copy(), np.zeros(h))

    def add(self, other: "Extremes") -> None:
        """Both together."""
        self.histogram += other.histogram
        np.fmin(self.low, other.low, out=self.low)
        np.fmax(self.high, other.high, out=self.high)
        self.square += other.square
        self.max_gap = max(self.max_gap, other.max_gap)
        self.edges += other.edges
        self.values += other.values
        for status, number in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + number


class CurvatureLens:
    """Exact Ollivier-Ricci curvature under one convention."""

    def __init__(self, convention: Convention, edges: Any, threads: int | None, seed: int) -> None:
        self.convention, self._edges, self._threads, self._seed = convention, edges, threads, seed
        self.layers: dict[int, Extremes] = {}
        self.notes: dict[str, None] = {}

    @property
    def settings(self) -> tuple[Convention, Any, int]:
        """Convention, edges and seed."""
        return self.convention, self._edges, self._seed

    def measure(self, piece: Piece, layer: int, first: int, h: int) -> Moments:
        """Counts and totals over the edges of each map. ``first`` is the number of the first sample of the piece."""
        b, heads, _ = piece.valid.shape
        seen = Extremes.none(h)
        count, total, negative = np.zeros((b, heads)), np.zeros((b, heads)), np.zeros((b, heads))
        for start, result in self._solve(piece, layer, first):
            place, kappa = result.places(), result.column("kappa")
            good = np.isfinite(kappa)
            sample, head, kappa = place[good, 0] + start, place[good, 1], kappa[good]
            cell = sample * heads + head
            size = b * heads
            count += np.bincount(cell, minlength=size).reshape(b, heads)
            total += np.bincount(cell, kappa, minlength=size).reshape(b, heads)
            negative += np.bincount(cell, kappa < 0, minlength=size).reshape(b, heads)
            self._remember(seen, kappa, head + piece.heads.start, h)
            seen.max_gap = max(seen.max_gap, result.max_gap)
            seen.edges += result.edges
            seen.values += len(kappa)
            for status, number in result.summary_of_status().items():
                seen.statuses[status] = seen.statuses.get(status, 0) + number
        self.keep(layer, seen)
        return Moments(count, {"mean": total, "distance_to_one": count - total, "negative_share": negative})

    def keep(self, layer: int, seen: Extremes) -> None:
        """Add what was seen of a piece of a layer."""
        self.layers.setdefault(layer, Extremes.none(len(seen.low))).add(seen)

    def _remember(self, seen: Extremes, kappa: np.ndarray, head: np.ndarray, h: int) -> None:
        seen.histogram += count_values(kappa, head, h)
        seen.square += np.bincount(head, kappa**2, minlength=h)
        low, high = np.full(h, np.nan), np.full(h, np.nan)
        np.fmin.at(low, head, kappa)
        np.fmax.at(high, head, kappa)
        np.fmin(seen.low, low, out=seen.low)
        np.fmax(seen.high, high, out=seen.high)

    def _solve(self, piece: Piece, layer: int, first: int) -> Iterator[tuple[int, Curvature]]:
        """(first sample of the part, its curvature)."""
        n = piece.valid.shape[-1]
        edges = self._edges
        if edges == "auto":
            edges = "all" if n <= ALL_EDGES_UP_TO else SAMPLE
        if edges == "all":
            yield 0, self._curvature(piece.attention, piece.valid, "all", 0)
            return
        for s in range(len(piece.valid)):  # one by one: the draw depends on the sample, not on the batch
            seed = int(np.random.SeedSequence([self._seed, layer, first + s, piece.heads.start]).generate_state(1)[0])
            yield s, self._curvature(piece.attention[s : s + 1], piece.valid[s : s + 1], edges, seed % 2**31)

    def _curvature(self, attention: torch.Tensor, valid: np.ndarray, edges: Any, seed: int) -> Curvature:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = ollivier_ricci(
                attention, self.convention, edges=edges, mask=valid, threads=self._threads, seed=seed
            )
        for warning in caught:
            if issubclass(warning.category, DegenerateCurvatureWarning):
                self.notes[f"convention '{self.convention.name}' is degenerate on some maps"] = None
            else:
                warnings.warn(warning.message, warning.category, stacklevel=2)
        return result


def weights_lens(piece: Piece, call: Call) -> Iterator[tuple[str, Moments]]:
    r"""Of the weights themselves: row entropy :math:`-\sum_j A_{ij} \log A_{ij}` (nats), variance, weight on the token.

    The variance is the population variance over the entries that the mask allows between tokens of the graph.
    """
    weights = piece.attention.double().cpu()
    valid = torch.from_numpy(piece.valid)
    rows = valid.sum(-1).double()
    entropy = -(torch.special.xlogy(weights, weights).sum(-1) * valid).sum(-1)
    own = (weights.diagonal(dim1=-2, dim2=-1) * valid).sum(-1)
    pairs = valid[:, :, :, None] & valid[:, :, None, :]
    b, _, n, m = call.shape
    kept = call.kept
    allowed = None if kept is None else allowed_entries(kept.mask, n, m)
    if allowed is not None:
        shape = (b if allowed.shape[0] > 1 else 1, call.shape[1] if allowed.shape[1] > 1 else 1, n, m)
        allowed = allowed.expand(shape).cpu()
        allowed = allowed[piece.samples] if shape[0] > 1 else allowed
        allowed = allowed[:, piece.heads] if shape[1] > 1 else allowed
        pairs = pairs & allowed
    entries = pairs.sum((-1, -2)).double()
    mean = (weights * pairs).sum((-1, -2)) / entries
    variance = (((weights - mean[..., None, None]) * pairs) ** 2).sum((-1, -2)) / entries
    yield "rows", Moments(rows.numpy(), {"row_entropy": entropy.numpy(), "self_weight": own.numpy()})
    alive = (entries > 0).double()
    yield "maps", Moments(alive.numpy(), {"variance": torch.nan_to_num(variance, nan=0.0).numpy()})


def spectrum_lens(piece: Piece, threads: int | None) -> Moments:
    """Of the Markov chain: second eigenvalue (modulus), smallest real part, Dobrushin coefficient, irreversibility."""
    b, h, n = piece.valid.shape
    alive = piece.valid.sum(-1) > 1
    names = ("second_eigenvalue", "smallest_eigenvalue", "dobrushin", "irreversibility")
    totals = {name: np.zeros((b, h)) for name in names}
    if alive.any():
        maps = piece.attention.reshape(b * h, n, n)[torch.from_numpy(alive.reshape(-1)).to(piece.attention.device)]
        found = spectrum(maps, mask=piece.valid[alive], threads=threads)
        values = (found.second, found.smallest_real, found.dobrushin, found.irreversibility)
        for name, value in zip(names, values, strict=True):
            totals[name][alive] = value
    return Moments(alive.astype(np.float64), totals)
