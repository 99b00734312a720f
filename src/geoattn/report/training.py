"""Section: training runs, with loss, accuracy, variance and curvature over their steps."""

from __future__ import annotations

from typing import Any

from geoattn.report.escaping import plotly_text, visible
from geoattn.report.models import Models
from geoattn.report.section import Figure, Section
from geoattn.report.templates import render
from geoattn.report.wording import number, percent
from geoattn.training.run_folder import TrainingRun

__all__ = ["training"]

_CURVES = (  # name in the log, title, axis, note
    ("loss", "Loss", "loss", "Mean over each epoch, with dropout on and without the penalty."),
    ("test_accuracy", "Accuracy", "test accuracy", "On the test rows, after each epoch."),
    ("variance", "Variance of attention", "variance", "Mean over samples and heads, then over layers."),
    ("curvature", "Curvature", "mean curvature", "Of a sample of edges, exact, in the convention that was trained or "
     "watched (markov unless told otherwise)."),
    ("pl_ratio", "PL ratio", "|∇L|² / L", "Theorem 4.1 of the Ricci paper asks that it stays above a positive number."),
)  # fmt: skip
_COLOURS = 4


def training(models: Models) -> Section | None:
    """The section; None when no run was given."""
    runs = models.runs
    if not runs:
        return None
    figures = []
    for name, title, axis, note in _CURVES:
        lines = [_line(run, k, name) for k, run in enumerate(runs) if run.series(name)[0]]
        if lines:
            layout = {
                "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
                "yaxis": {"title": {"text": axis}, **({"type": "log"} if name == "pl_ratio" else {})},
                "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, "showlegend": True,
            }  # fmt: skip
            figures.append(Figure(name, title, {"": {"data": lines, "layout": layout}}, note=note))
    html = render("training.html.j2", rows=[_row(run) for run in runs])
    lead = [
        "How the loss fell, and what attention did meanwhile. Runs differ in what was pushed; compare those of one"
        " data set. One run of each kind says nothing about chance: for that there are the studies, over many seeds.",
    ]
    return Section("training", "Training", lead, figures=tuple(figures), html=html)


def _points(run: TrainingRun, name: str) -> tuple[list[int], list[float]]:
    """Steps and values; of the loss those of epochs alone, as the monitor's are of single steps, with the penalty."""
    if name != "loss":
        return run.series(name)
    return TrainingRun(run.name, run.recipe, tuple(row for row in run.rows if "epoch" in row)).series(name)


def _label(run: TrainingRun) -> str:
    return f"{run.name}: {run.direction}"


def _line(run: TrainingRun, k: int, name: str) -> dict[str, Any]:
    steps, values = _points(run, name)
    dash = "solid" if k < _COLOURS else "dot"
    return {
        "type": "scatter", "mode": "lines+markers", "x": steps, "y": values, "name": plotly_text(_label(run), 60),
        "line": {"color": f"var(--series-{k % _COLOURS + 1})", "width": 1.8, "dash": dash}, "marker": {"size": 5},
        "hovertemplate": "step %{x}<br>%{y:.4g}<extra></extra>",
    }  # fmt: skip


def _row(run: TrainingRun) -> dict[str, str]:
    def ends(name: str) -> str:
        values = _points(run, name)[1]
        return f"{number(values[0])} → {number(values[-1])}" if values else "–"

    epochs = [row for row in run.rows if "epoch" in row]
    accuracy = run.series("test_accuracy")[1]
    return {
        "name": visible(run.name, 60), "direction": visible(run.direction, 80),
        "data": visible(str(run.recipe.get("data", "")), 40), "seed": visible(str(run.recipe.get("seed", "")), 12),
        "epochs": str(len(epochs)), "loss": ends("loss"), "variance": ends("variance"), "curvature": ends("curvature"),
        "accuracy": percent(accuracy[-1]) if accuracy else "–",
    }  # fmt: skip
