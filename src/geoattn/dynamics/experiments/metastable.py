"""Metastability from a uniform start on the circle: tokens gather in clusters, which merge one by one, ever later."""

from __future__ import annotations

import math

import numpy as np
import torch

from geoattn._core.progress import Progress, in_parts
from geoattn.dynamics.closed_forms import fastest_mode
from geoattn.dynamics.clusters import cluster_centres
from geoattn.dynamics.experiments.outcome import Check, Experiment
from geoattn.dynamics.experiments.registry import register
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.staircase import Staircase, energy_staircase
from geoattn.dynamics.starts import uniform_tokens
from geoattn.dynamics.trajectory import Trajectory

__all__ = ["metastable"]

_GATHERED = 30.0  # the time by which tokens are in clusters
_TOLERANCE = 1e-7  # tokens at that time are then within 1.2e-6 of where a tolerance of 1e-10 puts them
_BETAS = (9.0, 25.0)
_LONG = 10.0  # a plateau lasts this many times as long as everything before it


@register(
    "metastable",
    reference="Bruno, Pasqualotto and Agazzi 2024, arXiv 2410.23228",
    source="The abstract states the fastest mode as number of clusters; the times of the mergers are derived here.",
)
def metastable(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Uniform tokens on the circle first gather in about as many clusters as the fastest mode has waves.

    The tokens are followed until they are in clusters, and the clusters, each as one token of its mass, from merger to
    merger: these take times up to exp(2 beta), which no method that steps through time would reach.
    """
    n, runs = (100, 4) if small else (1000, 16)
    checks: list[Check] = []
    notes: list[str] = []
    table: dict[str, list[float]] = {k: [] for k in ("beta", "run", "clusters", "log t from", "log t until", "energy")}
    for beta, part in zip(_BETAS, in_parts(progress, (2, 3)), strict=True):
        gather, merge = in_parts(part, (8, 1))
        x = uniform_tokens(n, 2, runs=runs, seed=seed)
        run = simulate(
            x, beta=beta, until=_GATHERED, method="adaptive", tolerance=_TOLERANCE, save=16, keep="last", observe=(),
            progress=gather,
        )  # fmt: skip
        stairs = []
        for final in run.final:
            centres, masses = cluster_centres(final, 1e-3)
            angles = torch.atan2(centres[:, 1], centres[:, 0]).numpy()
            stairs.append(energy_staircase(angles, beta, weights=masses.numpy(), flow="SA", arc="whole"))
            merge(len(stairs), runs)
        checks += _checks(beta, run, stairs)
        found = np.mean([len(s.masses[0]) for s in stairs])
        last = np.median([s.log_t[-1] for s in stairs])
        notes.append(
            f"beta = {beta:g}: {found:.3g} clusters on average at t = {_GATHERED:g}, the fastest mode has"
            f" {fastest_mode(beta)} waves; the last two merge at exp({last:.3g}) in the median."
        )
        for k, stair in enumerate(stairs):
            times = _plateau_times(stair)
            for stage, masses in enumerate(stair.masses):
                row = (beta, k, len(masses), times[stage], times[stage + 1], stair.plateau[stage])
                for column, value in zip(table.values(), row, strict=True):
                    column.append(float(value))
    columns = {name: np.array(values) for name, values in table.items()}
    parameters = {"n": n, "runs": runs, "until": _GATHERED, "tolerance": _TOLERANCE, "seed": seed}
    return Experiment(parameters, tuple(checks), table=columns,
        notes=tuple(notes),
    )  # fmt: skip


def _checks(beta: float, run: Trajectory, stairs: list[Staircase]) -> list[Check]:
    k = fastest_mode(beta)
    clusters = float(np.median([len(stair.masses[0]) for stair in stairs]))
    at = f"at beta = {beta:g}"
    gain = float(run.log_energy.diff(dim=0).min())
    rise = min(float(np.diff(stair.plateau).min()) for stair in stairs)
    off = max(float(np.abs(stair.plateau - stair.heights)[_long(stair)].max(initial=0.0)) for stair in stairs)
    last = float(np.median([stair.log_t[-1] for stair in stairs]))
    return [
        Check(f"median number of clusters {at}, t = {_GATHERED:g}", clusters, k / 2, k + 1),
        Check.least(f"least rise of log energy in two units of time {at}", gain, -1e-12),
        Check(f"energy off the dissipation identity {at}, relative", float(run.balance.max()), 0.0, 1e-6),
        Check.least(f"least rise of the energy from plateau to plateau {at}", rise, 0.0),
        Check.least(f"long plateaus of a run {at}, median", float(np.median([_long(s).sum() for s in stairs])), 2),
        Check.near(f"long plateaus off the sum of squared masses {at}", off, 0.0, 1e-3),
        # two clusters at the angle g need about exp(beta (1 - cos g)), g near pi for the last two
        Check(f"log of the time of the last merger over 2 beta {at}, median", last / (2 * beta), 0.85, 1.05),
    ]


def _plateau_times(stair: Staircase) -> np.ndarray:
    """Logarithms of the times at which each plateau begins; the last has no end."""
    return np.concatenate([[math.log(_GATHERED)], np.logaddexp(math.log(_GATHERED), stair.log_t), [math.inf]])


def _long(stair: Staircase) -> np.ndarray:
    """Which plateaus, of those that end, last much longer than all the time before them."""
    times = _plateau_times(stair)
    long = np.diff(times) > math.log1p(_LONG)
    long[-1] = False
    return long
