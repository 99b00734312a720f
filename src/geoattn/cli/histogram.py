"""The histogram of a layer's curvature."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from geoattn.cli.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_histogram", "histogram_png"]

# Okabe and Ito: told apart by colour-blind readers too
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#666666"


def histogram_png(values: Sequence[np.ndarray], title: str, note: str) -> bytes:
    """A PNG of the distribution; ``values`` by head."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), dpi=150, layout="constrained")  # no pyplot: no state, no display
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_histogram(axes, values)
    axes.set_title(printable(title).replace("$", r"\$"), loc="left", fontsize=11, pad=22)
    axes.set_xlabel(f"curvature of an edge\n{note}", fontsize=9)
    file = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def draw_histogram(ax: Axes, values: Sequence[np.ndarray]) -> None:
    """All edges filled; each head, when there are several, as a thin line of the same bins; the mean."""
    every = np.concatenate([np.asarray(part) for part in values]) if len(values) else np.zeros(0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel("edges", fontsize=9)
    ax.tick_params(labelsize=9)
    if len(every) == 0:
        ax.text(0.5, 0.5, "no edge has a value", ha="center", transform=ax.transAxes, color=_GREY)
        return
    least, low, high = np.quantile(every, [0.0, 0.001, 1.0])
    if high - least < 1.5 * (high - low):
        low = least  # only values so far out that they would squeeze the rest are left out
    below = int((every < low).sum())
    spread = max(high - low, 1e-3)
    bins = np.linspace(low - 0.01 * spread, high + 0.01 * spread, 61)
    ax.stairs(np.histogram(every, bins)[0], bins, fill=True, color=_BLUE, alpha=0.75, label="all edges")
    if 1 < len(values) <= 16:
        for k, part in enumerate(values):
            label = "each head" if k == 0 else None
            ax.stairs(np.histogram(part, bins)[0], bins, color=_GREY, linewidth=0.7, label=label)
    mean = float(every.mean())
    if bins[0] <= mean <= bins[-1]:
        ax.axvline(mean, color=_ORANGE, linewidth=1.5, label=f"mean {mean:.3g}")
    if bins[0] < 0 < bins[-1]:
        ax.axvline(0, color="black", linewidth=0.7)
    if below:
        ax.plot([], [], "<", color=_GREY, markersize=5, label=f"{below:,} more down to {every.min():.3g}")
    # above the axes, where it cannot hide data
    ax.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=4, borderaxespad=0)
