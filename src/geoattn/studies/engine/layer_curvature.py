"""Curvature of the first and the last attention layer of a model, under every preset, as plain numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.attention.call import Call
from geoattn.attention.session import capture
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.result import distance_to_one
from geoattn.perturbations.classifier_accuracy import evaluating
from geoattn.profiles.lenses.curvature import ALL_EDGES_UP_TO, SAMPLE
from geoattn.statistics.sample_size import effective_size
from geoattn.statistics.trimming import trim
from geoattn.statistics.unimodality import bimodality

__all__ = ["BINS", "PRESETS", "describe", "layer_curvature"]

#: The conventions under which a claim about curvature is judged.
PRESETS = ("markov", "grc-0.5", "grc-0.6", "hop")
#: Borders of the bins of the stored histograms; the first bin also takes what lies below.
BINS: Float[np.ndarray, " k"] = np.round(np.linspace(-1.0, 1.0, 81), 3)
_RESAMPLES = 200  # of the dip; p is at least 0.005


def layer_curvature(model: nn.Module, batches: Iterable[Any], *, seed: int = 0) -> dict[str, dict[str, Any]]:
    """``{"first": {preset: numbers}, "last": {preset: numbers}}`` over all heads and samples; see `describe`.

    Maps of at most 65 tokens with all edges, of larger ones 512 edges drawn by ``seed``, as in `profile`.
    """
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    first = 0
    with evaluating(model), torch.no_grad():
        for batch in batches:
            with capture(model) as record:
                model(batch) if isinstance(batch, torch.Tensor) else model(**batch)
            for layer, call in (("first", record[0]), ("last", record[-1])):
                for preset in PRESETS:
                    values, sample = _curvatures(call, preset, seed)
                    found.setdefault((layer, preset), []).append((values, sample + first))
            first += record[0].shape[0]
    result: dict[str, dict[str, Any]] = {"first": {}, "last": {}}
    for (layer, preset), parts in found.items():
        values, sample = (np.concatenate(column) for column in zip(*parts, strict=True))
        result[layer][preset] = describe(values, sample)
    return result


def _curvatures(call: Call, preset: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Curvature of each edge, and the sample it belongs to."""
    edges: Any = "all" if call.shape[-1] <= ALL_EDGES_UP_TO else SAMPLE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the spread is among the numbers
        valid = call.valid[:, None].expand(call.shape[:3])
        result = ollivier_ricci(call.attention(), preset, edges=edges, mask=valid, threads=1, seed=seed)
    kappa, place = result.column("kappa"), result.places()
    good = np.isfinite(kappa)
    return kappa[good], place[good, 0]


def describe(values: Float[np.ndarray, " e"], sample: Int[np.ndarray, " e"]) -> dict[str, Any]:
    """Plain numbers of a distribution of curvature values.

    ``distance_to_one``, ``mean``, ``std``, quantiles ``q05``, ``q50``, ``q95``, ``negative_share``; the same with
    ``trimmed_`` in front for the values without zeros and outliers (see `trim`), and the shares that this leaves out.
    ``dip``, ``dip_p``: one mode against more, for as many ``independent`` values as the samples are worth, rounded down
    to a power of two; None where all values are equal. ``histogram``: counts by `BINS`.
    """
    kept = trim(values)
    numbers: dict[str, Any] = {"values": len(values)}
    for prefix, part in (("", values), ("trimmed_", kept.values)):
        low, middle, high = map(float, np.quantile(part, [0.05, 0.5, 0.95]))
        numbers |= {
            f"{prefix}distance_to_one": distance_to_one(part), f"{prefix}mean": float(part.mean()),
            f"{prefix}std": float(part.std()), f"{prefix}q05": low, f"{prefix}q50": middle, f"{prefix}q95": high,
            f"{prefix}negative_share": float((part < 0).mean()),
        }  # fmt: skip
    numbers |= {"zero_share": kept.zero_share, "outlier_share": kept.outlier_share}
    place = np.clip(np.searchsorted(BINS, values + 1e-12, side="right") - 1, 0, len(BINS) - 2)
    numbers["histogram"] = np.bincount(place, minlength=len(BINS) - 1).tolist()
    return numbers | _modes(values, sample)


def _modes(values: np.ndarray, sample: np.ndarray) -> dict[str, Any]:
    if values.std() < 1e-6:  # rounding is all there is
        return {"dip": None, "dip_p": None, "independent": None}
    independent = min(effective_size(values, sample), 512) if len(np.unique(sample)) > 1 else 4
    independent = 2 ** int(np.log2(independent))  # few sizes: the null of the test is simulated once for each
    test = bimodality(values, independent=independent, resamples=_RESAMPLES)
    return {"dip": test.dip, "dip_p": test.p_value, "independent": independent}
