"""Section: the attention graph of a few samples, to be looked at."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from geoattn.profiles.examples import Example
from geoattn.report.escaping import visible
from geoattn.report.models import Models
from geoattn.report.section import Section
from geoattn.report.templates import render

__all__ = ["graph_section", "graph_view", "map_edges"]

_STRONGEST, _MOST_NEGATIVE = 160, 20  # edges of one map; more than a picture can show
_MOST_EDGES = 120_000  # in the page, over all examples: about 2 MB
_WEIGHT_UNIT, _KAPPA_UNIT = 1e-5, 1e-4


def graph_view(models: Models) -> Section | None:
    """The section; None when no profile kept an example with edges."""
    # Turn by turn, so that both models keep their first examples when not all of them fit.
    queue = sorted((e, m) for m, p in enumerate(models.profiles) for e in range(len(p.examples)))
    examples = [(m, models.profiles[m].examples[e], models.profiles[m].settings["heads"]) for e, m in queue]
    return graph_section(examples, models.names, models.profiles[0].conventions[0].name)


def graph_section(
    examples: Sequence[tuple[int, Example, Sequence[int]]], names: Sequence[str], convention: str, width: str = "weight"
) -> Section | None:
    """Of (number of the model, example, heads of each layer); ``width`` says what the width of an edge is."""
    shown: list[dict[str, Any]] = []
    room = _MOST_EDGES
    for m, one, heads in examples:
        example = _example(one, heads)
        size = sum(len(edges) // 4 for layer in example["edges"] for edges in layer)
        if size == 0 or size > room:
            continue
        room -= size
        example["model"] = m
        shown.append(example)
    if not shown:
        return None
    shown.sort(key=lambda x: x["model"])
    data = {"examples": shown, "weight_unit": _WEIGHT_UNIT, "kappa_unit": _KAPPA_UNIT, "models": list(names)}
    lead = [
        f"One sample, one head at a time, under the convention {convention}. Colour is curvature, with grey at 0; width"
        f" is {width}. Of a large graph the strongest edges and the most negative ones are kept.",
    ]
    return Section("graph", "The attention graph", lead, html=render("graph.html.j2"), data=data)


def map_edges(example: Example, layer: int, head: int) -> np.ndarray:
    """Places in ``example.edges[layer]`` of the edges of one head worth drawing, the strongest first."""
    own = np.flatnonzero(example.edges[layer][:, 0] == head)
    own = own[np.argsort(-example.weights[layer][own], kind="stable")]
    kept = np.zeros(len(own), dtype=bool)
    kept[:_STRONGEST] = True
    kappa = np.where(np.isfinite(example.kappa[layer][own]), example.kappa[layer][own], np.inf)
    kept[np.argsort(kappa, kind="stable")[:_MOST_NEGATIVE]] = True
    return own[kept]


def _example(example: Example, heads: Sequence[int]) -> dict[str, Any]:
    return {
        "sample": example.sample,
        "tokens": [visible(token, 24) for token in example.tokens],
        "valid": [int(v) for v in example.valid],
        "image": None if example.image is None or example.grid is None else _png(example.image),
        "shape": None if example.image is None else list(example.image.shape[:2]),
        "grid": example.grid,
        "edges": [[_flat(example, k, h) for h in range(heads[k])] for k in range(len(example.edges))],
    }


def _flat(example: Example, layer: int, head: int) -> list[int | None]:
    """i, j, weight, curvature of each edge, one after the other, in units that make short whole numbers."""
    flat: list[int | None] = []
    for e in map_edges(example, layer, head):
        _, i, j = example.edges[layer][e]
        kappa = example.kappa[layer][e]
        weight = round(float(example.weights[layer][e]) / _WEIGHT_UNIT)
        flat += [int(i), int(j), weight, round(float(kappa) / _KAPPA_UNIT) if np.isfinite(kappa) else None]
    return flat


def _png(image: np.ndarray) -> str:
    """A data URL."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    pixels = image[..., 0] if image.shape[2] == 1 else image
    imsave(buffer, pixels, format="png", cmap="gray", vmin=0, vmax=255)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
