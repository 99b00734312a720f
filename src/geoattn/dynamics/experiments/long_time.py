"""What happens after a long time or in a long context: phase diagram, staircase, collapse, merging."""

from __future__ import annotations

import math

import numpy as np
import torch

from geoattn._core.progress import Progress, in_parts
from geoattn.dynamics.attend import attend
from geoattn.dynamics.closed_forms import long_context_cosine
from geoattn.dynamics.experiments.outcome import Check, Experiment
from geoattn.dynamics.experiments.registry import register
from geoattn.dynamics.interaction import read_interaction
from geoattn.dynamics.phase import phase_diagram
from geoattn.dynamics.simulation import simulate
from geoattn.dynamics.staircase import energy_staircase
from geoattn.dynamics.starts import equiangular_tokens, uniform_tokens

__all__ = ["causal", "long_context", "phase", "staircase"]


@register(
    "phase-diagram",
    reference="Geshkovski, Letrouit, Polyanskiy and Rigollet 2023, arXiv 2312.10794",
    source="Theorem 6.9 and figure 3 of the paper state the limit of high dimension; the runs and the margin are ours.",
)
def phase(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Time at which half of the pairs of 32 uniform tokens are together, against beta: in high dimension the theory."""
    if small:
        diagram = phase_diagram([0.5, 3.5, 5.0], [512], runs=8, until=12.0, seed=seed, progress=progress)
    else:
        diagram = phase_diagram(seed=seed, progress=progress)
    table = diagram.to_pandas()
    high, excess = diagram.dims.tolist().index(512), diagram.excess()
    moderate = diagram.betas <= 5
    worst = float(np.abs(excess[high, moderate]).max())
    checks = (Check("d = 512, beta <= 5: largest relative distance from the curve", worst, 0.0, 0.02),)
    above = [(b, e) for b, e in zip(diagram.betas[~moderate], excess[high, ~moderate], strict=True) if np.isfinite(e)]
    late = ", ".join(f"{100 * e:+.1f} % at {b:.2f}" for b, e in above)
    notes = (
        (f"beyond beta = 5, d = 512, against the curve: {late}; not together by t = 30 above that.",) if late else ()
    )
    columns = {name: table[name].to_numpy() for name in table.columns}
    return Experiment(diagram.settings, checks, table=columns, notes=notes)


@register(
    "staircase",
    reference="Geshkovski, Koubbi, Polyanskiy and Rigollet 2024, arXiv 2410.06833",
    source="The paper shows the staircase; the heights and the slope of the logarithm of the time are derived here.",
)
def staircase(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """Five tokens on the circle at large beta merge one after the other; the logarithm of the time grows like beta."""
    betas = (500.0, 2000.0) if small else (500.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0)
    start = 0.5 * math.log(2000) / math.sqrt(2000) * np.array([0, 0.5, 2, 4, 7])
    runs, checks = [], []
    for beta in betas:
        runs.append(energy_staircase(start, beta))
        progress(len(runs), len(betas))
    for beta, run in zip(betas, runs, strict=True):
        checks.append(Check.near(f"mergers at beta = {beta:g}", len(run.log_t), 4, 0))
        off = float(np.abs(run.plateau - run.heights)[2:].max())
        checks.append(Check.near(f"plateaus off the sum of squared masses at beta = {beta:g}", off, 0.0, 1e-3))
        checks.append(Check.near(f"second plateau at beta = {beta:g}", float(run.plateau[1]), 7 / 25, 4e-3))
    # a pair at the angle g needs about exp(beta (1 - cos g)) / (beta sin(g)^2)
    slope = (runs[-1].log_t - runs[0].log_t + math.log(betas[-1] / betas[0]))[1:] / (betas[-1] - betas[0])
    # the gap that each merger must cross: of the third token from the first two, of the last two, of the two groups
    unit = start[1] / 0.5
    middle = (0.25 * 2 + 2) * unit / 3
    gaps = np.array([1.75 * unit, 3 * unit, 5.5 * unit - middle])
    worst = float(np.abs(slope / (1 - np.cos(gaps)) - 1).max())
    checks.append(Check.near("slope of log(beta t) against beta, off 1 - cos(gap), relative", worst, 0.0, 0.05))
    table = {"beta": np.array(betas), **{f"log t {k}": np.array([r.log_t[k] for r in runs]) for k in range(4)}}
    table |= {f"plateau {k}": np.array([r.plateau[k] for r in runs]) for k in range(5)}
    return Experiment({"betas": betas, "n": 5}, tuple(checks), table=table)


@register(
    "causal",
    reference="Karagodin, Polyanskiy and Rigollet 2024, arXiv 2411.04990",
    source="The abstract states convergence of almost every start to one cluster; the runs and the margins are ours.",
)
def causal(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """With a causal mask and V = I all tokens end at the first, which never moves, whatever the queries and keys."""
    runs, end = (4, 60.0) if small else (16, 160.0)
    x = uniform_tokens(20, 3, runs=runs, seed=seed)
    first_half, second_half = in_parts(progress, (1, 1))
    plain = simulate(x, causal=True, until=end, step=0.3, save=2, observe=(), progress=first_half)
    draw = torch.Generator().manual_seed(seed)
    D = torch.randn(runs, 3, 3, generator=draw, dtype=torch.float64)
    mixed = simulate(x, D=D, causal=True, until=end, step=0.3, save=2, observe=(), progress=second_half)
    first = x[:, :1]
    apart = float((plain.final - first).norm(dim=-1).max())
    share = float(((mixed.final - first).norm(dim=-1).amax(-1) < 1e-6).double().mean())
    checks = (
        Check("D = I: largest distance to the first token", apart, 0.0, 1e-9 if small else 1e-12),
        Check.near("D = I: move of the first token", float((plain.final[:, 0] - x[:, 0]).abs().max()), 0.0, 1e-14),
        Check.least("random D: share of runs at the first token", share, 0.7),
    )
    parameters = {"n": 20, "d": 3, "runs": runs, "until": end, "step": 0.3, "seed": seed}
    return Experiment(parameters, checks, {"D = I": plain.final})


@register(
    "long-context",
    reference="arXiv 2510.05554",
    source="The paper states the three limits; the formula at a finite number of tokens is derived here.",
)
def long_context(*, small: bool, seed: int, progress: Progress) -> Experiment:
    """One layer on n equiangular tokens at beta = gamma log n merges all, some or none, by gamma (1 - cosine)."""
    n = 256 if small else 2048
    checks, rows = [], []
    for rho in (0.2, 0.5):
        for factor in (0.5, 1.0, 2.0):
            gamma = factor / (1 - rho)
            x = equiangular_tokens(n, rho)
            out, _ = attend(x[None], read_interaction(x, beta=gamma * math.log(n)))
            y = out[0, :2] / out[0, :2].norm(dim=-1, keepdim=True)
            found, limit = float(y[0] @ y[1]), long_context_cosine(rho, gamma)
            rows.append((rho, factor, found, long_context_cosine(rho, gamma, 10**12), limit))
            progress(len(rows), 6)
            name = f"cosine {rho:g}, gamma {factor:g}/(1 - cosine)"
            exact = long_context_cosine(rho, gamma, n)
            checks.append(Check.near(f"{name}: layer off the formula", found - exact, 0.0, 1e-10))
            checks.append(Check.near(f"{name}: formula at n = 1e12", rows[-1][3], limit, 2e-5))
    names = ("cosine", "gamma (1 - cosine)", "layer", "n = 1e12", "limit")
    table = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return Experiment({"n": n}, tuple(checks), table=table)
