"""Section: what perturbations cost in accuracy, and perturbed inputs to look at."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from geoattn.perturbations.robustness_table import PerturbedExample, Robustness
from geoattn.report.escaping import visible
from geoattn.report.models import Models
from geoattn.report.section import Section
from geoattn.report.templates import render
from geoattn.report.wording import number

__all__ = ["perturbed"]

_SHOWN = 6  # examples of one perturbation
_LONGEST = 400  # characters of a text


def perturbed(models: Models) -> Section | None:
    """The section; None when the robustness of no model was given."""
    chosen = [(name, found) for name, found in zip(models.names, models.robustness, strict=True) if found is not None]
    if not chosen:
        return None
    first = chosen[0][1].settings
    lead = [
        f"Accuracy on {first['samples']} clean rows minus accuracy on the same rows perturbed (rho): 0 is robust."
        f" Brackets are {first['level']:.0%} intervals over rows, p is McNemar's exact test of rho = 0.",
        f"The examples are the first rows that each perturbation chose with seed {first['seed']}, not the most telling"
        " ones; what was drawn for each stands below it.",
    ]
    tables = [{"model": name if len(models.names) > 1 else "", "rows": _rows(found)} for name, found in chosen]
    groups = [
        {"name": visible(kind, 60), "model": name if len(chosen) > 1 else "", "examples": _examples(found, kind)}
        for name, found in chosen
        for kind in found.names
    ]
    html = render("perturbed.html.j2", tables=tables, groups=[g for g in groups if g["examples"]])
    return Section("perturbed", "Perturbed inputs", lead, html=html)


def _rows(found: Robustness) -> list[dict[str, str]]:
    return [
        {
            "name": visible(name, 60), "rho": number(drop.rho),
            "interval": f"[{number(drop.low)}, {number(drop.high)}]",
            "clean": f"{drop.clean:.1%}", "perturbed": f"{drop.perturbed:.1%}", "changed": f"{share:.0%}",
            "p": f"{drop.p_value:.2g}",
        }
        for name, drop, share in zip(found.names, found.drops, found.changed, strict=True)
    ]  # fmt: skip


def _examples(found: Robustness, kind: str) -> list[dict[str, Any]]:
    return [_example(e) for e in found.examples if e.perturbation == kind][:_SHOWN]


def _example(example: PerturbedExample) -> dict[str, Any]:
    same = example.predicted_clean == example.predicted_perturbed
    drawn = "; ".join(
        f"{kind}: " + ", ".join(f"{key} {_word(value)}" for key, value in parts.items())
        for kind, parts in example.parameters.items()
    )
    sides = {}
    for side, value in (("clean", example.clean), ("perturbed", example.perturbed)):
        sides[side] = {"text": visible(value, _LONGEST), "image": ""} if isinstance(value, str) else {
            "text": "", "image": _picture(value)
        }  # fmt: skip
    return {
        **sides, "row": example.row, "label": visible(example.label, 30),
        "before": visible(example.predicted_clean, 30),
        "after": visible(example.predicted_perturbed, 30), "same": same, "drawn": visible(drawn, 160),
    }  # fmt: skip


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (tuple, list, np.ndarray)) and len(value) > 4:
        return f"({len(value)} values)"
    return str(value)


def _picture(pixels: np.ndarray) -> str:
    """(c, h, w) in [0, 1] as a data URL."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    shown = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
    imsave(buffer, np.clip(shown, 0, 1), format="png", cmap="gray", vmin=0, vmax=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
