"""Section: how curvature is distributed, layer by layer (Figures 3 and 8 of the Ricci paper)."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.profiles.result import Profile
from geoattn.report.density import Grid, density, grid_of
from geoattn.report.escaping import plotly_text
from geoattn.report.estimates import Estimate, by_layer, of_row
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.templates import render
from geoattn.report.wording import interval, number, percent, share, with_interval

__all__ = ["distributions", "outline", "x_axis", "zero_line"]

_STATISTICS = (
    ("distance_to_one", "distance to one", "curvature"),
    ("mean", "mean curvature", "curvature"),
    ("negative_share", "share of negative edges", "curvature"),
    ("row_entropy", "entropy of the rows (nats)", "weights"),
    ("variance", "variance of the weights", "weights"),
    ("self_weight", "weight of a token on itself", "weights"),
)


def distributions(models: Models) -> Section:
    """The section."""
    ends: dict[str, Any] = {}
    ridges: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    for m, profile in enumerate(models.profiles):
        for convention in models.conventions:
            counts = [h.sum(axis=0) for h in profile.histograms[convention]]
            grid = grid_of(counts)
            values = by_layer(profile, "distance_to_one", convention)
            ends[key_of(m, convention)] = _ends(profile, counts, values, grid)
            ridges[key_of(m, convention)] = _ridges(profile, counts, values, grid)
    for statistic, label, lens in _STATISTICS:
        for convention in models.conventions:
            lines[key_of(convention, statistic)] = _lines(models, convention, statistic, label, lens)
    several = len(models.profiles) > 1
    statistic = models.control("statistic", "Line", [(s, label) for s, label, _ in _STATISTICS])
    figures = [
        Figure(
            "ends", "First and last layer", ends, ("model", "convention"),
            note="Density of the curvature of all edges, over all heads and samples. The distance to one is the"
            " Wasserstein distance to a point mass at 1.",
        ),
        Figure(
            "lines", "Layer by layer", lines, ("convention", "statistic"),
            note="Points are means, bars their intervals over samples." + (" Both models." if several else ""),
        ),
        Figure(
            "ridges", "Every layer, first to last", ridges, ("model", "convention"), wide=True,
            note="On the right: distance to one, with its interval. Colour runs from the first layer to the last.",
        ),
    ]  # fmt: skip
    lead = ["Layers and heads are numbered from 0, as in the table below and in the model."]
    return Section(
        "distributions", "Distributions by layer", lead, (*models.controls(), statistic), tuple(figures),
        html=render("layers.html.j2", tables=[_table(models, k) for k in range(len(models.profiles))]),
    )  # fmt: skip


def outline(heights: np.ndarray, grid: Grid, base: float = 0.0, scale: float = 1.0) -> dict[str, Any]:
    """Coordinates of a histogram's outline; closed at both ends."""
    closed = np.concatenate([[0.0], heights, [0.0]]) * scale + base
    return {"x0": round(grid.start - grid.width / 2, 4), "dx": grid.width, "y": np.round(closed, 3), "mode": "lines"}


def x_axis(grid: Grid, **more: Any) -> dict[str, Any]:
    """The axis of curvature."""
    return {"title": {"text": "curvature"}, "range": [grid.start - grid.width, 1.0 + grid.width], **more}


