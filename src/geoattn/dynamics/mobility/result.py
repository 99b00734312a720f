"""What a distance in the mobility metric gives: value, bounds, and the path."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._version import __version__
from geoattn.dynamics.animation import animate
from geoattn.dynamics.mobility.coupling import Coupling
from geoattn.dynamics.mobility.path import Arcs, path_at, waves_at

__all__ = ["MobilityDistance", "MobilityPath", "below", "sampled"]


@dataclass(frozen=True, repr=False)
class MobilityPath(Viewable):
    """Tokens along a geodesic: ``t`` from 0 to 1, ``tokens`` (time, k, d) with ``weights`` (k), and velocities.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import mobility_distance
    >>> one, two = torch.eye(2, dtype=torch.float64)[:1], torch.eye(2, dtype=torch.float64)[1:]
    >>> path = mobility_distance(one, two, 1.0, times=5).path
    >>> path.tokens.shape
    torch.Size([5, 1, 2])
    """

    t: Float[Tensor, " time"]
    tokens: Float[Tensor, "time k d"]
    velocities: Float[Tensor, "time k d"]
    weights: Float[Tensor, " k"]

    def __repr__(self) -> str:
        """Short: how many tokens at how many times."""
        times, k, d = self.tokens.shape
        return f"MobilityPath({k} tokens in dimension {d} at {times} times)"


@dataclass(frozen=True, repr=False)
class MobilityDistance(Viewable):
    """A distance in the metric of attention.

    ``value`` is the root of the least action found, ``lower`` a bound that holds for every path, ``upper`` the value
    with the error of its quadrature. ``path`` is the path found, ``coupling`` says which token of mu goes to which of
    nu (None for densities), ``w2`` is the plain distance. ``starts`` are the lengths at which the starts of the search
    ended, before they were refined, most of them with other couplings. ``agreement`` is the share of the starts with
    the best coupling that end within 0.1 % of one action.

    Examples
    --------
    >>> import torch
    >>> from geoattn.dynamics import mobility_distance
    >>> one, two = torch.eye(2, dtype=torch.float64)[:1], torch.eye(2, dtype=torch.float64)[1:]
    >>> found = mobility_distance(one, two, 1.0)
    >>> bool(found.lower <= found.value <= found.upper)
    True
    """

    value: float
    lower: float
    upper: float
    path: MobilityPath
    w2: float
    coupling: Coupling | None
    starts: tuple[float, ...]
    agreement: float
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = __version__

    def animate(self, path: str | os.PathLike[str], *, frames: int = 60, fps: int = 12) -> None:
        """Write the geodesic as a film, .gif or .mp4; see `geoattn.animate`."""
        animate(self.path, path, frames=frames, fps=fps)

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        return {
            "distance": f"{self.value:.8g}",
            "bounds": f"{self.lower:.6g} .. {self.upper:.8g}",
            "W2": self.w2,
            "starts": len(self.starts),
            "agreement": f"{100 * self.agreement:.0f} %",
        }

    def __repr__(self) -> str:
        """Short: value, bounds, size, agreement of the starts."""
        n, d = self.settings.get("n"), self.settings.get("d")
        return (
            f"MobilityDistance({self.value:.6g}, within {self.lower:.6g} .. {self.upper:.6g}, n={n}, d={d},"
            f" {len(self.starts)} starts, {100 * self.agreement:.0f} % agree)"
        )


def below(lower: float, value: float) -> float:
    """The lower bound, which rounding may put above the value; more than rounding is an error."""
    if lower > value * (1 + 1e-9) + 1e-12:
        raise GeoattnError(f"the bound {lower!r} is above the value {value!r} of a path: the path is wrong.")
    return min(lower, value)


def sampled(arcs: Arcs, bend: Tensor, times: int, backwards: bool) -> MobilityPath:
    """The path at equally spaced times."""
    t = np.linspace(0.0, 1.0, times)
    waves, slopes = waves_at(t, len(bend))
    x, v = path_at(arcs, bend, waves, slopes, torch.from_numpy(t))
    if backwards:
        x, v = x.flip(0), -v.flip(0)
    return MobilityPath(torch.from_numpy(t), x, v, arcs.weights)
