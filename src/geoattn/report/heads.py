"""Section: layers x heads as a heat map."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.profiles.result import Profile
from geoattn.report.estimates import by_head
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of

__all__ = ["head_map", "heads", "heat_map", "values_by_head"]

_STATISTICS = (
    ("distance_to_one", "distance to one", "curvature", ".3f"),
    ("negative_share", "share of negative edges", "curvature", ".2%"),
    ("negative_mass", "mean of max(0, −curvature)", "curvature", ".4f"),
    ("q05", "5 % quantile of curvature", "curvature", ".3f"),
    ("std", "standard deviation of curvature", "curvature", ".3f"),
    ("first_token", "weight on the first token", "sink_mass", ".3f"),
    ("heaviest_token", "weight on the heaviest token", "sink_mass", ".3f"),
    ("row_entropy", "entropy of the rows (nats)", "weights", ".3f"),
    ("variance", "variance of the weights", "weights", ".4f"),
)


def heads(models: Models) -> Section | None:
    """The section; None when every layer of every model has one head."""
    if max(max(p.settings["heads"]) for p in models.profiles) < 2:
        return None
    maps: dict[str, Any] = {}
    shown = [s for s in _STATISTICS if all(_is_there(p, s[0], s[2]) for p in models.profiles)]
    for m, profile in enumerate(models.profiles):
        for convention in models.conventions:
            for statistic, label, lens, form in shown:
                maps[key_of(m, convention, statistic)] = head_map(profile, convention, statistic, label, lens, form)
    statistic = models.control("statistic", "Colour", [(s, label) for s, label, _, _ in shown])
    lead = ["Each cell is one head: all its edges over all samples."]
    if any(p.examples for p in models.profiles):
        lead.append("A click on a cell shows the graph of that head.")
    figure = Figure("map", "Layers and heads", maps, ("model", "convention", "statistic"), wide=True)
    return Section("heads", "Heads", lead, (*models.controls(), statistic), (figure,))


def values_by_head(profile: Profile, statistic: str, convention: str, lens: str = "curvature") -> np.ndarray:
    """(layers, heads); NaN where a layer has fewer heads than the others."""
    grid = np.full((len(profile.layers), max(profile.settings["heads"])), np.nan)
    for place, estimate in by_head(profile, statistic, convention, lens).items():
        grid[place] = estimate.value
    return grid


def _is_there(profile: Profile, statistic: str, lens: str) -> bool:
    """Whether it was measured: a profile may have other lenses, or be older."""
    convention = profile.conventions[0].name if lens == "curvature" else ""
    return bool(by_head(profile, statistic, convention, lens))


def head_map(profile: Profile, convention: str, statistic: str, label: str, lens: str, form: str) -> dict[str, Any]:
    """Heat map of a statistic over layers and heads; ``form`` is the format of its numbers."""
    return heat_map(values_by_head(profile, statistic, convention if lens == "curvature" else "", lens), label, form)


def heat_map(
    z: np.ndarray, label: str, form: str = ".3f", *, rows: str = "layer", columns: str = "head"
) -> dict[str, Any]:
    """A heat map of any numbers (rows, columns)."""
    layers, width = z.shape
    scale = [[0, "var(--heat-0)"], [0.5, "var(--heat-1)"], [1, "var(--heat-2)"]]
    trace = {
        "type": "heatmap", "z": np.where(np.isfinite(z), np.round(z, 6), np.nan), "colorscale": scale,
        "xgap": 2, "ygap": 2,
        "hovertemplate": f"{rows} %{{y}}, {columns} %{{x}}<br>{label} %{{z:{form}}}<extra></extra>",
        "colorbar": {"title": {"text": label, "side": "right"}, "thickness": 12, "outlinewidth": 0,
                     "tickformat": form if "%" in form else ""},
    }  # fmt: skip
    return {
        "data": [trace],
        "layout": {
            "height": max(240, min(900, 100 + 26 * layers)),
            "xaxis": {"title": {"text": columns}, "dtick": 1 if width <= 16 else None, "showgrid": False,
                      "zeroline": False},
            "yaxis": {"title": {"text": rows}, "dtick": 1 if layers <= 16 else None, "autorange": "reversed",
                      "showgrid": False, "zeroline": False},
        },
    }  # fmt: skip