def zero_line(grid: Grid) -> list[dict[str, Any]]:
    """Where curvature changes its sign, if that is in the picture."""
    if grid.start >= 0:
        return []
    line = {"color": "var(--faint)", "width": 1, "dash": "dot"}
    return [{"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "line": line, "layer": "below"}]


def _ends(profile: Profile, counts: list[np.ndarray], values: list[Estimate], grid: Grid) -> dict[str, Any]:
    last = len(counts) - 1
    traces = []
    for k, colour, dash in [(0, "series-2", "dot"), (last, "series-1", "solid")][-min(2, len(counts)) :]:
        heights, below = density(counts[k], grid)
        name = f"layer {k}: {with_interval(values[k])}" + (f", {percent(below)} farther left" if below > 0 else "")
        traces.append({
            "type": "scatter", **outline(heights, grid), "name": plotly_text(name, 120), "fill": "tozeroy",
            "fillcolor": f"var(--{colour}-fill)", "line": {"color": f"var(--{colour})", "width": 1.8, "shape": "hvh",
            "dash": dash}, "hovertemplate": f"layer {k}<br>curvature %{{x:.2f}}<br>density %{{y:.2f}}<extra></extra>",
        })  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": x_axis(grid), "yaxis": {"title": {"text": "density"}, "rangemode": "tozero"},
            "shapes": zero_line(grid), "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }  # fmt: skip


def _ridges(profile: Profile, counts: list[np.ndarray], values: list[Estimate], grid: Grid) -> dict[str, Any]:
    heights = [density(c, grid)[0] for c in counts]
    top = max(float(np.max(h)) for h in heights) or 1.0
    # A layer that is one spike must not flatten the others: each ridge has at least half of the room.
    last = max(1, len(counts) - 1)
    traces: list[dict[str, Any]] = []
    notes = []
    for k, h in enumerate(heights):
        base = float(len(counts) - 1 - k)
        own = max(float(h.max()), 0.5 * top) or 1.0
        flat = {"x": [grid.start - grid.width / 2, 1.0], "y": [base, base], "mode": "lines"}
        quiet = {"hoverinfo": "skip", "showlegend": False}
        traces.append({"type": "scatter", **flat, **quiet, "line": {"color": "var(--line)", "width": 1}})
        name = plotly_text(profile.layers[k], 48)
        traces.append({
            "type": "scatter", **outline(h, grid, base, 0.92 / own), "fill": "tonexty", "showlegend": False,
            "fillcolor": f"mix(--depth-a,--depth-b,{k / last:.3f},0.55)",
            "line": {"color": f"mix(--depth-a,--depth-b,{k / last:.3f},1)", "width": 1.4, "shape": "hvh"},
            "hovertemplate": f"layer {k}, {name}<br>curvature %{{x:.2f}}<extra></extra>",
        })  # fmt: skip
        text = f"{number(values[k].value)}<br><span style='font-size:10px'>{interval(values[k])}</span>"
        notes.append({
            "x": 1, "xref": "paper", "xanchor": "left", "xshift": 8, "y": base + 0.32, "text": text, "showarrow": False,
            "align": "left", "font": {"size": 12},
        })  # fmt: skip
    ticks = [len(counts) - 1 - k for k in range(len(counts))]
    names = [f"layer {k}" for k in range(len(counts))]
    return {
        "data": traces,
        "layout": {
            "height": max(220, 90 + 44 * len(counts)), "margin": {"l": 58, "r": 96, "t": 12, "b": 44},
            "xaxis": x_axis(grid), "shapes": zero_line(grid), "annotations": notes,
            "yaxis": {"tickvals": ticks, "ticktext": names, "range": [-0.15, len(counts) + 0.05], "showgrid": False,
                      "zeroline": False},
        },
    }  # fmt: skip


def _lines(models: Models, convention: str, statistic: str, label: str, lens: str) -> dict[str, Any]:
    traces = []
    where = convention if lens == "curvature" else ""
    for m, profile in enumerate(models.profiles):
        values = by_layer(profile, statistic, where, lens)
        y = np.array([e.value for e in values])
        bars = {
            "type": "data", "symmetric": False, "array": [e.high - e.value for e in values],
            "arrayminus": [e.value - e.low for e in values], "width": 4, "thickness": 1.2,
        }  # fmt: skip
        share_of = statistic == "negative_share"
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": list(range(len(y))), "y": y, "error_y": bars,
            "name": plotly_text(models.names[m]), "line": {"color": f"var(--series-{m + 1})", "width": 1.8},
            "marker": {"size": 7, "symbol": ("circle", "diamond")[m]},
            "hovertemplate": "layer %{x}<br>%{y:" + (".2%" if share_of else ".4f") + "}<extra></extra>",
        })  # fmt: skip
    ticks = {"tickformat": ",.1~%"} if statistic == "negative_share" else {}
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": _tick(max(len(p.layers) for p in models.profiles))},
            "yaxis": {"title": {"text": label}, **ticks}, "showlegend": len(traces) > 1,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }  # fmt: skip


def _tick(layers: int) -> int:
    return 1 if layers <= 12 else 2 if layers <= 24 else 4


def _table(models: Models, k: int) -> dict[str, Any]:
    """The numbers of the main convention, for those who read tables and for machines that read pages."""
    profile, convention = models.profiles[k], models.conventions[0]
    rows = []
    for layer, name in enumerate(profile.layers):
        at = {s: of_row(profile, s, convention, layer).value for s in ("min", "q05", "q50", "q95", "max")}
        rows.append({
            "layer": layer, "name": name,
            "distance": with_interval(of_row(profile, "distance_to_one", convention, layer)),
            "negative": share(of_row(profile, "negative_share", convention, layer)),
            **{s: number(v) for s, v in at.items()},
            "entropy": with_interval(of_row(profile, "row_entropy", "", layer, lens="weights")),
        })  # fmt: skip
    return {"model": models.names[k] if len(models.profiles) > 1 else "", "convention": convention, "rows": rows}
