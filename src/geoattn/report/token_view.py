"""Section: tokens of the model on the sphere, layer by layer, beside the flow that starts at the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.few_threads import few_threads
from geoattn.dynamics.sphere_view import sphere_view
from geoattn.dynamics.token_flows import TokenFlow
from geoattn.profiles.examples import Example
from geoattn.report.escaping import visible
from geoattn.report.models import Models
from geoattn.report.section import Control, Figure, Section, key_of
from geoattn.report.templates import render
from geoattn.report.wording import number, percent

__all__ = ["UNIT", "flow_scene", "token_section", "token_view"]

_FRAMES = 41  # of the flow
_MOST_TOKENS = 400  # in the picture
UNIT = 1e-3


def token_view(models: Models) -> Section | None:
    """The section; None when no flow was given."""
    shown = [
        (models.names[m], flow, models.profiles[m].examples) for m, flow in enumerate(models.flows) if flow is not None
    ]
    return token_section(shown) if shown else None


def token_section(shown: Sequence[tuple[str, TokenFlow, Sequence[Example]]]) -> Section:
    """Of (name of the model, its flow, examples in which the labels of the tokens may be found)."""
    cosine: dict[str, Any] = {}
    cosines: dict[str, Any] = {}
    curvature: dict[str, Any] = {}
    scenes = []
    for k, (name_of_model, flow, examples) in enumerate(shown):
        cosine[key_of(k)] = _curves(flow, flow.model.mean_cosine, flow.flow.mean_cosine, "mean cosine", (None, 1.02))
        cosines[key_of(k)] = _histograms(flow)
        for name in flow.model.curvature:
            sides = flow.model.curvature[name], flow.flow.curvature[name]
            curvature[key_of(k, name)] = _curves(flow, *sides, "mean curvature", (None, 1.02))
        scenes.append(_scene(name_of_model, flow, examples))
    conventions = [(name, name) for name in shown[0][1].model.curvature]
    controls = (
        Control("model", "Model", tuple((str(k), name) for k, (name, _, _) in enumerate(shown))),
        Control("convention", "Convention", tuple(conventions)),
    )
    figures = (
        Figure(
            "cosine", "How close the tokens are", cosine, ("model",),
            note="Mean cosine of two tokens. The flow is taken at one unit of time per layer.",
        ),
        Figure(
            "cosines", "Cosines of all pairs", cosines, ("model",),
            note="Share of the pairs, on a scale of powers of ten.",
        ),
        Figure("curvature", "Curvature of attention", curvature, ("model", "convention"), wide=True),
    )  # fmt: skip
    flow = shown[0][1]
    lead = [
        "Attention moves tokens like particles: divided by their norms they are points of a sphere. Beside the model"
        " runs the flow of its own tokens under attention alone (queries, keys and values as they are, no MLP), at the"
        " temperature at which its rows have the entropy of the model's first layer (β ="
        f" {number(flow.settings['beta'])}).",
        *(_sentence(f" in {name}" if len(shown) > 1 else "", flow) for name, flow, _ in shown),
    ]
    data = {"scenes": scenes, "unit": UNIT}
    return Section("tokens", "Tokens on the sphere", lead, controls, figures, html=render("tokens.html.j2"), data=data)


def _sentence(of: str, flow: TokenFlow) -> str:
    first, last, end = flow.model.mean_cosine[0], flow.model.mean_cosine[-1], flow.flow.mean_cosine[-1]
    return (
        f"In this sample{of} the mean cosine of two tokens goes from {number(first)} in the first layer to"
        f" {number(last)} in the last; the flow reaches {number(end)} by then. The cosines of the last layer are"
        f" nearest to the flow at time {number(flow.nearest_time[-1])}, at a distance (W1) of"
        f" {number(flow.nearest[-1])}."
    )


def _curves(flow: TokenFlow, model: Any, other: Any, title: str, limits: tuple[Any, Any]) -> dict[str, Any]:
    x = list(range(len(flow.names)))
    lines = [
        {"type": "scatter", "mode": "lines+markers", "x": x, "y": np.round(np.asarray(y, dtype=float), 5), "name": name,
         "line": {"color": f"var(--series-{k})", "width": 1.8},
         "hovertemplate": f"{name}, layer %{{x}}<br>%{{y:.3f}}<extra></extra>"}
        for k, (name, y) in enumerate((("model", model), ("flow", other)), start=1)
    ]  # fmt: skip
    return {
        "data": lines,
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(x) <= 12 else 4},
            "yaxis": {"title": {"text": title}, "range": list(limits)} if limits[0] is not None else
            {"title": {"text": title}},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, "showlegend": True,
        },
    }  # fmt: skip


def _histograms(flow: TokenFlow) -> dict[str, Any]:
    bins = flow.model.histogram.shape[1]
    centres = np.round(-1 + (np.arange(bins) + 0.5) * 2 / bins, 4)
    sides = (
        ("first layer", flow.model.histogram[0], "var(--soft)"),
        ("last layer", flow.model.histogram[-1], "var(--series-1)"),
        ("flow at the end", flow.flow.histogram[-1], "var(--series-2)"),
    )
    lines = [
        {"type": "scatter", "mode": "lines+markers", "x": centres, "name": name,
         "y": np.where(y > 0, np.round(y, 6), np.nan), "line": {"color": colour, "width": 1.4}, "marker": {"size": 5},
         "hovertemplate": f"{name}<br>cosine %{{x:.2f}}: %{{y:.2%}} of the pairs<extra></extra>"}
        for name, y, colour in sides
    ]  # fmt: skip
    return {
        "data": lines,
        "layout": {
            "xaxis": {"title": {"text": "cosine"}, "range": [-1, 1]},
            "yaxis": {"title": {"text": "share of pairs"}, "type": "log", "tickformat": ".0e"},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, "showlegend": True,
        },
    }  # fmt: skip


def _scene(name: str, flow: TokenFlow, examples: Sequence[Example]) -> dict[str, Any]:
    """Points of both paths, as whole numbers; the same axes for both. The flow is the one that was measured."""
    tokens, run = flow.model.tokens, flow.run
    within = int((run.t <= max(1.0, float(flow.t[-1])) + 1e-9).sum())
    frames = torch.linspace(0, within - 1, min(_FRAMES, within)).round().long()
    with few_threads(0):  # a picture of a few tokens
        (model, moving), held = sphere_view(tokens, run.tokens[frames])
    labels = [str(i) for i in range(tokens.shape[1])]
    example = next((e for e in examples if e.sample == flow.settings["sample"]), None)
    if example is not None and sum(example.valid) == len(labels):
        labels = [visible(token, 24) for token, real in zip(example.tokens, example.valid, strict=True) if real]
    return {
        "model": name,
        "labels": labels[:_MOST_TOKENS],
        "layers": _whole(model),
        "flow": _whole(moving),
        "t": [round(float(t), 4) for t in run.t[frames]],
        "held": percent(held),
    }


def flow_scene(name: str, run: Any, index: int = 0) -> dict[str, Any]:
    """The points of a trajectory or of a geodesic alone; of several runs the one with the given number."""
    tokens = run.tokens
    if tokens.ndim > 3:
        tokens = tokens.flatten(1, -3)[:, index]
    with few_threads(0):
        (moving,), held = sphere_view(tokens)
    return {
        "model": name, "labels": [str(i) for i in range(tokens.shape[1])][:_MOST_TOKENS], "layers": None,
        "flow": _whole(moving), "t": [round(float(t), 4) for t in run.t], "held": percent(held),
    }  # fmt: skip


def _whole(points: Tensor) -> list[list[int]]:
    """x, y, z of each token, one after the other, for each moment."""
    return (points[:, :_MOST_TOKENS].reshape(len(points), -1) / UNIT).round().int().tolist()
