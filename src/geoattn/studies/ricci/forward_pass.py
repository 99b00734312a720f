"""Figures 3 and 8: curvature of the first attention layer against that of the last one."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.cells import Pairs, by, judge_with_trimmed, mean_and_half, values
from geoattn.studies.engine.distribution_panel import COLOURS, NUMBERS, SHORT, draw_distribution, grid_of_panels
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described, is_text, title_of
from geoattn.studies.ricci.trained_models import IMAGES, MODELS, SMALL_IMAGES, SMALL_TEXTS, TEXTS, settings_of

__all__ = ["FIG8", "configs", "figure", "table", "verdict"]

_STATISTICS = (
    "distance_to_one",
    "trimmed_distance_to_one",
    "q05",
    "negative_share",
    "std",
    "zero_share",
    "outlier_share",
)


def configs(size: str) -> list[dict[str, Any]]:
    """Trials of the four models. small: digits with 10 seeds, four sets with 3; paper: the six sets with 5."""
    if size == "smoke":
        plan = [("digits", 2), ("made-up-mood", 2)]
    elif size == "small":
        plan = [("digits", 10), *((data, 3) for data in (*SMALL_IMAGES, *SMALL_TEXTS))]
    else:
        plan = [(data, 5) for data in (*IMAGES, *TEXTS)]
    return [
        {"data": data, "seed": seed, **settings_of(size, data, model)}
        for data, seeds in plan
        for model in MODELS["texts" if is_text(data) else "images"]
        for seed in range(seeds)
    ]


def table(pairs: Pairs) -> Any:
    """A row for each data set, model, layer and convention: means over seeds, half widths of 95 % intervals."""
    import pandas as pd

    rows = []
    for (data, model), cell in by(pairs, "data", "model").items():
        accuracy = mean_and_half(values(cell, lambda r: r["test_accuracy"]))[0]
        for layer in ("first", "last"):
            for convention in PRESETS:
                row: dict[str, Any] = {"data": data, "model": model, "layer": layer, "convention": convention}
                row |= {"trials": len(cell), "test_accuracy": accuracy}
                for name in _STATISTICS:
                    row[name], half = mean_and_half(values(cell, _number(layer, convention, name)))
                    if "distance" in name:
                        row[f"{name}_half_width"] = half
                rows.append(row)
    return pd.DataFrame(rows)


def verdict(pairs: Pairs) -> list[Finding]:
    """Per model, data set and preset: does the last layer lean more to 1, or lose the low values?"""
    findings = []
    for (_, model), cell in by(pairs, "data", "model").items():
        where = f"{described(cell[0][0])}, {SHORT[model]}"
        for convention in PRESETS:

            def nearer(prefix: str, cell: Pairs = cell, convention: str = convention) -> np.ndarray:
                name = f"{prefix}distance_to_one"
                return values(cell, _number("first", convention, name)) - values(
                    cell, _number("last", convention, name)
                )

            findings += judge_with_trimmed(
                "curvature shifts towards more positive values through a forward pass", where, nearer, convention,
                "distance to one, first layer minus last",
            )  # fmt: skip
            rise = values(cell, _number("last", convention, "q05")) - values(cell, _number("first", convention, "q05"))
            findings.append(
                judge(
                    "a forward pass moves the smaller curvature values upwards",
                    where,
                    rise,
                    convention=convention,
                    measure="5 % quantile, last layer minus first",
                )
            )
    return findings


def figure(pairs: Pairs) -> Any:
    """Rows are conventions, columns data sets; solid the last layer, dashed the first."""
    cells = by(pairs, "data", "model")
    names = list(dict.fromkeys(data for data, _ in cells))
    note = f"first layer dashed, last layer solid; {NUMBERS}"
    drawing, axes = grid_of_panels(list(PRESETS), [title_of(name) for name in names], note)
    for row, convention in zip(axes, PRESETS, strict=True):
        for ax, name in zip(row, names, strict=True):
            for (data, model), cell in cells.items():
                if data == name:
                    for layer in ("first", "last"):
                        draw_distribution(
                            ax, cell, layer, convention, label=f"{SHORT[model]} {layer}", colour=COLOURS[model],
                            dashed=layer == "first",
                        )  # fmt: skip
            ax.legend(fontsize=5, loc="upper left", frameon=False)
    return drawing


def _number(layer: str, convention: str, name: str) -> Any:
    return lambda result: result["curvature"][layer][convention][name]


#: The panels of Figure 3 are among those of Figure 8.
FIG8 = Study(
    "fig8", 1, "geoattn.studies.ricci.trained_models:trial", configs, table, figure, verdict,
    paper="ricci", place="Figure 8, Appendix B",
    how="Models trained on each data set, curvature of all heads of the first and the last layer on fixed test rows;"
    " differences within a run, interval over seeds.",
)  # fmt: skip
