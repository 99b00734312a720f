"""Figures 5 and 10 of the Ricci paper: how fast the loss falls when the variance of attention is pushed up or down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, interval, judge
from geoattn.studies.engine.study import Study
from geoattn.studies.ricci.adjusted_training import (
    COLOURS,
    DIRECTIONS,
    IMAGES,
    TEXTS,
    VERSION,
    Pairs,
    data_of,
    plan,
    series,
)

__all__ = ["FIG5", "FIG10", "epochs_to", "loss_study"]

_PAIRS = (("decrease", "increase"), ("none", "increase"), ("decrease", "none"))  # the slower one first, as claimed
_WORDS = {
    "none": "without a regulariser", "increase": "with variance pushed up", "decrease": "with variance pushed down",
}  # fmt: skip


def loss_study(name: str, place: str, sizes: Callable[[str], list[dict[str, Any]]]) -> Study:
    """The study of one of the two figures: they differ in model and data."""
    return Study(
        name, VERSION, "geoattn.studies.ricci.adjusted_training:trial", sizes, _table, _figure, _verdict,
        paper="ricci", place=place,
        how="Cross entropy of the training rows, without the penalty, averaged over each epoch; its mean over all "
        "epochs, and the epochs until it reaches a level that both runs of a pair reach; paired t intervals over "
        "seeds.",
    )  # fmt: skip


def epochs_to(losses: Any, level: float) -> float:
    """When a loss curve first reaches a level, in epochs, with straight lines between them; epochs count from 1.

    >>> epochs_to([2.0, 1.0, 0.5], 0.75), epochs_to([2.0, 1.0], 2.5)
    (2.5, 1.0)
    """
    for k, loss in enumerate(losses):
        if loss <= level:
            return float(1 + k) if k == 0 else float(k + (losses[k - 1] - level) / (losses[k - 1] - loss))
    return float("inf")


def _curves(pairs: Pairs, data: str, direction: str, beside: str | None = None) -> np.ndarray:
    """(seeds, epochs) task losses."""
    return series(pairs, data, direction, lambda r: [row["loss"] for row in r["history"][1:]], beside)


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for data in data_of(pairs):
        for direction in DIRECTIONS:
            curves = _curves(pairs, data, direction)
            for k in range(curves.shape[1]):
                mean, low, _ = interval(curves[:, k])
                rows.append({
                    "data": data, "direction": direction, "epoch": k + 1, "trials": len(curves), "loss": mean,
                    "loss_half_width": mean - low,
                })  # fmt: skip
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for data in data_of(pairs):
        for slow, fast in _PAIRS:
            a, b = _curves(pairs, data, slow, fast), _curves(pairs, data, fast, slow)
            claim = f"the loss falls faster {_WORDS[fast]} than {_WORDS[slow]}"
            measure = f"mean loss over all epochs, {slow} minus {fast}"
            findings.append(judge(claim, data, a.mean(1) - b.mean(1), measure=measure))
            level = np.maximum(a.min(1), b.min(1))
            wait = [epochs_to(x, y) - epochs_to(z, y) for x, z, y in zip(a, b, level, strict=True)]
            claim = f"training converges earlier {_WORDS[fast]} than {_WORDS[slow]}"
            findings.append(
                judge(claim, data, wait, measure=f"epochs to a loss that both runs reach, {slow} minus {fast}")
            )
    return findings


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    names = data_of(pairs)
    figure = Figure(figsize=(3.3 * len(names), 3.0), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for ax, data in zip(axes, names, strict=True):
        for direction in DIRECTIONS:
            curves = _curves(pairs, data, direction)
            epochs = np.arange(1, curves.shape[1] + 1)
            ax.plot(epochs, curves.mean(0), color=COLOURS[direction], label=direction, marker=".")
            bounds = np.array([interval(column)[1:] for column in curves.T])
            if np.isfinite(bounds).all():
                ax.fill_between(epochs, *bounds.T, color=COLOURS[direction], alpha=0.2, lw=0)
        ax.set_title(f"{data}, {len(_curves(pairs, data, DIRECTIONS[0]))} seeds", fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("training loss")
    axes[0].legend(title="variance", fontsize=8, title_fontsize=8)
    return figure


FIG5 = loss_study("fig5", "Figure 5", lambda size: plan(size, IMAGES, (), 10))
FIG10 = loss_study("fig10", "Figure 10 (Appendix E.1)", lambda size: plan(size, (), TEXTS, 0))
