"""Distributions of curvature in one panel, with the distance to one beside each."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill
from typing import Any

import numpy as np

from geoattn.studies.engine.cells import Pairs, by, mean_and_half, values
from geoattn.studies.engine.layer_curvature import BINS, PRESETS
from geoattn.studies.engine.tasks import title_of

__all__ = ["COLOURS", "NUMBERS", "SHORT", "draw_distribution", "grid_of_panels", "panels_by_data", "pooled_histogram"]

#: The colours of the paper.
COLOURS = {"vit-b16": "tab:blue", "deit-b16": "tab:green", "bert-tiny": "tab:purple", "electra-small": "tab:orange"}
SHORT = {"vit-b16": "ViT", "deit-b16": "DeiT", "bert-tiny": "BERT-Tiny", "electra-small": "ELECTRA"}

#: What the legends say, for the title of a figure.
NUMBERS = "height on a square-root scale; numbers: distance to one (zeros and outliers left out)"


def pooled_histogram(pairs: Pairs, layer: str, convention: str) -> np.ndarray:
    """Counts over all trials, by `BINS`."""
    return np.sum([result["curvature"][layer][convention]["histogram"] for _, result in pairs], axis=0)


def draw_distribution(
    ax: Any, pairs: Pairs, layer: str, convention: str, *, label: str, colour: Any, dashed: bool = False
) -> None:
    """One density over all trials; the legend has the distance to one, and the same without zeros and outliers."""
    counts = pooled_histogram(pairs, layer, convention)
    density = counts / counts.sum() / np.diff(BINS)
    found = [
        mean_and_half(values(pairs, lambda r, p=p: r["curvature"][layer][convention][f"{p}distance_to_one"]))[0]
        for p in ("", "trimmed_")
    ]
    text = f"{label} {found[0]:.3f} ({found[1]:.3f})"
    # A spike that fills one bin would flatten all others: the height is on a square-root scale.
    ax.stairs(np.sqrt(density), BINS, color=colour, label=text, ls="--" if dashed else "-", lw=1.4, fill=False)
    ax.set_yticks([])
    ax.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])


def panels_by_data(pairs: Pairs, key: str, style: Callable[[Any], tuple[str, Any] | None], note: str) -> Any:
    """A row per convention and a column per data set; in each the last layer's distributions by ``key``.

    ``style`` gives label and colour for a value of the key, None to leave it out.
    """
    cells = by(pairs, "data")
    figure, axes = grid_of_panels(list(PRESETS), [title_of(data) for (data,) in cells], f"{note}; {NUMBERS}")
    for row, convention in zip(axes, PRESETS, strict=True):
        for ax, cell in zip(row, cells.values(), strict=True):
            for (value,), part in by(cell, key).items():
                shown = style(value)
                if shown is not None:
                    draw_distribution(ax, part, "last", convention, label=shown[0], colour=shown[1])
            ax.legend(fontsize=6, loc="upper left", frameon=False)
    return figure


def grid_of_panels(rows: list[str], columns: list[str], note: str) -> tuple[Any, Any]:
    """A figure with (rows, columns) axes, names of conventions on the left, of data on top."""
    from matplotlib.figure import Figure

    width = 2.6 * len(columns) + 0.6
    figure = Figure(figsize=(width, 1.9 * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for ax, name in zip(axes[:, 0], rows, strict=True):
        ax.set_ylabel(name)
    for ax, name in zip(axes[0], columns, strict=True):
        ax.set_title(name, fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("curvature", fontsize=8)
    for ax in axes.ravel():
        ax.tick_params(labelsize=7)
    figure.suptitle(fill(note, int(16 * width)), fontsize=8)  # 16 characters of this size to the inch
    return figure, axes
