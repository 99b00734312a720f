"""The mean curvature of a model's last attention layer on some inputs, under each convention."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.attention.session import capture
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.studies.engine.contrasts import CONVENTIONS

__all__ = ["mean_curvature"]


@torch.no_grad()
def mean_curvature(model: Any, batches: Iterable[Any], edges: int) -> dict[str, float | None]:
    """By convention: the mean over inputs of the mean over the edges of the last layer, ``edges`` drawn from each head.

    A batch holds one input, as a dictionary of arguments or as one tensor. An input whose edges have no curvature is
    left out; None where that is so for all. The edges of input k are drawn with seed k.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=2).pixels()
    >>> sorted(mean_curvature(ga.load_model("lvit-digits"), digits[:, None], 8))
    ['grc-0.5', 'grc-0.6', 'hop', 'markov']
    """
    found: dict[str, list[float]] = {name: [] for name in CONVENTIONS}
    for k, batch in enumerate(batches):
        with capture(model) as record:
            model(**batch) if isinstance(batch, dict) else model(batch)
        for name in CONVENTIONS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DegenerateCurvatureWarning)
                values = ollivier_ricci(record[-1].attention(), name, edges=edges, threads=1, seed=k).values()
            if len(values):
                found[name].append(float(values.mean()))
    return {name: float(np.mean(values)) if values else None for name, values in found.items()}
