"""Section: how far the heads are from gradient flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.profiles.result import Profile
from geoattn.report.estimates import by_head, by_layer
from geoattn.report.heads import heat_map, values_by_head
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.wording import number

__all__ = ["gradient_flow"]

_LENS = "gradient_flow"
_STATISTICS = (
    ("gradient_share", "gradient share, round norm"),
    ("metric_share", "gradient share, norm of the metric"),
    ("explained", "share of the velocity that the best energy explains"),
    ("symmetry", "symmetry of D"),
    ("alignment", "alignment of V with D"),
)


def gradient_flow(models: Models) -> Section | None:
    """The section; None when no profile was asked for the lens."""
    chosen = [m for m, p in enumerate(models.profiles) if _shares(p)[0].size]
    if not chosen:
        return None
    profiles, names = [models.profiles[m] for m in chosen], [models.names[m] for m in chosen]
    layers = {key_of(m): _layers(p) for m, p in enumerate(profiles)}
    clouds = {key_of(m): _cloud(p) for m, p in enumerate(profiles)}
    controls = [models.control("model", "Model", [(str(m), name) for m, name in enumerate(names)])]
    figures = [
        Figure(
            "layers", "Layer by layer", layers, ("model",),
            note="The share of the derivative of a head's flow that is symmetric, mean over heads and samples with its"
            " interval: 1 for gradient flows, 1/2 for a derivative without any symmetry, 0 for a rotation.",
        ),
        Figure(
            "cloud", "Symmetry and alignment of heads", clouds, ("model",),
            note="Each point is a head. A head is a gradient flow in the metric of attention when D is symmetric (1)"
            " and V is a multiple of D (1 or −1).",
        ),
    ]  # fmt: skip
    if max(max(p.settings["heads"]) for p in profiles) > 1:
        maps = {
            key_of(m, s): heat_map(values_by_head(p, s, "", _LENS), label)
            for m, p in enumerate(profiles)
            for s, label in _STATISTICS
        }
        controls.append(models.control("statistic", "Colour", list(_STATISTICS)))
        figures.append(Figure("map", "Layers and heads", maps, ("model", "statistic"), wide=True))
    lead = [
        "Attention moves tokens. When D = QᵀK is symmetric and V = ±D, it moves them along the gradient of an energy,"
        " in a metric of its own. Weights of a trained model need not do that; here is how near each head comes.",
        *(_answer(p, name if len(profiles) > 1 else "") for p, name in zip(profiles, names, strict=True)),
    ]
    return Section("gradient-flow", "Gradient flow", lead, tuple(controls), tuple(figures))


def _shares(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """Shares of all heads that have them, in the round norm and in that of the metric."""
    round_, metric = (by_head(profile, s, "", _LENS) for s in ("gradient_share", "metric_share"))
    places = [p for p in round_ if p in metric and np.isfinite([round_[p].value, metric[p].value]).all()]
    return np.array([round_[p].value for p in places]), np.array([metric[p].value for p in places])


def _answer(profile: Profile, name: str) -> str:
    round_, metric = _shares(profile)
    shares = [e.value for e in by_head(profile, "explained", "", _LENS).values() if np.isfinite(e.value)]
    explained = f"; the best energy explains {number(float(np.median(shares)))} of the velocity" if shares else ""
    return (
        f"Median gradient share of the {len(round_)} heads{f' of {name}' if name else ''}:"
        f" {number(float(np.median(round_)))} in the round norm, {number(float(np.median(metric)))} in the norm of the"
        f" metric{explained}. {int((round_ > 0.99).sum())} heads have more than 0.99."
    )


def _layers(profile: Profile) -> dict[str, Any]:
    data = []
    for series, (statistic, label) in enumerate(_STATISTICS[:3]):
        values = by_layer(profile, statistic, "", _LENS)
        bars = {
            "type": "data", "symmetric": False, "array": [e.high - e.value for e in values],
            "arrayminus": [e.value - e.low for e in values], "width": 4, "thickness": 1.2,
        }  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+markers", "x": list(range(len(values))),
            "y": np.array([e.value for e in values]), "error_y": bars, "name": label,
            "line": {"color": f"var(--series-{series + 1})", "width": 1.6},
            "hovertemplate": f"layer %{{x}}<br>{label} %{{y:.3f}}<extra></extra>",
        })  # fmt: skip
    return {
        "data": data,
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(profile.layers) <= 12 else 4},
            "yaxis": {"title": {"text": "share"}, "rangemode": "tozero"},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }


def _cloud(profile: Profile) -> dict[str, Any]:
    symmetry, alignment = (by_head(profile, s, "", _LENS) for s in ("symmetry", "alignment"))
    places = [p for p in symmetry if p in alignment and np.isfinite([symmetry[p].value, alignment[p].value]).all()]
    return {
        "data": [
            {"type": "scatter", "mode": "markers", "x": np.array([alignment[p].value for p in places]),
             "y": np.array([symmetry[p].value for p in places]), "showlegend": False,
             "marker": {"color": "var(--series-1)", "size": 8},
             "text": [f"layer {k}, head {h}" for k, h in places],
             "hovertemplate": "%{text}<br>alignment %{x:.3f}<br>symmetry %{y:.3f}<extra></extra>"},
        ],
        "layout": {
            "xaxis": {"title": {"text": "alignment of V with D"}},
            "yaxis": {"title": {"text": "symmetry of D"}},
        },
    }  # fmt: skip
