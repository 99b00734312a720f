"""Section: two models side by side, with a test of the difference (Figure 6 of the Ricci paper)."""

from __future__ import annotations

from typing import Any

from geoattn.report.density import density, grid_of
from geoattn.report.distributions import outline, x_axis, zero_line
from geoattn.report.escaping import plotly_text
from geoattn.report.estimates import Estimate, of_row
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section, key_of
from geoattn.report.sensitivity import Answer, Question, verdict
from geoattn.report.templates import render
from geoattn.report.wording import interval, number, signed, with_interval

__all__ = ["comparison", "comparison_answers", "comparison_sentences"]


def comparison(models: Models) -> Section | None:
    """The section; None for one model."""
    if len(models.profiles) < 2:
        return None
    places = _places(models)
    variants = {
        key_of(name, convention): _overlay(models, convention, layers)
        for name, _, layers in places
        for convention in models.conventions
    }
    control = models.control("place", "Layer", [(name, label) for name, label, _ in places])
    figure = Figure(
        "overlay", "Curvature of both models", variants, ("place", "convention"), wide=True,
        note="Density of the curvature of all edges; distance to one in the legend, smaller means more positive.",
    )  # fmt: skip
    tables = [{"convention": c, "rows": _rows(models, c)} for c in models.conventions]
    html = render("comparison.html.j2", tables=tables, names=models.names, paired=paired(models))
    lead = ["The last layer first, as in the literature; other layers and conventions by choice."]
    return Section("comparison", "The two models", lead, (control, models.controls()[1]), (figure,), html=html)


def paired(models: Models) -> bool:
    """Whether both profiles saw the same samples and resampled them alike."""
    return models.profiles[0].paired_with(models.profiles[1])


def comparison_answers(models: Models) -> dict[str, Answer]:
    """Which model is closer to 1, in the last layer and as a whole, under every convention."""
    first, second = models.names
    answers = {}
    for place, words in (("last", "in the last layer"), ("whole model", "over all layers")):
        question = Question(
            place, f"which model is closer to 1 {words}", lambda *_: None,
            positive=f"{second} is farther from 1 than {first} {words}",
            negative=f"{second} is closer to 1 than {first} {words}",
            unclear=f"the two do not clearly differ {words}",
        )  # fmt: skip
        answers[place] = Answer(question, {c: _difference(models, c, place) for c in models.conventions})
    return answers


def comparison_sentences(models: Models) -> list[str]:
    """The answers in words."""
    said = []
    for found in comparison_answers(models).values():
        main = found.estimates[models.conventions[0]]
        said.append(f"{verdict(found)} Difference {with_interval(main, signed)} under {models.conventions[0]}.")
    if not paired(models):
        said.append("The two profiles saw different samples: the intervals treat them as independent.")
    return said


def _difference(models: Models, convention: str, place: str) -> Estimate:
    table = models.profiles[0].compare(models.profiles[1], convention=convention)
    last = table[table.layer == place] if place in set(table.layer) else table.iloc[-1:]
    row = last.iloc[0]
    return Estimate(float(row.difference), float(row.lower), float(row.upper))


def _places(models: Models) -> list[tuple[str, str, tuple[int, int] | None]]:
    """(value, label, layer of each model; None for all layers), the last layer first: the view of the paper."""
    depths = [len(p.layers) for p in models.profiles]
    places: list[tuple[str, str, tuple[int, int] | None]] = [
        ("last", "last layer", (depths[0] - 1, depths[1] - 1)),
        ("first", "first layer", (0, 0)),
        ("all", "all layers", None),
    ]
    if depths[0] == depths[1]:
        places += [(str(k), f"layer {k}", (k, k)) for k in range(1, depths[0] - 1)]
    return places


def _overlay(models: Models, convention: str, layers: tuple[int, int] | None) -> dict[str, Any]:
    counts, values = [], []
    for m, profile in enumerate(models.profiles):
        parts = profile.histograms[convention]
        chosen = parts if layers is None else [parts[layers[m]]]
        counts.append(sum(h.sum(axis=0) for h in chosen))
        values.append(of_row(profile, "distance_to_one", convention, None if layers is None else layers[m]))
    grid = grid_of(counts)
    traces = []
    for m, dash in ((0, "solid"), (1, "dot")):
        name = plotly_text(f"{models.names[m]}: {with_interval(values[m])}", 120)
        traces.append({
            "type": "scatter", **outline(density(counts[m], grid)[0], grid), "name": name, "fill": "tozeroy",
            "fillcolor": f"var(--series-{m + 1}-fill)",
            "line": {"color": f"var(--series-{m + 1})", "width": 1.8, "shape": "hvh", "dash": dash},
            "hovertemplate": "curvature %{x:.2f}<br>density %{y:.2f}<extra></extra>",
        })  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": x_axis(grid), "yaxis": {"title": {"text": "density"}, "rangemode": "tozero"}, "height": 360,
            "shapes": zero_line(grid), "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    }  # fmt: skip


def _rows(models: Models, convention: str) -> list[dict[str, str]]:
    table = models.profiles[0].compare(models.profiles[1], convention=convention)
    rows = []
    for row in table.to_dict("records"):
        e = Estimate(float(row["difference"]), float(row["lower"]), float(row["upper"]))
        label = str(row["layer"])
        rows.append({
            "layer": f"layer {label}" if label.isdigit() else label, "this": number(float(row["this"])),
            "other": number(float(row["other"])), "difference": signed(e.value), "interval": interval(e),
            "p": _p(float(row["p"]), int(models.profiles[0].settings["resamplings"])),
        })  # fmt: skip
    return rows


def _p(p: float, resamplings: int) -> str:
    if p != p:
        return "–"
    return f"≤ {p:.2g}" if p <= 2 / resamplings else f"{p:.2g}"
