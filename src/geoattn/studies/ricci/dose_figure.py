"""The figure of dose-response: what each strength of the regulariser does in each direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np

from geoattn.studies.engine.contrasts import Number, Runs
from geoattn.studies.engine.tasks import title_of
from geoattn.studies.ricci.full_size_figure import COLOURS

__all__ = ["dose_figure"]

_LOGARITHMIC = ("variance",)
_CONVENTION = "markov"  # of numbers that are about curvature


def dose_figure(runs: Runs, numbers: Mapping[str, Number], shown: Sequence[str]) -> Any:
    """A row for each data set, a panel for each number: its value by strength, a line for each direction.

    A point is a run, a line the mean over seeds. The dashed line is the mean of the runs without a regulariser.
    Curvature is that of the last layer under markov.
    """
    from matplotlib.figure import Figure

    names = runs.names()
    figure = Figure(figsize=(3.0 * len(shown), 2.6 * len(names)), layout="constrained")
    for data, line in zip(names, figure.subplots(len(names), len(shown), squeeze=False), strict=True):
        for ax, name in zip(line, shown, strict=True):
            number = numbers[name]
            of = (lambda r, n=number: n.of(r, _CONVENTION)) if number.curved else number.of
            _draw(ax, runs, data, of)
            under = f" ({_CONVENTION})" if number.curved else ""
            ax.set_title(fill(f"{title_of(data)}: {number.words}{under}", 36), fontsize=8)
            if name in _LOGARITHMIC:
                ax.set_yscale("log")
            ax.tick_params(labelsize=7)
        line[0].legend(fontsize=6)
    return figure


def _draw(ax: Any, runs: Runs, data: str, of: Callable[[Any], float]) -> None:
    plain = [of(result) for config, result in runs.pairs if runs.data(config) == data and config["direction"] == "none"]
    if plain:
        ax.axhline(float(np.mean(plain)), color=COLOURS["none"], ls="--", lw=1.0, label="none")
    ticks: set[float] = set()
    for direction in ("decrease", "increase"):
        found: dict[float, list[float]] = {}
        for config, result in runs.pairs:
            if runs.data(config) == data and config["direction"] == direction:
                found.setdefault(config["strength"], []).append(of(result))
        doses = sorted(found)
        ticks.update(doses)
        ax.plot(
            doses, [float(np.mean(found[dose])) for dose in doses], color=COLOURS[direction], lw=1.2, label=direction
        )
        for dose in doses:
            ax.plot([dose] * len(found[dose]), found[dose], "o", ms=3, alpha=0.7, color=COLOURS[direction])
    ax.set_xscale("log")
    ax.set_xticks(sorted(ticks), [f"{dose:g}" for dose in sorted(ticks)])
    ax.minorticks_off()
    ax.set_xlabel("strength", fontsize=7)
