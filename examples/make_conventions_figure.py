"""The picture of docs/conventions.md: curvature of the embedded sample, layer by layer, under two conventions.

.venv/bin/python examples/make_conventions_figure.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import geoattn as ga

TARGET = Path(__file__).parents[1] / "docs" / "images" / "conventions.png"
# Okabe and Ito's colours, told apart by colour-blind readers too.
PANELS = {
    "markov": ("#0072B2", "length −log S, measure = the attention row"),
    "grc-0.6": ("#D55E00", "length S, measure ∝ exp(−S²), half of it lazy"),
}
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
LOW, HIGH = -0.5, 1.02
BINS = np.linspace(LOW, HIGH, 96)


def draw_panel(ax: Axes, layers: list[np.ndarray], colour: str) -> None:
    """One row per layer: the share of edges in each bin, scaled to the tallest bin of its row."""
    for k, values in enumerate(layers):
        base = len(layers) - 1 - k
        counts, _ = np.histogram(values, BINS)
        ax.stairs(base + 0.82 * counts / counts.max(), BINS, baseline=base, fill=True, color=colour, alpha=0.85)
        ax.axhline(base, color="0.6", linewidth=0.6)
        mean, below = values.mean(), int((values < LOW).sum())
        ax.plot([mean, mean], [base, base + 0.82], color="black", linewidth=1.3)
        note = f"mean {mean:.2f}"
        if below:
            note += f"\n{below} edge{'s' if below > 1 else ''} further left, to {values.min():.1f}".replace("-", "−")
        ax.text(LOW + 0.03, base + 0.78, note, va="top", fontsize=9, linespacing=1.4, bbox=PAPER)
    ax.set_xlim(LOW, HIGH)
    ax.set_ylim(-0.02, len(layers))
    ax.axvline(0, color="0.5", linewidth=0.8, linestyle=":")
    ax.set_xlabel("curvature κ of an edge")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def main() -> None:
    attention = ga.datasets.load_sample()
    figure = Figure(figsize=(9.6, 4.8), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for ax, (name, (colour, words)) in zip(panels, PANELS.items(), strict=True):
        draw_panel(ax, [ga.ollivier_ricci(layer, name).values() for layer in attention], colour)
        ax.set_title(name, loc="left", fontsize=12, fontweight="bold", pad=20)
        ax.text(0, 1.015, words, transform=ax.transAxes, fontsize=9.5, color="0.25", va="bottom")
    count = len(attention)
    panels[0].set_yticks([count - 1 - k + 0.4 for k in range(count)], [f"layer {k}" for k in range(count)])
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, metadata={"Software": None})
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
