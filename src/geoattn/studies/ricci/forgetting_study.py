"""Figures 7, 11 and 12: accuracy on a first task while a second one is learnt, for both models of a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.cells import Pairs, by, judge_association, matched, mean_and_half, values
from geoattn.studies.engine.distribution_panel import COLOURS, SHORT
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described, is_text, title_of
from geoattn.studies.ricci.forgetting_runs import image_pairs, pair_configs, text_pairs
from geoattn.studies.ricci.trained_models import MODELS

__all__ = ["FIG11", "FIG12", "figure", "forgetting_study", "table", "verdict"]

_FORGOTTEN = 0.02  # mean loss of accuracy along the second training from which one may speak of forgetting


def forgetting_study(name: str, configs: Any, place: str) -> Study:
    """One of the three figures; they differ in the pairs of tasks."""
    return Study(
        name,
        1,
        "geoattn.studies.ricci.forgetting_runs:trial",
        configs,
        table,
        figure,
        verdict,
        paper="ricci",
        place=place,
        how="Train on a first task, then on a second with one head for both, and follow the accuracy on the first; the"
        " area under the forgetting curve, seed by seed; curvature of the last layer before the second training.",
    )


def _distance(convention: str) -> Any:
    return lambda result: result["curvature"]["last"][convention]["distance_to_one"]


def table(pairs: Pairs) -> Any:
    """A row for each ordered pair of tasks and model."""
    import pandas as pd

    rows = []
    for (first, second, model), cell in by(pairs, "first", "second", "model").items():
        row: dict[str, Any] = {"first": first, "second": second, "model": model, "trials": len(cell)}
        row["accuracy_before"] = mean_and_half(values(cell, lambda r: r["first"][0]))[0]
        row["accuracy_after"] = mean_and_half(values(cell, lambda r: r["first"][-1]))[0]
        row["accuracy_second"] = mean_and_half(values(cell, lambda r: r["second"][-1]))[0]
        row["area"], row["area_half_width"] = mean_and_half(values(cell, lambda r: r["area"]))
        for convention in PRESETS:
            row[f"distance_to_one {convention}"] = mean_and_half(values(cell, _distance(convention)))[0]
        rows.append(row)
    return pd.DataFrame(rows)


def verdict(pairs: Pairs) -> list[Finding]:
    """Per ordered pair: which model forgets more; over all runs: does the area grow with the distance to one?"""
    findings = []
    for (first, _), cell in by(pairs, "first", "second").items():
        better, worse = MODELS["texts" if is_text(first) else "images"]
        sides = by(cell, "model")
        both = np.mean([r["area"] for _, r in cell])
        note = "" if both > _FORGOTTEN else f"; hardly anything is forgotten here (mean area {both:.3f})"
        findings.append(
            judge(
                f"{SHORT[worse]} forgets faster than {SHORT[better]}",
                f"{title_of(first)}, then {described(cell[0][0], 'second')} each",
                matched(sides[(better,)], sides[(worse,)], lambda r: r["area"]),
                measure=f"area under the forgetting curve, {SHORT[worse]} minus {SHORT[better]}{note}",
            )
        )
    for medium, texts in (("image sets", False), ("text sets", True)):
        chosen = [(config, result) for config, result in pairs if is_text(config["first"]) == texts]
        groups = [f"{config['first']} {config['second']}" for config, _ in chosen]
        areas = [r["area"] for _, r in chosen]
        for convention in PRESETS if chosen else ():
            findings.append(
                judge_association(
                    "models with more positive curvature forget less",
                    medium,
                    [_distance(convention)(r) for _, r in chosen],
                    areas,
                    groups,
                    seeds=[config["seed"] for config, _ in chosen],
                    convention=convention,
                    measure="rank correlation of distance to one and area, both models, within pairs of tasks",
                )
            )
    return findings


def figure(pairs: Pairs) -> Any:
    """One panel per ordered pair: solid the first task, dotted the second; bands are 95 % intervals over seeds."""
    from matplotlib.figure import Figure

    cells = by(pairs, "first", "second")
    columns = min(4, len(cells))
    rows = -(-len(cells) // columns)
    drawing = Figure(figsize=(3.0 * columns, 2.4 * rows + 0.2), layout="constrained")
    axes = drawing.subplots(rows, columns, squeeze=False).ravel()
    for ax, ((first, second), cell) in zip(axes, cells.items(), strict=False):
        for (model,), part in by(cell, "model").items():
            steps = part[0][1]["steps"]
            for name, style in (("first", "-"), ("second", ":")):
                found = [mean_and_half(np.array([r[name][k] for _, r in part])) for k in range(len(steps))]
                mean, half = np.array([m for m, _ in found]), np.array([h or 0.0 for _, h in found])
                label = f"{SHORT[model]}, area {np.mean([r['area'] for _, r in part]):.3f}" if name == "first" else None
                ax.plot(steps, mean, style, color=COLOURS[model], lw=1.2, label=label)
                if name == "first":
                    ax.fill_between(steps, mean - half, mean + half, color=COLOURS[model], alpha=0.2, lw=0)
        ax.set_ylim(0, 1)
        ax.set_title(f"{title_of(first)}, then\n{title_of(second)}", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=6, frameon=False, loc="upper right")
    for ax in axes[len(cells) :]:
        ax.set_axis_off()
    for ax in axes[: len(cells)]:
        ax.set_xlabel("steps of the second training", fontsize=7)
    drawing.suptitle("accuracy on the first task (solid) and on the second (dotted)", fontsize=8)
    return drawing


#: The panels of Figure 7 are among those of Figures 11 and 12.
FIG11 = forgetting_study("fig11", lambda size: pair_configs(size, image_pairs(size)), "Figure 11, Appendix E.2")
FIG12 = forgetting_study("fig12", lambda size: pair_configs(size, text_pairs(size)), "Figure 12, Appendix E.2")
