"""The figure of a study at the paper's size: losses, chosen numbers and distributions of curvature, by arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import Any

import numpy as np

from geoattn.studies.engine.contrasts import CONVENTIONS, Number, Runs
from geoattn.studies.engine.tasks import title_of
from geoattn.studies.ricci.adjusted_training import LEVELS

__all__ = ["COLOURS", "losses_of", "summary_figure"]

COLOURS = {"decrease": "tab:blue", "none": "tab:gray", "increase": "tab:red"}
_OTHERS = ("tab:green", "tab:orange", "tab:purple", "tab:brown", "tab:olive", "tab:cyan", "tab:pink")
_HALF = 0.5  # from the first and the last arm to the border of a panel


def losses_of(result: Any) -> list[float]:
    """The training loss of each epoch."""
    return [row["loss"] for row in result["history"] if "loss" in row]


def summary_figure(
    runs: Runs, arms: Sequence[str], numbers: Mapping[str, Number], shown: Sequence[str], curves: bool
) -> Any:
    """Two rows of panels for each data set.

    The first has the mean loss by epoch (with ``curves``) and the ``shown`` numbers: a point a seed, a line for their
    mean. The second has the distribution of the last layer's curvature after training under each convention, as the
    share of edges below a value: quantiles are averaged over seeds. The dotted line is before training, which trials of
    texts do not measure. Lines begin at the lowest 2 % of the edges, because single edges lie far below all others.
    """
    from matplotlib.figure import Figure

    names = runs.names()
    curved = [data for data in names if any(_distributions(runs, data, arms))]
    panels = len(shown) + curves
    figure = Figure(figsize=(3.2 * max(panels, len(CONVENTIONS) if curved else 0), 2.5 * (len(names) + len(curved))))
    figure.set_layout_engine("constrained")
    parts = iter(figure.subfigures(len(names) + len(curved), 1, squeeze=False)[:, 0])
    others = cycle(_OTHERS)
    colours = {arm: COLOURS[arm] if arm in COLOURS else next(others) for arm in arms}
    for data in names:
        line = list(next(parts).subplots(1, panels, squeeze=False)[0])
        if curves:
            _draw_losses(line.pop(0), runs, data, colours)
        for ax, name in zip(line, shown, strict=True):
            _draw_seeds(ax, runs, data, colours, numbers[name].of)
            ax.set_title(fill(f"{_title(data)}: {numbers[name].words}", 36), fontsize=8)
        if data in curved:
            line = next(parts).subplots(1, len(CONVENTIONS), squeeze=False)[0]
            for ax, convention in zip(line, CONVENTIONS, strict=True):
                _draw_distributions(ax, runs, data, colours, convention)
                ax.set_title(f"{_title(data)}: last layer, {convention}", fontsize=8)
            line[0].set_ylabel("share of edges below", fontsize=7)
    for ax in figure.get_axes():
        ax.tick_params(labelsize=7)
    return figure


def _title(data: str) -> str:
    return ", then ".join(map(title_of, data.split(", then ")))


def _draw_losses(ax: Any, runs: Runs, data: str, colours: Mapping[str, Any]) -> None:
    from matplotlib.ticker import LogLocator

    for arm, colour in colours.items():
        losses = list(runs.by_seed(data, arm, losses_of).values())
        shortest = min(map(len, losses), default=0)
        if shortest:
            mean = np.mean([loss[:shortest] for loss in losses], axis=0)
            ax.plot(range(1, shortest + 1), mean, label=arm, color=colour, lw=1.2)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("epoch", fontsize=7)
    ax.set_title(f"{_title(data)}: training loss", fontsize=8)
    ax.legend(fontsize=6)


def _draw_seeds(ax: Any, runs: Runs, data: str, colours: Mapping[str, Any], of: Callable[[Any], float]) -> None:
    for place, (arm, colour) in enumerate(colours.items()):
        values = np.array(list(runs.by_seed(data, arm, of).values()), dtype=float)
        ax.plot([place] * len(values), values, ".", color=colour, alpha=0.6)
        if len(values):
            ax.plot([place], [values.mean()], "_", color="black", ms=14)
    ax.set_xticks(range(len(colours)), list(colours), rotation=20)
    ax.set_xlim(-_HALF, len(colours) - _HALF)


def _distributions(runs: Runs, data: str, arms: Sequence[str]) -> list[Any]:
    """The distributions of all runs of a data set that have one."""
    found = (runs.by_seed(data, arm, lambda result: result.get("distribution")) for arm in arms)
    return [shape for by in found for shape in by.values() if shape is not None]


def _draw_distributions(ax: Any, runs: Runs, data: str, colours: Mapping[str, Any], convention: str) -> None:
    def mean(shapes: Sequence[Any], when: str) -> np.ndarray | None:
        quantiles = [shape[when][convention]["quantiles"] for shape in shapes if when in shape]
        quantiles = [q for q in quantiles if q is not None]
        return np.mean(quantiles, axis=0)[1:] if quantiles else None

    levels = LEVELS[1:]
    start = mean(_distributions(runs, data, list(colours)), "start")
    if start is not None:
        ax.plot(start, levels, ":", color="black", lw=1, label="before training")
    for arm, colour in colours.items():
        end = mean(_distributions(runs, data, [arm]), "end")
        if end is not None:
            ax.plot(end, levels, color=colour, lw=1.2, label=arm)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("curvature", fontsize=7)
    if ax.get_lines():
        ax.legend(fontsize=6)
