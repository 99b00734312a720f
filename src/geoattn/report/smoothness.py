"""Section: how much layers and heads amplify a small move of their tokens, and whether curvature goes with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.profiles.examples import Example
from geoattn.profiles.result import Profile
from geoattn.report.escaping import plotly_text, visible
from geoattn.report.estimates import Estimate, by_head, of_row
from geoattn.report.heads import values_by_head
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.templates import render
from geoattn.report.wording import number, with_interval
from geoattn.statistics.association import rank_correlation

__all__ = ["curvature_link", "smoothness"]

_STATISTICS = (
    ("local_constant", "local constant", ".3f"),
    ("ratio", "local constant over its bound", ".4f"),
    ("r2_gamma", "R²γ", ".1f"),
)
_FEWEST_HEADS = 6  # for a rank correlation with an interval
_MOST_NUMBERS = 400_000  # of worst moves in the page


def smoothness(models: Models) -> Section | None:
    """The section; None when no profile was asked for the smoothness lens."""
    chosen = [m for m, p in enumerate(models.profiles) if _measured(p)[0]]
    if not chosen:
        return None
    profiles = [models.profiles[m] for m in chosen]
    names = [models.names[m] for m in chosen]
    layers: dict[str, Any] = {}
    maps: dict[str, Any] = {}
    links: dict[str, Any] = {}
    for m, profile in enumerate(profiles):
        layers[key_of(m)] = _layers(profile)
        for statistic, label, form in _STATISTICS:
            maps[key_of(m, statistic)] = _map(profile, statistic, label, form)
        for convention in models.conventions:
            links[key_of(m, convention)] = _link(profile, convention)
    controls = [
        models.control("model", "Model", [(str(m), name) for m, name in enumerate(names)]),
        models.control("convention", "Convention", [(name, name) for name in models.conventions]),
        models.control("statistic", "Colour", [(s, label) for s, label, _ in _STATISTICS]),
    ]
    figures = [
        Figure(
            "layers", "Layer by layer", layers, ("model",),
            note="The spectral norm of the derivative of the layer at its own tokens, mean over samples with its"
            " interval, and the bound for all tokens in the ball of the same radius. Both without residual and norm.",
        ),
        Figure(
            "link", "Curvature and amplification of heads", links, ("model", "convention"),
            note="Each point is a head. The rank correlation is over heads, its interval from resampling heads.",
        ),
    ]  # fmt: skip
    if max(max(p.settings["heads"]) for p in profiles) > 1:
        figures.append(Figure("map", "Layers and heads", maps, ("model", "statistic"), wide=True))
    else:
        controls.pop()
    moves, more = _moves(models, profiles, names)
    if moves is not None:
        figures.append(moves)
        controls += more
    lead = [
        "How far can a small move of the tokens travel? The local Lipschitz constant of a map is the largest factor by"
        " which it stretches a small move of all tokens together: 2 means that some direction comes out twice as long.",
        *_answers(models, profiles, names),
    ]
    tables = [_table(p, name if len(profiles) > 1 else "") for p, name in zip(profiles, names, strict=True)]
    html = render("smoothness.html.j2", tables=tables)
    return Section("smoothness", "Smoothness", lead, tuple(controls), tuple(figures), html=html)


def curvature_link(profile: Profile, convention: str) -> Estimate | None:
    """Spearman's rank correlation, over heads, of mean curvature and local constant; None for fewer than six heads.

    Below 0: heads with low curvature amplify more. The interval is a bootstrap over heads.
    """
    curvature, constant = _points(profile, convention)[1:]
    if len(curvature) < _FEWEST_HEADS or np.ptp(curvature) == 0 or np.ptp(constant) == 0:
        return None
    try:
        found = rank_correlation(curvature, constant, resamples=1000, level=float(profile.settings["level"]))
    except GeoattnError:
        return None
    return Estimate(found.correlation, found.low, found.high)


def _points(profile: Profile, convention: str) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray]:
    curvature = by_head(profile, "mean", convention)
    constant = by_head(profile, "local_constant", "", "smoothness")
    places = [p for p in curvature if p in constant and np.isfinite([curvature[p].value, constant[p].value]).all()]
    x, y = (np.array([found[p].value for p in places]) for found in (curvature, constant))
    return places, x, y


def _answers(models: Models, profiles: list[Profile], names: list[str]) -> list[str]:
    """Do heads with low curvature amplify more? One sentence per model, over the conventions."""
    said = []
    for profile, name in zip(profiles, names, strict=True):
        found = {c: e for c in models.conventions if (e := curvature_link(profile, c)) is not None}
        if not found:
            continue
        words = ", ".join(f"{number(e.value)} [{number(e.low)}, {number(e.high)}] ({c})" for c, e in found.items())
        signs = {e.sign for e in found.values()}
        verdict = {
            frozenset({-1}): "Yes, under every convention",
            frozenset({1}): "No: those with high curvature do, under every convention",
            frozenset({0}): "No clear sign under any convention",
        }.get(frozenset(signs), "That depends on the convention")
        of = f" in {name}" if len(profiles) > 1 else ""
        said.append(f"Do heads with low curvature amplify more{of}? {verdict}. Rank correlation over heads: {words}.")
    return said


def _layers(profile: Profile) -> dict[str, Any]:
    x, values, bounds = _measured(profile)
    bars = {
        "type": "data", "symmetric": False, "array": [e.high - e.value for e in values],
        "arrayminus": [e.value - e.low for e in values], "width": 4, "thickness": 1.2,
    }  # fmt: skip
    line = {"type": "scatter", "mode": "lines+markers", "x": x}
    return {
        "data": [
            {**line, "y": np.array([e.value for e in values]), "error_y": bars, "name": "local constant",
             "line": {"color": "var(--series-1)", "width": 1.8},
             "hovertemplate": "layer %{x}<br>%{y:.3f}<extra></extra>"},
            {**line, "y": np.array([e.value for e in bounds]), "name": "bound",
             "line": {"color": "var(--series-2)", "width": 1.4, "dash": "dot"},
             "hovertemplate": "layer %{x}<br>bound %{y:.3g}<extra></extra>"},
        ],
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(x) <= 12 else 4},
            "yaxis": {"title": {"text": "Lipschitz constant"}, "type": "log", "dtick": 1},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }  # fmt: skip


def _map(profile: Profile, statistic: str, label: str, form: str) -> dict[str, Any]:
    z = values_by_head(profile, statistic, "", "smoothness")
    return {
        "data": [{
            "type": "heatmap", "z": np.where(np.isfinite(z), np.round(z, 6), np.nan), "xgap": 2, "ygap": 2,
            "colorscale": _scale(),
            "hovertemplate": f"layer %{{y}}, head %{{x}}<br>{label} %{{z:{form}}}<extra></extra>",
            "colorbar": {"title": {"text": label, "side": "right"}, "thickness": 12, "outlinewidth": 0},
        }],
        "layout": {
            "height": max(240, 100 + 26 * len(z)),
            "xaxis": {"title": {"text": "head"}, "dtick": 1 if z.shape[1] <= 16 else 4, "showgrid": False,
                      "zeroline": False},
            "yaxis": {"title": {"text": "layer"}, "dtick": 1 if len(z) <= 16 else 2, "autorange": "reversed",
                      "showgrid": False, "zeroline": False},
        },
    }  # fmt: skip


def _scale() -> list[list[Any]]:
    return [[0, "var(--heat-0)"], [0.5, "var(--heat-1)"], [1, "var(--heat-2)"]]


def _link(profile: Profile, convention: str) -> dict[str, Any]:
    places, curvature, constant = _points(profile, convention)
    found = curvature_link(profile, convention)
    last = max(1, len(profile.layers) - 1)
    text = "too few heads for a rank correlation"
    if found is not None:
        text = f"rank correlation {number(found.value)} [{number(found.low)}, {number(found.high)}]"
    return {
        "data": [{
            "type": "scatter", "mode": "markers", "x": curvature, "y": constant, "showlegend": False,
            "text": [f"layer {k}, head {h}" for k, h in places],
            "marker": {"size": 8, "color": [f"mix(--depth-a,--depth-b,{k / last:.3f},0.9)" for k, _ in places]},
            "hovertemplate": "%{text}<br>curvature %{x:.3f}<br>local constant %{y:.3f}<extra></extra>",
        }],
        "layout": {
            "xaxis": {"title": {"text": "mean curvature"}}, "yaxis": {"title": {"text": "local constant"}},
            "margin": {"l": 52, "r": 12, "t": 30, "b": 44},
            "annotations": [{"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom",
                             "text": text, "showarrow": False, "font": {"size": 12}}],
        },
    }  # fmt: skip


def _moves(models: Models, profiles: list[Profile], names: list[str]) -> tuple[Figure | None, list[Any]]:
    """Which tokens move in the worst direction of a head, for the examples that were kept."""
    shown: list[tuple[str, Profile, Example]] = []
    room = _MOST_NUMBERS
    for e in range(max(len(p.examples) for p in profiles)):
        for profile, name in zip(profiles, names, strict=True):
            if e < len(profile.examples) and any(m.size for m in profile.examples[e].moves):
                size = sum(m.size for m in profile.examples[e].moves)
                if size <= room:
                    room -= size
                    label = f"{name}, " if len(profiles) > 1 else ""
                    shown.append((f"{label}sample {profile.examples[e].sample}", profile, profile.examples[e]))
    if not shown:
        return None, []
    depth = max(len(p.layers) for _, p, _ in shown)
    width = max(max(p.settings["heads"]) for _, p, _ in shown)
    variants = {
        key_of(s, k, h): _picture(example, k, h)
        for s, (_, _, example) in enumerate(shown)
        for k in range(depth)
        for h in range(width)
    }
    controls = [
        models.control("sample", "Sample", [(str(s), visible(label, 60)) for s, (label, _, _) in enumerate(shown)]),
        models.control("layer", "Layer", [(str(k), str(k)) for k in range(depth)]),
        models.control("head", "Head", [(str(h), str(h)) for h in range(width)]),
    ]
    note = (
        "The direction that this head stretches most, as the share of each token in it: shares sum to one. One"
        " token alone: moving it does it all; equal shares: all have to move together."
    )
    return Figure("moves", "Which tokens move", variants, ("sample", "layer", "head"), note=note, wide=True), controls


def _picture(example: Example, layer: int, head: int) -> dict[str, Any]:
    moves = example.moves[layer] if layer < len(example.moves) else np.zeros((0, 0))
    if head >= len(moves):
        words = {"text": "not measured", "showarrow": False, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
        hidden = {"visible": False}
        return {"data": [], "layout": {"xaxis": hidden, "yaxis": hidden, "annotations": [words]}}
    share = np.round(moves[head] ** 2, 5)
    if example.grid is not None:
        rows, columns, leading = example.grid
        z = share[leading:].reshape(rows, columns)
        first = ", ".join(f"{example.tokens[i]} {100 * share[i]:.1f} %" for i in range(min(leading, 3)))
        return {
            "data": [{
                "type": "heatmap", "z": z, "colorscale": _scale(), "xgap": 2, "ygap": 2,
                "hovertemplate": "row %{y}, column %{x}<br>%{z:.1%} of the move<extra></extra>",
                "colorbar": {"title": {"text": "share of the move", "side": "right"}, "thickness": 12,
                             "outlinewidth": 0, "tickformat": ".0%"},
            }],
            "layout": {
                "height": 380, "margin": {"l": 52, "r": 12, "t": 34, "b": 20},
                "xaxis": {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "",
                          "constrain": "domain"},
                "yaxis": {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "",
                          "autorange": "reversed",
                          "scaleanchor": "x", "constrain": "domain"},
                "annotations": [{"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper",
                                 "yanchor": "bottom", "text": plotly_text(first, 80), "showarrow": False}],
            },
        }  # fmt: skip
    real = [i for i, valid in enumerate(example.valid) if valid]
    labels = [plotly_text(example.tokens[i], 18) for i in real]
    return {
        "data": [{
            "type": "bar", "x": list(range(len(real))), "y": share[real], "marker": {"color": "var(--series-1)"},
            "text": labels, "textposition": "none", "hovertemplate": "%{text}<br>%{y:.1%} of the move<extra></extra>",
        }],
        "layout": {
            "xaxis": {"tickvals": list(range(len(real))) if len(real) <= 60 else [], "ticktext": labels,
                      "tickangle": -45, "showgrid": False},
            "yaxis": {"title": {"text": "share of the move"}, "tickformat": ".0%", "rangemode": "tozero"},
        },
    }  # fmt: skip


def _table(profile: Profile, model: str) -> dict[str, Any]:
    rows = []
    grid = values_by_head(profile, "local_constant", "", "smoothness")
    gamma = values_by_head(profile, "r2_gamma", "", "smoothness")
    for layer, value, bound in zip(*_measured(profile), strict=True):
        heads, gammas = (t[layer][np.isfinite(t[layer])] for t in (grid, gamma))
        rows.append({
            "layer": layer, "name": profile.layers[layer], "value": with_interval(value), "bound": f"{bound.value:.3g}",
            "ratio": f"{of_row(profile, 'ratio', '', layer, lens='smoothness-layer').value:.2g}",
            "least": number(float(heads.min())) if len(heads) else "–",
            "most": number(float(heads.max())) if len(heads) else "–",
            "gamma": number(float(gammas.mean())) if len(gammas) else "–",
        })  # fmt: skip
    samples = min(int(profile.settings["samples"]), int(profile.settings.get("smoothness_samples", 0)))
    return {"model": model, "rows": rows, "samples": samples}


def _measured(profile: Profile) -> tuple[list[int], list[Estimate], list[Estimate]]:
    """Layers that could be measured, their constants and bounds."""
    layers, found = [], []
    for layer in range(len(profile.layers)):
        try:
            pair = [of_row(profile, s, "", layer, lens="smoothness-layer") for s in ("local_constant", "bound")]
        except GeoattnError:
            continue
        layers.append(layer)
        found.append(pair)
    return layers, [pair[0] for pair in found], [pair[1] for pair in found]
