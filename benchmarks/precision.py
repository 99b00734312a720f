"""Coverage of the intervals that `precision` gives: 50 heads of SmolLM2-135M whose exact value is known, 200 draws.

    GEOATTN_MODELS=FOLDER GEOATTN_DATA=FOLDER python -m benchmarks precision      # some minutes

All edges of the heads are solved once. A draw is that of a profile: the lens of curvature chooses edges by its seed and
its rule, and looks their values up instead of solving them again. ``coverage`` is the share of (head, draw) whose
interval holds the exact distance to one, ``lowest_head`` that of the head with the lowest share, ``half_width`` the
largest half-width, and ``edges`` the mean number of edges of a head.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

TOKENS, LAYERS, HEADS, DRAWS = 129, tuple(range(0, 30, 3)), (0, 2, 4, 6, 8), 200


class Known:
    """Known curvatures of wanted edges, with the names that the lens reads."""

    max_gap = 0.0

    def __init__(self, kappa: np.ndarray, wanted: np.ndarray) -> None:
        self._places = np.argwhere(np.triu(wanted, 1) & np.isfinite(kappa))
        self._columns = {"kappa": kappa[tuple(self._places.T)], "status": np.zeros(len(self._places), dtype=np.uint8)}

    def places(self) -> np.ndarray:
        """Head, i, j."""
        return self._places

    def column(self, name: str) -> np.ndarray:
        """By place."""
        return self._columns[name]


def run() -> dict[str, Any]:
    """A row for each precision, for one sample and for eight that share it."""
    attention = _maps()
    import geoattn as ga

    exact = ga.ollivier_ricci(attention).kappa
    return {
        "heads": len(attention), "tokens": TOKENS, "draws": DRAWS, "level": 0.95,
        "rows": [_row(attention, exact, p, samples) for p in (0.05, 0.02) for samples in (1, 8)],
    }  # fmt: skip


def _maps() -> np.ndarray:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import geoattn as ga

    folder = Path(os.environ["GEOATTN_MODELS"]) / "smollm2-135m"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    text = "\n".join(ga.load_data("imdb", split="test", limit=8).texts or ())
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids[:, :TOKENS]
    with torch.no_grad(), ga.capture(model) as record:
        model(input_ids=ids)
    return np.concatenate([record[layer].attention()[0, list(HEADS)].numpy() for layer in LAYERS])


def _row(attention: np.ndarray, exact: np.ndarray, precision: float, samples: int) -> dict[str, Any]:
    """``samples`` copies of the maps with draws of their own stand for samples: the exact value is the same."""
    import torch

    from geoattn.graph.convention import Convention
    from geoattn.profiles.lenses.curvature import CurvatureLens
    from geoattn.profiles.pieces import Piece
    from geoattn.profiles.precision import Precision

    heads, n = attention.shape[:2]
    upper = np.triu(np.isfinite(exact), 1)
    truth = np.array([1 - exact[k][upper[k]].mean() for k in range(heads)])

    class Lookup(CurvatureLens):
        def _solve(self, attention: Any, valid: Any, edges: Any, state: Any) -> Any:
            return Known(exact[attention.amax((1, 2)).long().numpy() - 1], edges)

    marks = torch.from_numpy(upper * np.arange(1.0, heads + 1)[:, None, None])  # the lens asks which edges are there
    held, widest, edges = np.zeros(heads), 0.0, 0
    for seed in range(DRAWS):
        lens = Lookup(Convention.of("markov"), Precision(precision, 0.95, samples), seed=seed)
        piece = Piece(
            marks.expand(samples, -1, -1, -1), np.ones((samples, heads, n), dtype=bool), slice(0, samples),
            slice(0, heads), np.arange(samples), 0, 0, heads, None,
        )  # fmt: skip
        state = lens.see(piece)
        (total, count), _ = state.means.estimate("distance_to_one")
        widths = np.array([state.error.half_width(slice(k, k + 1), 0.95) for k in range(heads)])
        held += np.abs(total / count - truth) <= widths
        widest = max(widest, float(widths.max()))
        edges += state.values
    row = {
        "precision": precision, "samples": samples, "coverage": round(float(held.mean() / DRAWS), 4),
        "lowest_head": float(held.min() / DRAWS), "half_width": round(widest, 5),
        "edges": round(edges / DRAWS / heads, 1),
    }  # fmt: skip
    print(row, flush=True)
    return row
