"""Figures of robustness and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.perturbations.robustness_table import Robustness
from geoattn.plots.axes import COLOURS, label_of, own_axes, plain
from geoattn.training.run_folder import TrainingRun

__all__ = ["accuracy_drops", "training_curves"]


def accuracy_drops(found: Robustness, *, ax: Any = None) -> Any:
    """The drop in accuracy for each perturbation, with its interval.

    Examples
    --------
    >>> import geoattn as ga
    >>> digits = ga.load_data("digits", split="test", limit=16)
    >>> found = ga.robustness(ga.load_model("lvit-digits"), digits, [ga.perturbations.Flip(0.5)])
    >>> [tick.get_text() for tick in ga.plots.accuracy_drops(found).get_yticklabels()]
    ['flip 0.5']
    """
    ax = own_axes(ax)
    places = np.arange(len(found.names))
    values = np.array([drop.rho for drop in found.drops])
    spread = np.array([[d.rho - d.low, d.high - d.rho] for d in found.drops]).T
    ax.errorbar(values, places, xerr=np.maximum(spread, 0), fmt="o", markersize=4, capsize=2.5, color=COLOURS[0])
    ax.axvline(0, color="#999999", linewidth=0.8, linestyle=":")
    ax.set_yticks(places, [label_of(name) for name in found.names])
    ax.invert_yaxis()
    labelled = found.settings.get("labels", "given") == "given"
    ax.set_xlabel("drop in accuracy" if labelled else "share of predictions that change")
    return plain(ax)


def training_curves(runs: Sequence[TrainingRun], what: str = "loss", *, ax: Any = None) -> Any:
    """A number of the log over the steps, a line a run: ``loss``, ``test_accuracy``, ``variance``, ``curvature``.

    Examples
    --------
    >>> import geoattn as ga
    >>> run = ga.training.TrainingRun("a", {}, ({"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}))
    >>> ga.plots.training_curves([run]).lines[0].get_ydata().tolist()
    [2.0, 1.5]
    """
    ax = own_axes(ax)
    drawn = 0
    for k, run in enumerate(runs):
        steps, values = run.series(what)
        if steps:
            drawn += 1
            ax.plot(steps, values, color=COLOURS[k % len(COLOURS)], linewidth=1.2, label=label_of(run.name))
    if not drawn:
        raise GeoattnError(f"no run has {what!r} in its log.")
    ax.set(xlabel="step", ylabel=what.replace("_", " "))
    ax.legend(frameon=False, fontsize="small")
    return plain(ax)
