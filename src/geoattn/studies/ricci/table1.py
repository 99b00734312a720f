"""Table 1 of the Ricci paper: accuracies and their gap when the variance of attention is pushed up or down."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, interval, judge
from geoattn.studies.engine.study import Study
from geoattn.studies.ricci.adjusted_training import (
    COLOURS,
    DIRECTIONS,
    TEXTS,
    VERSION,
    Pairs,
    data_of,
    plan,
    series,
    trial,
)

__all__ = ["STUDY", "trial"]

_NUMBERS = ("train_accuracy", "test_accuracy", "gap")
_CLAIMS = (
    ("decreasing variance gives the higher test accuracy than increasing it", "test_accuracy", "decrease", "increase"),
    ("increasing variance gives the smaller gap than decreasing it", "gap", "decrease", "increase"),
    ("decreasing variance gives the higher training accuracy", "train_accuracy", "decrease", "increase"),
    ("decreasing variance gives a higher test accuracy than no regulariser", "test_accuracy", "decrease", "none"),
    ("increasing variance gives a smaller gap than no regulariser", "gap", "none", "increase"),
)


def _values(pairs: Pairs, data: str, direction: str, number: str, beside: str | None = None) -> np.ndarray:
    return series(pairs, data, direction, lambda result: result[number], beside)


def _sizes(size: str) -> list[dict[str, Any]]:
    """The paper's data sets; of texts SST-2 alone when small."""
    return plan(size, texts=TEXTS if size == "paper" else ("sst2",))


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for data in data_of(pairs):
        for direction in DIRECTIONS:
            row: dict[str, Any] = {"data": data, "direction": direction}
            for number in _NUMBERS:
                values = _values(pairs, data, direction, number)
                mean, low, _ = interval(values)
                row.update({"trials": len(values), number: mean, f"{number}_half_width": mean - low})
            rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    """Pairs of runs that differ in the direction alone: same weights at the start, same order of rows."""
    findings = []
    for data in data_of(pairs):
        for claim, number, first, second in _CLAIMS:
            differences = _values(pairs, data, first, number, second) - _values(pairs, data, second, number, first)
            measure = f"{number.replace('_', ' ')}, {first} minus {second}"
            findings.append(judge(claim, data, differences, measure=measure))
    return findings


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, len(_NUMBERS))
    names = data_of(pairs)
    for ax, number in zip(axes, _NUMBERS, strict=True):
        for shift, direction in zip((-0.2, 0.0, 0.2), DIRECTIONS, strict=True):
            means = [interval(_values(pairs, data, direction, number)) for data in names]
            halves = [mean - low if np.isfinite(low) else 0.0 for mean, low, _ in means]
            places = np.arange(len(names)) + shift
            ax.errorbar(
                places, [mean for mean, _, _ in means], halves, fmt="o", ms=4, capsize=3, label=direction,
                color=COLOURS[direction],
            )  # fmt: skip
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
        ax.set_title({"gap": "training minus test accuracy"}.get(number, number.replace("_", " ")))
    axes[0].legend(title="variance")
    return figure


STUDY = Study(
    "table1", VERSION, "geoattn.studies.ricci.adjusted_training:trial", _sizes, _table, _figure, _verdict,
    paper="ricci", place="Table 1",
    how="Models trained with gamma h(variance) in both directions and without, the same seeds for all; paired t "
    "intervals over seeds of the accuracies at the end.",
)  # fmt: skip
