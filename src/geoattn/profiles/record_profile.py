"""One sample of a record as a small profile, to be looked at: no model runs again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention.call import Call
from geoattn.graph.convention import Convention
from geoattn.profiles.batches import Batch
from geoattn.profiles.examples import Examples
from geoattn.profiles.lens import LENSES, LensSettings
from geoattn.profiles.pieces import Piece, with_sink
from geoattn.profiles.profiling import finish
from geoattn.profiles.result import Profile
from geoattn.profiles.run import Run, Viewer, merge_into, take_shown
from geoattn.profiles.special import Special

__all__ = ["record_profile"]

_ALL_EDGES, _SOME_EDGES = 65, 64


def record_profile(
    calls: Sequence[Call],
    sample: int = 0,
    *,
    tokens: Sequence[str] | None = None,
    convention: str | Convention = "markov",
) -> Profile:
    """Curvature, weights and sink mass of each head on one sample, and its edges; ``tokens`` are their labels.

    Maps of more than 65 tokens have 64 edges drawn. Rows that sum to less than one are divided by their sums.
    """
    started = time.perf_counter()
    chosen = [call for call in calls if call.kind == "self" and call.shape[2] == call.shape[3] >= 2]
    if not chosen:
        raise GeoattnError("there is nothing to show: no self-attention over two or more tokens in this record.")
    count = chosen[0].shape[0]
    if not isinstance(sample, int) or not 0 <= sample < count:
        raise GeoattnError(f"the record has samples 0 to {count - 1}; got {sample!r}.")
    rule = Convention.of(convention)
    edges: Any = "all" if max(call.shape[2] for call in chosen) <= _ALL_EDGES else _SOME_EDGES
    settings = LensSettings(None, None, (rule,), edges, None, 0, 2, 1)
    lenses: list[Any] = [lens for name in ("curvature", "weights", "sink_mass") for lens in LENSES[name](settings)]
    lenses[0].showing = 1
    run = Run(Viewer(nn.Identity(), None, Special(False), lenses, Examples(1)), None)
    batch = Batch((), {}, 1, None, None)
    for call in chosen:
        layer = run.layers.setdefault((call.name, call.visit * 1000 + call.part), len(run.layers))
        attention, keep = with_sink(
            call.attention(sample=sample).detach(), call.valid[sample : sample + 1, None].expand(-1, call.shape[1], -1),
            "renormalise",
        )  # fmt: skip
        part = slice(sample, sample + 1)
        piece = Piece(
            attention, keep.cpu().numpy(), part, slice(0, call.shape[1]), np.zeros(1, dtype=np.int64), layer, 0,
            call.shape[1], call,
        )  # fmt: skip
        solved: dict[int, Any] = {}
        for k, lens in enumerate(lenses):
            state = lens.see(piece)
            solved = solved or take_shown(state)
            merge_into(run.states, (layer, k), lens, state)
        run.examples.take(piece, batch, 0, solved)
        run.maps += call.shape[1]
    run.samples = 1
    made = finish(run, (rule,), 0.95, {
        "model": "record", "data": f"sample {sample}", "tokens": "all", "sink": "renormalise", "edges": edges,
        "precision": None, "lenses": ["curvature", "weights", "sink_mass"], "smoothness_samples": 0, "seed": 0,
        "resamplings": 2, "level": 0.95, "threads": 0,
    }, started)  # fmt: skip
    return made if tokens is None else replace(made, examples=tuple(_named(e, tokens) for e in made.examples))


def _named(example: Any, tokens: Sequence[str]) -> Any:
    if len(tokens) != len(example.tokens):
        raise GeoattnError(f"tokens must name each of the {len(example.tokens)} tokens; got {len(tokens)}.")
    return replace(example, tokens=tuple(map(str, tokens)))
