"""Tokens that maximise or minimise the interaction energy: seven experiments by the layer map, with their outcomes.

The scheme of all of them is x <- normalise(x + step * (1/n) sum_j exp(x . D x_j) V x_j), V = D or -D: `simulate` with
method ``layer`` and flow ``USA``. Parameters are those of the code of Burger, Kabri, Korolev, Roith and Weigand 2025.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.progress import Progress, in_parts
from geoattn.dynamics.closed_forms import first_order_density, four_particles, uniform_energy
from geoattn.dynamics.clusters import cluster_count
from geoattn.dynamics.energy import interaction_energy
from geoattn.dynamics.experiments.outcome import Check, Experiment
from geoattn.dynamics.experiments.registry import register
from geoattn.dynamics.minimiser import circle_density
from geoattn.dynamics.optima import energy_optimum
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.starts import uniform_tokens
from geoattn.dynamics.stationary import pair_threshold

__all__ = ["density", "four_tokens", "indefinite", "negative", "one_token", "repulsion", "split", "split_picture"]

_BURGER = "Burger, Kabri, Korolev, Roith and Weigand 2025, arXiv 2501.03096"


def _diag(*values: float | int) -> Float[Tensor, "d d"]:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def _layers(x: Any, D: Tensor, sign: float, step: float, count: int, progress: Progress) -> Tensor:
    """The tokens after ``count`` layers."""
    run = simulate(
        x, D=D, V=sign * D, flow="USA", method="layer", step=step, until=step * count, save=1, keep="last", observe=(),
        progress=progress,
    )  # fmt: skip
    return run.final


@register(
    "one-token",
    reference=_BURGER,
    source="Parameters of the published code. The limits follow from one line: a single token climbs exp(x . Dx).",
)
def one_token(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """One token a run: it stays for D = I and goes to the top eigenvector for diag(1, 3, 4)."""
    runs, count = 30, 500
    x = uniform_tokens(1, 3, runs=runs, seed=seed)
    first, second = in_parts(progress, (1, 1))
    still = _layers(x, torch.eye(3, dtype=torch.float64), 1.0, 0.1, count, first)
    D = _diag(1, 3, 4)
    moved = _layers(x, D, 1.0, 0.1, count, second)
    energies = interaction_energy(moved, D)
    checks = (
        Check.near("largest move for D = I", float((still - x).abs().max()), 0.0, 1e-12),
        Check.near("runs at +-e3", float((moved[:, 0, 2].abs() > 1 - 1e-9).sum()), runs, 0),
        Check.near("energy, least of all runs", float(energies.min()), math.exp(4), 1e-6),
    )
    parameters = {"d": 3, "n": 1, "runs": runs, "step": 0.1, "layers": count, "seed": seed}
    return Experiment(parameters, checks, {"diag(1,3,4)": moved[:, 0]})


@register(
    "split",
    reference=_BURGER,
    source="Parameters of the published code. The two thresholds are derived here from linear stability of the pair.",
)
def split(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """D = diag(d1, 1) on the circle: one cluster or an antipodal pair, with thresholds tanh 1 and 1.19968."""
    runs, count = (10, 400) if small else (100, 1500)
    values = np.linspace(0, 1.5, 20)
    if small:
        values = values[[0, 4, 12, 14, 18]]
    D = torch.stack([_diag(v, 1.0) for v in values])[:, None].expand(-1, runs, 2, 2)
    x = uniform_tokens(100, 2, runs=(len(values), runs), seed=seed)
    final = _layers(x, D, 1.0, 0.1, count, progress)
    clusters = cluster_count(final, 0.05)
    single = (clusters == 1).double().mean(-1).numpy()
    pair = (clusters == 2).double().mean(-1).numpy()
    low, high = pair_threshold(1.0), _upper_threshold()
    inside = (values > low + 0.02) & (values < high - 0.005)
    checks = [
        Check.near("lower threshold", low, 0.76159, 5e-6),
        Check.near("upper threshold", high, 1.19968, 5e-6),
        Check.near("least share of single clusters between the thresholds", float(single[inside].min()), 1.0, 0.0),
        Check.least("least share of pairs for d1 <= 0.64", float(pair[values < 0.64].min()), 0.7 if small else 0.74),
        Check.least("least share of pairs for d1 >= 1.34", float(pair[values > 1.34].min()), 0.7 if small else 0.84),
    ]
    if not small:
        checks.append(Check("share of single clusters at d1 = 0.71", float(single[9]), 0.3, 0.7))
        checks.append(Check("share of single clusters at d1 = 1.263", float(single[16]), 0.25, 0.65))
    parameters = {"d": 2, "n": 100, "runs": runs, "step": 0.1, "layers": count, "seed": seed}
    table = {"d1": values, "single": single, "pair": pair}
    return Experiment(parameters, tuple(checks), table=table)


def _upper_threshold() -> float:
    """The d1 with d1 tanh(d1) = 1."""
    from scipy.optimize import brentq

    return float(brentq(lambda v: pair_threshold(v) - 1.0, 1.0, 2.0, xtol=1e-12))  # pyright: ignore[reportArgumentType]


@register(
    "split-picture",
    reference=_BURGER,
    source="Parameters of the published code. The limit follows from the energy of a point and of a pair.",
)
def split_picture(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """D = diag(1, 1.25) on the circle, one run, to look at: all tokens end on the axis of 1.25."""
    count = 1400
    D = _diag(1, 1.25)
    run = simulate(
        uniform_tokens(100, 2, seed=seed),
        D=D,
        V=D,
        flow="USA",
        method="layer",
        step=0.075,
        until=0.075 * count,
        save=101,
        progress=progress,
    )
    on_axis = float(run.final[:, 1].abs().min())
    checks = (
        Check.least("least |x2| of a token", on_axis, 0.99),
        Check("clusters", float(cluster_count(run.final, 0.05)), 1, 2),
        Check.least("least change of the energy between two pictures", float(run.energy.diff().min()), -1e-9),
    )
    parameters = {"d": 2, "n": 100, "step": 0.075, "layers": count, "seed": seed}
    return Experiment(parameters, checks, {"over time": run.tokens},
        {"t": run.t.numpy(), "energy": run.energy.numpy()},
    )  # fmt: skip


@register(
    "repulsion",
    reference=_BURGER,
    source="Parameters of the published code. The least energies are derived here (Jensen; strict convexity).",
)
def repulsion(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Minimisers on the 2-sphere: uniform for D = I, the kernel of D if it has one, a density for diag(1, 1/4, 1)."""
    count = 400 if small else 20_000
    x = uniform_tokens(400, 3, seed=seed)
    cases = {"Id": ((1, 1, 1), 0.1), "PPd": ((1, 0.25, 1), 0.5), "Sd": ((1, 0, 1), 0.75), "VSd": ((0, 0, 1), 0.75)}
    final, energy, moment = {}, {}, {}
    for (name, (values, step)), tell in zip(cases.items(), in_parts(progress, [1] * len(cases)), strict=True):
        D = _diag(*values)
        final[name] = _layers(x, D, -1.0, step, count, tell)
        energy[name] = float(interaction_energy(final[name], D))
        moment[name] = final[name].square().mean(0).numpy()
    best = energy_optimum(_diag(1, 0.25, 1), "min")
    slack = 1e-4 if small else 1e-6
    checks = (
        Check("Id: energy above sinh 1", energy["Id"] - uniform_energy(1.0, 3), 0.0, slack),
        Check.near("Id: second moments off 1/3", float(np.abs(moment["Id"] - 1 / 3).max()), 0.0, slack),
        Check("PPd: energy above the minimum", energy["PPd"] - best.value, -1e-9, 1e-4 if small else 2e-6),
        Check.near("PPd: second moment along e2", float(moment["PPd"][1]), 0.8902, 2e-2 if small else 5e-4),
        Check("Sd: energy above 1", energy["Sd"] - 1, 0.0, 1e-5 if small else 1e-8),
        Check.least("Sd: least |x2|", float(final["Sd"][:, 1].abs().min()), 0.6 if small else 0.98),
        Check("VSd: energy above 1", energy["VSd"] - 1, 0.0, 1e-5 if small else 1e-8),
        Check("VSd: largest |x3|", float(final["VSd"][:, 2].abs().max()), 0.0, 0.3 if small else 0.05),
    )
    parameters = {"d": 3, "n": 400, "layers": count, "steps": {k: v[1] for k, v in cases.items()}, "seed": seed}
    return Experiment(parameters, checks, final)


