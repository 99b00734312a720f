"""Section: the eigenvalues of heads, what curvature says about them, and where the paper's assumption fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.profiles.result import Profile
from geoattn.report.estimates import Estimate, by_head, by_layer
from geoattn.report.heads import head_map
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.wording import number
from geoattn.statistics.association import rank_correlation

__all__ = ["gap_link", "spectrum"]

_STATISTICS = (
    ("second_eigenvalue", "second eigenvalue (modulus)", ".3f"),
    ("smallest_eigenvalue", "smallest eigenvalue (real part)", ".3f"),
    ("dobrushin", "Dobrushin coefficient", ".3f"),
    ("irreversibility", "irreversibility", ".3f"),
)
_FEWEST_HEADS = 6  # for a rank correlation with an interval


def spectrum(models: Models) -> Section | None:
    """The section; None when no profile has the spectrum lens."""
    chosen = [m for m, p in enumerate(models.profiles) if by_layer(p, "second_eigenvalue", "", "spectrum")]
    if not chosen:
        return None
    profiles, names = [models.profiles[m] for m in chosen], [models.names[m] for m in chosen]
    layers = {key_of(m): _layers(p) for m, p in enumerate(profiles)}
    links = {key_of(m, c): _link(p, c) for m, p in enumerate(profiles) for c in models.conventions}
    controls = [
        models.control("model", "Model", [(str(m), name) for m, name in enumerate(names)]),
        models.control("convention", "Convention", [(name, name) for name in models.conventions]),
    ]
    figures = [
        Figure(
            "layers", "Layer by layer", layers, ("model",),
            note="An attention map is a Markov chain with largest eigenvalue 1. The smaller the second one, the faster"
            " tokens become alike; the Dobrushin coefficient, one minus the smallest curvature under hop distance, is"
            " never below it.",
        ),
        Figure(
            "link", "Curvature and spectral gap of heads", links, ("model", "convention"),
            note="Each point is a head; on the dotted line its mean curvature equals its gap, one minus the modulus of"
            " the second eigenvalue.",
        ),
    ]  # fmt: skip
    if max(max(p.settings["heads"]) for p in profiles) > 1:
        maps = {
            key_of(m, s): head_map(p, "", s, label, "spectrum", form)
            for m, p in enumerate(profiles)
            for s, label, form in _STATISTICS
        }
        controls.append(models.control("statistic", "Colour", [(s, label) for s, label, _ in _STATISTICS]))
        figures.append(Figure("map", "Layers and heads", maps, ("model", "statistic"), wide=True))
    lead = [
        "Curvature bounds eigenvalues: no eigenvalue but the first exceeds one minus the smallest curvature over all"
        " pairs of tokens. That is a theorem for curvature whose measures are the rows of the map and whose distance is"
        " a metric; under other conventions it is an assumption, and one can see here whether it holds.",
        *_answers(models, profiles, names),
    ]
    return Section("spectrum", "Spectrum", lead, tuple(controls), tuple(figures))


def gap_link(profile: Profile, convention: str) -> Estimate | None:
    """Spearman's rank correlation, over heads, of mean curvature and spectral gap; None for fewer than six heads."""
    curvature, gap = _points(profile, convention, "mean")[1:]
    if len(curvature) < _FEWEST_HEADS or np.ptp(curvature) == 0 or np.ptp(gap) == 0:
        return None
    try:
        found = rank_correlation(curvature, gap, resamples=1000, level=float(profile.settings["level"]))
    except GeoattnError:
        return None
    return Estimate(found.correlation, found.low, found.high)


def _points(profile: Profile, convention: str, statistic: str) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray]:
    curvature = by_head(profile, statistic, convention)
    second = by_head(profile, "second_eigenvalue", "", "spectrum")
    places = [p for p in curvature if p in second and np.isfinite([curvature[p].value, second[p].value]).all()]
    return places, np.array([curvature[p].value for p in places]), np.array([1 - second[p].value for p in places])


def _answers(models: Models, profiles: list[Profile], names: list[str]) -> list[str]:
    """Per model: the correlation, and in how many heads the assumption must fail for some sample."""
    said = []
    for profile, name in zip(profiles, names, strict=True):
        of = f" of {name}" if len(profiles) > 1 else ""
        found = {c: e for c in models.conventions if (e := gap_link(profile, c)) is not None}
        if found:
            words = ", ".join(f"{number(e.value)} [{number(e.low)}, {number(e.high)}] ({c})" for c, e in found.items())
            said.append(f"Rank correlation of mean curvature and spectral gap over the heads{of}: {words}.")
        broken = []
        for convention in models.conventions:
            # the least curvature over all samples still exceeds the mean gap: some sample breaks the assumption
            places, least, gap = _points(profile, convention, "min")
            if places:
                broken.append(f"{int((least > gap + 1e-6).sum())} of {len(places)} under {convention}")
        if broken:
            said.append(f"Heads{of} in which the assumed bound is certain to fail: {', '.join(broken)}.")
    return said


def _layers(profile: Profile) -> dict[str, Any]:
    data = []
    for series, (statistic, label) in enumerate((
        ("second_eigenvalue", "second eigenvalue"), ("dobrushin", "Dobrushin coefficient"),
        ("smallest_eigenvalue", "smallest eigenvalue"),
    )):  # fmt: skip
        values = by_layer(profile, statistic, "", "spectrum")
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
    few = len(profile.layers) <= 12
    return {
        "data": data,
        "layout": {
            "xaxis": {"title": {"text": "layer"}, "dtick": 1 if few else 4},
            "yaxis": {"title": {"text": "eigenvalue"}},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }


def _link(profile: Profile, convention: str) -> dict[str, Any]:
    places, mean, gap = _points(profile, convention, "mean")
    found = gap_link(profile, convention)
    text = "too few heads for a correlation" if found is None else f"rank correlation {number(found.value)}"
    low, high = (float(min(mean.min(), gap.min())), float(max(mean.max(), gap.max()))) if places else (0.0, 1.0)
    return {
        "data": [
            {"type": "scatter", "mode": "markers", "x": mean, "y": gap,
             "marker": {"color": "var(--series-1)", "size": 8}, "showlegend": False,
             "text": [f"layer {k}, head {h}" for k, h in places],
             "hovertemplate": "%{text}<br>mean curvature %{x:.3f}<br>gap %{y:.3f}<extra></extra>"},
            {"type": "scatter", "mode": "lines", "x": [low, high], "y": [low, high], "showlegend": False,
             "line": {"color": "var(--series-2)", "width": 1, "dash": "dot"}, "hoverinfo": "skip"},
        ],
        "layout": {
            "xaxis": {"title": {"text": f"mean curvature ({convention})"}},
            "yaxis": {"title": {"text": "spectral gap"}},
            "margin": {"l": 52, "r": 12, "t": 30, "b": 44},
            "annotations": [{"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom",
                             "text": text, "showarrow": False, "font": {"size": 12}}],
        },
    }  # fmt: skip
