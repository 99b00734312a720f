"""Figure 6 of the Ricci paper: of two models, has the more robust one the more positive curvature?"""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.cells import (
    Pairs,
    by,
    judge_association,
    judge_with_trimmed,
    matched,
    mean_and_half,
    values,
)
from geoattn.studies.engine.distribution_panel import COLOURS, NUMBERS, SHORT, draw_distribution, grid_of_panels
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described, is_text, title_of
from geoattn.studies.ricci.forward_pass import configs
from geoattn.studies.ricci.trained_models import MODELS, main_perturbation

__all__ = ["STUDY"]


def _rho(result: Any) -> float:
    """Of the perturbation of Section 5 at its stronger setting."""
    return result["rho"][main_perturbation(result)]


def _distance(convention: str, prefix: str = "") -> Any:
    return lambda result: result["curvature"]["last"][convention][f"{prefix}distance_to_one"]


def _sides(pairs: Pairs) -> dict[str, tuple[str, Pairs, str, Pairs]]:
    """Per data set: the model that the paper finds the more robust and positive, and the other one."""
    cells = by(pairs, "data", "model")
    found = {}
    for data in dict.fromkeys(config["data"] for config, _ in pairs):
        better, worse = MODELS["texts" if is_text(data) else "images"]
        found[data] = (better, cells[data, better], worse, cells[data, worse])
    return found


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (data, model), cell in by(pairs, "data", "model").items():
        row: dict[str, Any] = {"data": data, "model": model, "trials": len(cell)}
        row["test_accuracy"] = mean_and_half(values(cell, lambda r: r["test_accuracy"]))[0]
        for name in cell[0][1]["rho"]:
            row[f"rho {name}"], row[f"rho {name} half width"] = mean_and_half(
                values(cell, lambda r, n=name: r["rho"][n])
            )
        for convention in PRESETS:
            for prefix in ("", "trimmed_"):
                number = mean_and_half(values(cell, _distance(convention, prefix)))[0]
                row[f"{prefix}distance_to_one {convention}"] = number
        rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for better, first, worse, second in _sides(pairs).values():
        name = described(first[0][0])
        pair = f"{SHORT[worse]} minus {SHORT[better]}"
        findings.append(
            judge(
                f"{SHORT[better]} is more robust to perturbed inputs than {SHORT[worse]}",
                name,
                matched(first, second, _rho),
                measure=f"rho ({main_perturbation(first[0][1])}), {pair}",
            )
        )
        for convention in PRESETS:

            def nearer(prefix: str, a: Pairs = first, b: Pairs = second, c: str = convention) -> np.ndarray:
                return matched(a, b, _distance(c, prefix))

            claim = f"{SHORT[better]} has more positive curvature in its last layer than {SHORT[worse]}"
            findings += judge_with_trimmed(claim, name, nearer, convention, f"distance to one, {pair}")
    return findings + _associations(pairs)


def _associations(pairs: Pairs) -> list[Finding]:
    """Over all runs, within data sets: does rho grow with the distance to one?"""
    findings = []
    for medium, texts in (("image sets", False), ("text sets", True)):
        chosen = [(config, result) for config, result in pairs if is_text(config["data"]) == texts]
        if not chosen:
            continue
        groups = [config["data"] for config, _ in chosen]
        for kind in ("perturbed", "FGSM"):
            rho = [_rho(r) if kind == "perturbed" else r["rho"]["FGSM"] for _, r in chosen]
            for convention in PRESETS:
                findings.append(
                    judge_association(
                        "more positive curvature goes with a smaller drop under perturbation",
                        medium,
                        [_distance(convention)(r) for _, r in chosen],
                        rho,
                        groups,
                        seeds=[config["seed"] for config, _ in chosen],
                        convention=convention,
                        measure=f"rank correlation of distance to one and rho ({kind}), both models, within data sets",
                    )
                )
    return findings


def _figure(pairs: Pairs) -> Any:
    sides = _sides(pairs)
    note = f"last layer; {NUMBERS}"
    figure, axes = grid_of_panels([*PRESETS, "rho"], [title_of(name) for name in sides], note)
    for row, convention in zip(axes, PRESETS, strict=False):
        for ax, (better, first, worse, second) in zip(row, sides.values(), strict=True):
            for model, cell in ((better, first), (worse, second)):
                draw_distribution(ax, cell, "last", convention, label=SHORT[model], colour=COLOURS[model])
            ax.legend(fontsize=6, loc="upper left", frameon=False)
    for ax, (better, first, worse, second) in zip(axes[-1], sides.values(), strict=True):
        names = list(first[0][1]["rho"])
        for shift, (model, cell) in zip((-0.15, 0.15), ((better, first), (worse, second)), strict=True):
            found = [mean_and_half(values(cell, lambda r, n=n: r["rho"][n])) for n in names]
            places = np.arange(len(names)) + shift
            ax.errorbar(places, [m for m, _ in found], [h or 0 for _, h in found], fmt="o", ms=3, color=COLOURS[model])
        ax.axhline(0, color="0.7", lw=0.8)
        ax.set_xticks(range(len(names)), [_short(n) for n in names], fontsize=6, rotation=90)
        ax.set_xlabel("")
    return figure


def _short(name: str) -> str:
    return name.replace("flip + blur + rotation", "all three")


STUDY = Study(
    "fig6",
    1,
    "geoattn.studies.ricci.trained_models:trial",
    configs,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Figure 6 and equation 8, Section 5",
    how="Two architectures trained alike on each data set; accuracy drop on perturbed test rows (the same for both) and"
    " curvature of the last layer; differences seed by seed, and rank correlation over runs within data sets.",
)