@register(
    "four-tokens",
    reference=_BURGER,
    source="Parameters of the published code. The equation of the rest point is derived here.",
)
def four_tokens(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Four tokens from the diagonals, D = diag(1, d2), repulsion: tanh(a^2) = d2 tanh(d2 b^2)."""
    slow, fast = (0.5, 1.0, 2.0, 3.0, 5.0), (8.0, 10.0)  # the layer map with the longer step is unstable from 6 on
    s = math.sqrt(0.5)
    x = torch.tensor([[s, s], [-s, s], [s, -s], [-s, -s]], dtype=torch.float64)
    checks, found = [], []
    cases = ((slow, 0.05, 1250, 1e-12), (fast, 2e-3, 2500, 1e-5))
    if not small:
        cases = ((slow, 0.05, 10_000, 1e-12), (fast, 5e-4, 10_000, 1e-5))
    for (values, step, count, within), tell in zip(cases, in_parts(progress, [1] * len(cases)), strict=True):
        D = torch.stack([_diag(1, d2) for d2 in values])
        final = _layers(x.expand(len(values), 4, 2), D, -1.0, step, count, tell)
        energies = interaction_energy(final, D)
        for k, d2 in enumerate(values):
            a2, energy = four_particles(1.0, d2)
            found.append(float(final[k, :, 0].square().mean()))
            checks.append(Check.near(f"a^2 at d2 = {d2:g}", found[-1], a2, within))
            checks.append(Check.near(f"energy at d2 = {d2:g}", float(energies[k]), energy, within))
    parameters = {"d": 2, "n": 4, "layers": [c[2] for c in cases], "steps": [c[1] for c in cases]}
    table = {"d2": np.array([*slow, *fast]), "a2": np.array(found)}
    return Experiment(parameters, tuple(checks), table=table)


@register(
    "density",
    reference=_BURGER,
    source="Parameters of the published code. The modes were computed here; the limit 2.0817 is derived here.",
)
def density(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Densities on the circle for diag(1, 1 + eps): their second mode over eps, which tends to 2.0817."""
    known = {-0.1: 2.1759, -0.05: 2.1293, 0.05: 2.0334, 0.1: 1.9848, 0.2: 1.8882, 0.3: 1.7939}
    points = 200 if small else 1000
    checks, modes, everywhere = [], [], (-0.1, -0.05, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    for eps in everywhere:
        solved = circle_density(_diag(1, 1 + eps), points=points, rate=0.1, iterations=1500, tolerance=1e-14)
        modes.append(solved.mode(2) / eps)
        progress(len(modes), len(everywhere) + 1)
        if eps in known:
            checks.append(Check.near(f"second mode over eps at {eps:g}", modes[-1], known[eps], 1e-4))
    tiny = circle_density(_diag(1, 1.001), points=points, rate=0.1, iterations=1500, tolerance=1e-14)
    checks.append(Check.near("the same at eps = 0.001", tiny.mode(2) / 0.001, -first_order_density(2) / 2, 2e-3))
    parameters = {"points": points, "rate": 0.1, "iterations": 1500}
    table = {"eps": np.array(everywhere), "mode": np.array(modes)}
    return Experiment(parameters, tuple(checks), table=table)


@register(
    "negative",
    reference=_BURGER,
    source="Parameters of the published code. The bound cosh of the lowest eigenvalue is derived here.",
)
def negative(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Maximisers for D <= 0: two antipodal clusters on the lowest axis, with masses that need not be equal."""
    count = 500
    cases = {
        "-I": ((-1, -1, -1), 6),
        "-diag(1,3,4)": ((-1, -3, -4), 10 if small else 100),
        "diag(-1,0,0)": ((-1, 0, 0), 10),
    }
    checks, final = [], {}
    parts = in_parts(progress, [runs for _, runs in cases.values()])
    for k, (name, (values, runs)) in enumerate(cases.items()):
        D = _diag(*values)
        x = _layers(uniform_tokens(100, 3, runs=runs, seed=seed + k), D, 1.0, 0.1, count, parts[k])
        final[name] = x
        pairs = (x @ x.mT).abs().amin((-2, -1))
        checks.append(Check.least(f"{name}: least |cosine| of two tokens", float(pairs.min()), 0.9))
        energies = interaction_energy(x, D)
        checks.append(Check(f"{name}: largest energy", float(energies.max()), 1.0, math.cosh(min(values)) + 1e-9))
        if name == "-diag(1,3,4)":
            share = (x[..., 2] > 0).double().mean(-1)
            lighter = float(torch.minimum(share, 1 - share).min())
            checks.append(Check.least(f"{name}: least |x3|", float(x[..., 2].abs().min()), 1 - 1e-6))
            checks.append(Check(f"{name}: least energy", float(energies.min()), 24.5, math.cosh(4)))
            checks.append(Check(f"{name}: lightest cluster", lighter, 0.3, 0.47))
    parameters = {
        "d": 3,
        "n": 100,
        "runs": {k: v[1] for k, v in cases.items()},
        "step": 0.1,
        "layers": count,
        "seed": seed,
    }
    return Experiment(parameters, tuple(checks), final)


@register(
    "indefinite",
    reference=_BURGER,
    source="Parameters of the published code. The crossover ln cosh 1 is derived here.",
)
def indefinite(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """D = diag(-1, d): the pair on e1 is best up to d = ln cosh 1, the point e2 from there on."""
    values = np.linspace(-1, 1, 100)
    one = torch.eye(2, dtype=torch.float64)
    pair = torch.stack([one[0], -one[0]]), torch.stack([one[1], -one[1]])
    point, first, second = (
        np.array([float(interaction_energy(x, _diag(-1, v))) for v in values]) for x in (one[1:], *pair)
    )
    best = np.empty(len(values))
    for k, v in enumerate(values):
        best[k] = energy_optimum(_diag(-1, v)).value
        progress(k + 1, len(values))
    crossover = math.log(math.cosh(1))
    before, after = values[point < first].max(), values[point > first].min()
    checks = (
        Check.near("energy of the point off e^d", float(np.abs(point - np.exp(values)).max()), 0.0, 1e-12),
        Check.near("energy of the pair on e1", float(first.max()), 1.543081, 1e-6),
        Check.near("energy of the pair on e2 off cosh d", float(np.abs(second - np.cosh(values)).max()), 0.0, 1e-12),
        Check("crossover", crossover, float(before), float(after)),
        Check.near("crossover", crossover, 0.4337808, 5e-8),
        Check.near(
            "best of the three off the optimum", float(np.abs(np.maximum(point, first) - best).max()), 0.0, 1e-12
        ),
    )
    table = {"d": values, "point": point, "pair e1": first, "pair e2": second, "optimum": best}
    return Experiment({"values": 100}, checks, table=table)
