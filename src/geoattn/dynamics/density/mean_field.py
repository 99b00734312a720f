"""Densities over time: the result of the mean-field solvers, and their steps in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from geoattn._core.display import Displayed

__all__ = ["MeanField", "Moment", "advance_density"]


@dataclass(frozen=True)
class Moment:
    """A density at one time: its rate of change, the energy, the rate of the energy, and the fastest velocity."""

    change: Float[np.ndarray, "..."]
    energy: float
    rate: float
    speed: float


@dataclass(frozen=True, repr=False)
class MeanField(Displayed):
    r"""Densities over time, relative to the uniform measure (mean one), at ``points`` (unit vectors).

    ``energy`` is :math:`\iint e^{\beta x \cdot Dy} d\mu d\mu` for SA and USA, that of `VARIANTS` for other flows (for
    sinkhorn the entropic cost itself), NaN where there is none; ``work`` what the dissipation of the metric says it has
    gained, :math:`\int_0^t \frac{2\beta}{c} \int |v|^2 m \, d\mu \, ds` for V = c D (without the mobility m in the
    metric W2); NaN for other V and with noise.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.dynamics import circle_mean_field
    >>> flow = circle_mean_field(lambda a: 1 + 0.1 * np.cos(a), until=0.5, save=3)
    >>> bool(abs(flow.mass - 1).max() < 1e-12)
    True
    """

    t: Float[np.ndarray, " time"]
    density: Float[np.ndarray, "time ..."]
    points: Float[np.ndarray, "... d"]
    energy: Float[np.ndarray, " time"]
    work: Float[np.ndarray, " time"]
    mass: Float[np.ndarray, " time"]
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def balance(self) -> Float[np.ndarray, " time"]:
        """|E(t) - E(0) - work| / max E: how well the dissipation identity holds."""
        return np.abs(self.energy - self.energy[0] - self.work) / np.abs(self.energy).max()


def advance_density(
    moment: Callable[[np.ndarray], Moment],
    density: np.ndarray,
    times: np.ndarray,
    longest_step: Callable[[float], float],
    check: Callable[[float, np.ndarray], None],
    mass: Callable[[np.ndarray], float],
) -> dict[str, Any]:
    """Runge-Kutta 4 from time to time; the work is integrated with the density."""
    y, t, work, steps = density, 0.0, 0.0, 0
    first = moment(y)
    rows = [(0.0, y, first.energy, 0.0, mass(y))]
    for target in times[1:]:
        while t < target:
            h = min(longest_step(first.speed), target - t)
            h = (target - t) / max(1, math.ceil((target - t) / h - 1e-9))
            k2 = moment(y + h / 2 * first.change)
            k3 = moment(y + h / 2 * k2.change)
            k4 = moment(y + h * k3.change)
            y = y + h / 6 * (first.change + 2 * k2.change + 2 * k3.change + k4.change)
            work += h / 6 * (first.rate + 2 * k2.rate + 2 * k3.rate + k4.rate)
            steps += 1
            t = target if target - t - h < 1e-12 * max(1.0, target) else t + h
            check(t, y)
            first = moment(y)
        rows.append((t, y, first.energy, work, mass(y)))
    t_, y_, e_, w_, m_ = zip(*rows, strict=True)
    return {
        "t": np.array(t_), "density": np.stack(y_), "energy": np.array(e_), "work": np.array(w_), "mass": np.array(m_),
        "steps": steps,
    }  # fmt: skip
