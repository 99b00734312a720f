"""What to keep of a run, and when."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError
from geoattn.dynamics.integrators import to_sphere
from geoattn.dynamics.trajectory import Trajectory

__all__ = ["Recorder"]


class Recorder:
    """Keeps tokens and observables at chosen times, and cuts steps so that these times are hit.

    A run without a known end keeps every step, and drops every second one whenever there are twice as many as asked.
    """

    def __init__(
        self,
        end: float,
        save: Any,
        keep: str,
        observe: dict[str, Callable[[Tensor], Any]],
        batch: tuple[int, ...],
        shape: tuple[int, int],
        basis: Tensor | None,
        *,
        open_ended: bool,
        layer: float | None,
    ) -> None:
        self.end, self.keep, self.observe, self.batch, self.basis = end, keep, observe, batch, basis
        self.shape, self.layer = shape, layer
        self.wanted: int | None = None
        self.times: list[float] = []
        if open_ended and isinstance(save, (int, np.integer)):
            self.wanted = read_count("save", save, least=1)
        else:
            self.times = _read_times(save, end)
        if layer is not None:  # whole layers
            self.times = sorted({round(t / layer) * layer for t in self.times})
            self.end = round(end / layer) * layer
        self.rows: list[dict[str, Any]] = []
        self.start = torch.empty(0)
        self.seen = 0
        self.stride = 1

    def step_from(self, t: float, h: float, *, fixed: bool) -> tuple[float, float | None]:
        """(Length of the next step, the time it hits exactly if it is cut to hit one)."""
        later = [s for s in (*self.times, self.end) if s > t * (1 + 1e-14)]
        target = min(later, default=math.inf)
        left = target - t
        if self.layer is not None:
            return h, (target if left < 1.5 * h else None)
        if fixed:  # equal parts
            parts = max(1, math.ceil(left / h - 1e-9))
            return left / parts if math.isfinite(left) else h, (target if parts == 1 else None)
        if left <= h * (1 + 1e-12):
            return left, target
        return (left / 2, None) if left < 2 * h else (h, None)  # no sliver at the end

    def look(self, t: float, y: Tensor, run: Any, motion: Any, work: Tensor, speed: Tensor, *, last: bool) -> None:
        """Keep this moment if it is one to keep."""
        if self.wanted is None:
            due = any(abs(t - s) <= 1e-12 * max(1.0, s) for s in self.times)
        else:
            due = self.seen % self.stride == 0
        if self.seen == 0:
            self.start = run.log_energy(t, y, motion)
        self.seen += 1
        if not (due or last):
            return
        x = to_sphere(y) if run.norm == "pre" else y
        row = {
            "t": t, "log_energy": run.log_energy(t, y, motion), "work": work.clone(), "speed": speed,
            "x": x.clone(), "radius": y.norm(dim=-1) if run.norm == "pre" else None,
        }  # fmt: skip
        if self.keep == "last" and self.rows:
            self.rows[-1]["x"] = self.rows[-1]["radius"] = None
        shaped = x.reshape(*self.batch, *x.shape[-2:])
        for name, function in self.observe.items():
            row[f"observable:{name}"] = torch.as_tensor(function(shaped))
        self.rows.append(row)
        if self.wanted is not None and len(self.rows) > 2 * self.wanted and not last:
            self.rows = self.rows[::2]
            self.stride *= 2

    def trajectory(self, **rest: Any) -> Trajectory:
        """Everything kept, as a result."""
        first = self.rows[-1]["x"]
        stacked = {name: self._stack(name, *self.batch) for name in ("log_energy", "work", "speed")}
        n = self.shape[0]
        radius = None if self.rows[-1]["radius"] is None else self._stack("radius", *self.batch, n)
        observables = {k: torch.stack([row[f"observable:{k}"] for row in self.rows]) for k in self.observe}
        basis = None if self.basis is None else self.basis.reshape(*self.batch, *self.basis.shape[-2:])
        return Trajectory(
            t=torch.tensor([row["t"] for row in self.rows], dtype=torch.float64),
            coordinates=self._stack("x", *self.batch, n, first.shape[-1]),
            start_log_energy=self.start.reshape(self.batch),
            radius=radius,
            basis=basis,
            observables=observables,
            **stacked,
            **rest,
        )

    def _stack(self, name: str, *shape: int) -> Tensor:
        kept = [row[name].reshape(shape) for row in self.rows if row[name] is not None]
        return torch.stack(kept)


def _read_times(save: Any, end: float) -> list[float]:
    if isinstance(save, (bool, int, np.integer)):
        count = read_count("save", save, least=1)
        return [end] if count == 1 else [float(t) for t in np.linspace(0.0, end, count)]
    try:
        times = [read_number("save", float(t), least=0.0) for t in save]
    except TypeError:
        raise GeoattnError(f"save must be a number of times or the times themselves; got {save!r}.") from None
    if not times or any(b <= a for a, b in itertools.pairwise(times)) or times[-1] > end * (1 + 1e-12):
        raise GeoattnError(
            f"save must be increasing times from 0 to until = {end:g}; got {times[:3]} ... {times[-1:]}."
        )
    return times
