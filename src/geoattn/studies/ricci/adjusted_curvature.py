"""Figures 4 and 9 of the Ricci paper: curvature of the last layer after training in each direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, interval, judge
from geoattn.studies.engine.study import Study
from geoattn.studies.ricci.adjusted_training import (
    COLOURS,
    CONVENTIONS,
    DIRECTIONS,
    IMAGES,
    LEVELS,
    TEXTS,
    VERSION,
    Pairs,
    data_of,
    plan,
    series,
)

__all__ = ["FIG4", "FIG9", "curvature_study"]

_LOWEST = -1.0  # a tail below it is told in words

_CLAIMS = (  # claim, statistic, the direction that should have more of it, and the other
    ("increasing variance lowers the mean curvature below that of decreasing it", "mean", "decrease", "increase"),
    ("increasing variance promotes low curvature: the 5 % quantile falls", "low", "decrease", "increase"),
    ("increasing variance adds highly positive curvature: the 95 % quantile rises", "high", "increase", "decrease"),
    ("increasing variance makes the distribution less unimodal (Hartigans' dip)", "dip", "increase", "decrease"),
)


def curvature_study(name: str, place: str, sizes: Callable[[str], list[dict[str, Any]]]) -> Study:
    """The study of one of the two figures: they differ in model and data."""
    return Study(
        name, VERSION, "geoattn.studies.ricci.adjusted_training:trial", sizes, _table, _figure, _verdict,
        paper="ricci", place=place,
        how="Exact curvature of all edges of the last layer on fixed test rows after training, per convention; paired "
        "t intervals over seeds.",
    )  # fmt: skip


def _statistic(result: Any, convention: str, name: str, when: str = "end") -> float:
    """NaN where no edge of the last layer has a curvature."""
    shape = result["distribution"][when][convention]
    if shape["quantiles"] is None:
        return float("nan")
    if name in ("low", "high"):
        return float(np.interp(0.05 if name == "low" else 0.95, LEVELS, shape["quantiles"]))
    if name in ("dip", "missing"):
        return shape[name]
    return result["history"][0 if when == "start" else -1]["curvature"][convention]


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for data in data_of(pairs):
        for convention in CONVENTIONS:
            for direction in DIRECTIONS:
                row: dict[str, Any] = {"data": data, "convention": convention, "direction": direction}
                for statistic in ("mean", "low", "high", "dip", "missing"):
                    values = series(pairs, data, direction, lambda r: _statistic(r, convention, statistic))  # noqa: B023
                    mean, low, _ = interval(values)
                    row.update({"trials": len(values), statistic: mean, f"{statistic}_half_width": mean - low})
                start = series(pairs, data, direction, lambda r: _statistic(r, convention, "mean", "start"))  # noqa: B023
                variance = series(pairs, data, direction, lambda r: r["history"][-1]["variance"])
                rows.append({**row, "mean_before_training": start.mean(), "variance": variance.mean()})
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for data in data_of(pairs):
        before, after = (
            series(pairs, data, direction, lambda r: r["history"][-1]["variance"], beside)
            for direction, beside in (("increase", "decrease"), ("decrease", "increase"))
        )
        claim = "the regulariser moves the variance of attention where it should"
        findings.append(judge(claim, data, before - after, measure="variance at the end, increase minus decrease"))
        for convention in CONVENTIONS:
            for claim, statistic, more, less in _CLAIMS:
                differences = [
                    series(pairs, data, direction, lambda r: _statistic(r, convention, statistic), beside)  # noqa: B023
                    for direction, beside in ((more, less), (less, more))
                ]
                words = {"low": "5 % quantile of", "high": "95 % quantile of", "dip": "dip of"}.get(statistic, "mean")
                measure = f"{words} curvature in the last layer, {more} minus {less}"
                both = differences[0] - differences[1]
                findings.append(judge(claim, data, both[np.isfinite(both)], convention=convention, measure=measure))
    return findings


def _figure(pairs: Pairs) -> Any:
    """Densities by convention and data set: the mean over seeds, and their 95 % interval as a band."""
    from matplotlib.figure import Figure

    names = data_of(pairs)
    figure = Figure(figsize=(3.0 * len(CONVENTIONS), 2.3 * len(names) + 0.4), layout="constrained")
    axes = figure.subplots(len(names), len(CONVENTIONS), squeeze=False)
    for line, data in zip(axes, names, strict=True):
        for ax, convention in zip(line, CONVENTIONS, strict=True):
            shapes = {
                d: series(pairs, data, d, lambda r: r["distribution"]["end"][convention]["quantiles"] or [np.nan] * 51)  # noqa: B023
                for d in DIRECTIONS
            }
            everything = np.concatenate([s[:, 1:-1].ravel() for s in shapes.values()])
            low = max(np.nanmin(everything), _LOWEST)
            grid = np.linspace(low, max(1.0, np.nanmax(everything)) + 0.05 * (1 - low), 240)
            for place, (direction, quantiles) in enumerate(shapes.items()):
                below = np.nanmean([np.interp(low, q, LEVELS, left=0.0) for q in quantiles])
                if low == _LOWEST and below > 0.005:  # told in words, as it would squeeze the rest
                    words = f"{below:.0%} below {low:g}"
                    ax.text(
                        0.03, 0.6 - 0.1 * place, words, color=COLOURS[direction], fontsize=8, transform=ax.transAxes
                    )
                lines = np.array([_density(q, grid) for q in quantiles if np.isfinite(q).all()])
                if len(lines) == 0:
                    continue
                ax.plot(grid, lines.mean(0), color=COLOURS[direction], label=direction)
                bounds = np.array([interval(column)[1:] for column in lines.T])
                if np.isfinite(bounds).all():
                    ax.fill_between(grid, *bounds.clip(0).T, color=COLOURS[direction], alpha=0.25, lw=0)
            ax.set_yticks([])
            ax.set_title(convention if data == names[0] else "", fontsize=10)
        line[0].set_ylabel(data)
    axes[0, 0].legend(title="variance", fontsize=8, title_fontsize=8)
    figure.supxlabel("Ollivier-Ricci curvature, last layer, after training", fontsize=10)
    return figure


def _density(quantiles: Any, grid: np.ndarray) -> np.ndarray:
    """A kernel density from quantiles: each interval between two of them holds the same mass, spread evenly."""
    steps = np.linspace(0, 1, 401)[1:-1]
    values = np.interp(steps, LEVELS, quantiles)
    width = max(0.9 * min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34) * 60**-0.2, 1e-9)
    width = max(width, (grid[-1] - grid[0]) / 150)  # no finer than the picture
    kernel = np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2)
    return kernel.mean(1) / (width * np.sqrt(2 * np.pi))


FIG4 = curvature_study("fig4", "Figure 4", lambda size: plan(size, IMAGES, (), 10))
FIG9 = curvature_study("fig9", "Figure 9 (Appendix E.1)", lambda size: plan(size, (), TEXTS, 0))
