"""More passes over the data, until the intervals of all heads are as narrow as was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from geoattn.profiles.batches import read_batch
from geoattn.profiles.lenses.curvature import CurvatureLens
from geoattn.profiles.precision import Precision
from geoattn.profiles.run import Progress, Run

__all__ = ["refine", "widest_interval"]

_PASSES = 3  # over the data, at most, beside the first


def refine(run: Run, source: Iterable[Any], asked: Precision) -> None:
    """See the data again, with more edges of the heads whose interval is still too wide."""
    for number_of_pass in range(1, _PASSES + 1):
        again: list[tuple[int, CurvatureLens]] = []
        for k, lens in enumerate(run.lenses):
            if not isinstance(lens, CurvatureLens) or time.monotonic() > lens.deadline:
                continue
            for layer, state in run.of_lens(k).items():
                widths = np.array([state.error.half_width(slice(h, h + 1), asked.level) for h in range(len(state.low))])
                if np.any(widths > asked.half_width):
                    care = lens.care.get(layer, np.ones(len(widths)))
                    lens.care[layer] = care * np.maximum(1.0, np.nan_to_num(widths / asked.half_width)) ** 2
                    again.append((k, lens))
        if not again:
            return
        numbers, lenses = list(dict(again)), list(dict(again).values())
        names = {name for (name, _), layer in run.layers.items() if any(layer in lens.care for lens in lenses)}
        viewer = replace(run.viewer, layers=names.__contains__, lenses=lenses, examples=run.examples.none())
        second = Run(viewer, _later(run, number_of_pass))
        second.layers, second.calls = dict(run.layers), len(names)
        for number, item in enumerate(source):
            second.see(read_batch(item, viewer.model, number))
        for (layer, k), state in second.states.items():
            run.states[layer, numbers[k]] = state


def _later(run: Run, passes: int) -> Progress | None:
    """The bar after so many passes over the data: a sample counts once in each."""
    told = run.progress
    if told is None:
        return None
    return lambda done, _: told(passes * run.samples + done, (passes + 1) * run.samples)


def widest_interval(run: Run, asked: Any) -> dict[str, float] | None:
    """The widest interval of a head, and what was asked for."""
    if not isinstance(asked, Precision):
        return None
    widest = [
        state.error.half_width(slice(h, h + 1), asked.level)
        for k, lens in enumerate(run.lenses)
        if isinstance(lens, CurvatureLens)
        for state in run.of_lens(k).values()
        for h in range(len(state.low))
    ]
    known = [width for width in widest if np.isfinite(width)]
    return {"asked": asked.half_width, "reached": max(known, default=float("nan") if widest else 0.0)}
