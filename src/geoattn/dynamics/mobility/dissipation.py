"""Metric derivative, slope and energy along a trajectory: the table that shows a gradient flow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from geoattn._core.errors import GeoattnError
from geoattn.dynamics.drift import tangent
from geoattn.dynamics.energy import log_energy_of
from geoattn.dynamics.interaction import Interaction, read_interaction
from geoattn.dynamics.variants import VARIANTS, push

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["dissipation_table"]


def dissipation_table(tokens: Tensor, t: Tensor, settings: dict[str, Any], given: dict[str, Tensor]) -> pd.DataFrame:
    r"""One row for each kept time and run; see `Trajectory.dissipation`."""
    import pandas as pd

    flow = settings.get("flow", "SA")
    if "function of time" in (settings.get("beta"), settings.get("D"), settings.get("V")):
        raise GeoattnError("weights that are functions of time have no energy to dissipate.")
    if VARIANTS[flow].metric is None or settings.get("causal") or settings.get("norm", "post") != "post":
        raise GeoattnError(
            f"the flow {flow!r} with causal={settings.get('causal')} and norm={settings.get('norm')!r} has no metric in"
            " which its energy could be followed; use a flow of VARIANTS with a metric, without a mask, on the sphere."
        )
    batch = tuple(tokens.shape[1:-2])
    rows = []
    for k, x in enumerate(tokens):
        known: dict[str, Any] = dict(given)
        interaction = read_interaction(x, flow=flow, shift=settings.get("shift", 0.0), **known)
        speed, slope, rate, value = _moment(x.reshape(-1, *x.shape[-2:]), interaction)
        for run in range(len(speed)):
            rows.append((float(t[k]), run, value[run], rate[run], speed[run], slope[run]))
    table = pd.DataFrame(rows, columns=pd.Index(["t", "run", "functional", "rate", "speed", "slope"]))
    table["defect"] = 0.5 * (table.speed**2 + table.slope**2) - table.rate
    gained = []
    for _, part in table.groupby("run", sort=False):
        time, half = part.t.to_numpy(), 0.5 * (part.speed.to_numpy() ** 2 + part.slope.to_numpy() ** 2)
        steps = np.diff(time) * (half[1:] + half[:-1]) / 2
        gained.append(pd.Series(np.concatenate([[0.0], np.cumsum(steps)]), index=part.index))
    table["dissipated"] = pd.concat(gained)
    start = table.groupby("run").functional.transform("first")
    table["gained"] = table.functional - start
    return table.drop(columns="run") if not batch else table


def _moment(x: Tensor, interaction: Interaction) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(Metric speed, slope, rate of the functional, functional) of each run.

    The speed is that of the velocity; the slope is that of the energy, differentiated by autograd.
    """
    out, log_mass = push(x, interaction, self_term=False)
    v = tangent(x, out)
    n = x.shape[1]
    w = torch.full_like(x[..., 0], 1.0 / n) if interaction.log_weights is None else interaction.log_weights.exp()
    mobile = VARIANTS[interaction.flow].metric == "mobility"
    # weights of USA are exp(logit - shift): the metric is then that of time in units of exp(-shift)
    scale = torch.full_like(w, interaction.shift if interaction.flow == "USA" else 0.0)
    g = w * (log_mass if mobile else scale).exp()
    free = x.detach().requires_grad_()
    plain = dataclasses.replace(interaction, flow="SA") if interaction.flow == "USA" else interaction
    log_energy = log_energy_of(free, plain)
    functional = log_energy if interaction.flow == "sinkhorn" else log_energy.exp()
    factor = _factor(interaction) / (2 * interaction.beta)
    functional = factor * functional
    (gradient,) = torch.autograd.grad(functional.sum(), free)
    gradient = tangent(x, gradient)
    speed = (g * v.square().sum(-1)).sum(-1).sqrt()
    slope = (gradient.square().sum(-1) / g.clamp_min(1e-300)).sum(-1).sqrt()
    rate = (gradient * v).sum((-2, -1))
    return tuple(z.detach().numpy() for z in (speed, slope, rate, functional))  # pyright: ignore[reportReturnType]


def _factor(interaction: Interaction) -> Tensor:
    """The number c for which c D is nearest to V; the flow climbs c E / (2 beta) when V = c D."""
    if interaction.D is None and interaction.V is None:
        return torch.ones_like(interaction.beta)
    size = next(z.shape[-1] for z in (interaction.D, interaction.V) if z is not None)
    eye = torch.eye(size, dtype=interaction.beta.dtype)
    D, V = (eye if z is None else z for z in (interaction.D, interaction.V))
    return (V * D).sum((-2, -1)) / D.square().sum((-2, -1)).clamp_min(1e-300)
