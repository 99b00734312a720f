"""The search for the path of least action: couplings, ways round, modes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geoattn.dynamics.mobility.coupling import Coupling, optimal_coupling
from geoattn.dynamics.mobility.path import Arcs, action, great_arcs, path_at, quadrature, shorten

__all__ = ["Found", "bent_again", "refine", "search"]

_COARSE = (5, 10)  # modes and quadrature nodes while couplings are compared
_HONEST = 6  # quadrature nodes for each mode when a path is judged
_FINEST = 40  # modes at most
_ALL = 5  # up to so many tokens all couplings are ranked
_MOST_ENTRIES = 1 << 25  # of the field of a path at all arcs; above, the coupling is not improved


@dataclass(frozen=True)
class Found:
    """A path of the search: its action, its modes about arcs, and the coupling of its ends."""

    action: float
    arcs: Arcs
    bend: Tensor
    coupling: Coupling


def search(
    x: Tensor,
    y: Tensor,
    kernel: Tensor,
    plain: Coupling,
    masses: tuple[np.ndarray, np.ndarray],
    *,
    starts: int,
    seed: int,
) -> list[Found]:
    """Coarse paths from several starts, the best first.

    The first start is the coupling of W2. Each next one is the best coupling, not seen before, by the cost of arcs in
    the field of the best path so far; when there is none, one by a cost with noise.
    """
    rng = np.random.default_rng(seed)
    short = np.zeros(len(plain.mass), dtype=bool)
    found = [_shortened(x, y, kernel, plain, short, seed)]
    seen = {_name(plain, short)}
    if float(found[0].action) == 0.0 or len(x) * len(y) * len(plain.mass) * _COARSE[1] > _MOST_ENTRIES:
        return found
    for attempt in range(3 * starts):
        if len(found) >= starts:
            break
        costs = _arc_costs(x, y, kernel, found[0])
        for coupling, long in _proposals(costs, masses, rng, noise=0.0 if attempt % 2 == 0 else 0.3):
            if _name(coupling, long) not in seen:
                seen.add(_name(coupling, long))
                found.append(_shortened(x, y, kernel, coupling, long, seed + attempt))
                found.sort(key=lambda f: f.action)
                break
    return found


def bent_again(found: list[Found], kernel: Tensor, *, repeats: int, seed: int) -> list[Found]:
    """Paths from the arcs of the best path with random modes: whether they end where it did is a test of the search."""
    best, modes = found[0], len(found[0].bend)
    draw = torch.Generator().manual_seed(seed)
    again = []
    for _ in range(repeats):
        bend = torch.randn(best.bend.shape, generator=draw, dtype=torch.float64)
        size = 0.3 * math.sqrt(best.action / max(1e-300, float(bend.square().sum())))
        value, _, _ = action(best.arcs, size * bend, kernel, _HONEST * modes)
        again.append(_descend(replace(best, action=value, bend=size * bend), kernel, modes, 100))
    return again


def refine(found: list[Found], kernel: Tensor, tolerance: float) -> tuple[Found, float]:
    """The best path with as many modes as it needs, and the error of the quadrature of its length."""
    close = [f for f in found if f.action <= 1.02 * found[0].action][:3]
    better = []
    for f in close:
        best, modes = f, len(f.bend)
        while modes < _FINEST and f.action > 0:
            modes = min(_FINEST, modes + max(4, modes // 2))
            new = _descend(best, kernel, modes, 300)
            gain, best = best.action - new.action, new
            if gain <= tolerance * best.action:
                break
        better.append(best)
    chosen = min(better, key=lambda f: f.action)
    nodes = _HONEST * max(_COARSE[0], len(chosen.bend))
    rough, exact = (action(chosen.arcs, chosen.bend, kernel, k)[0] for k in (nodes, 2 * nodes))
    return replace(chosen, action=exact), abs(math.sqrt(exact) - math.sqrt(rough))


def _descend(start: Found, kernel: Tensor, modes: int, iterations: int) -> Found:
    """A path of less action with so many modes; the start itself if there is none.

    L-BFGS sees twice as many nodes as modes. A path with a jump between two of them is found out by the finer
    quadrature that judges it.
    """
    more = torch.zeros(modes - len(start.bend), *start.bend.shape[1:], dtype=torch.float64)
    _, bend, _ = shorten(start.arcs, torch.cat([start.bend, more]), kernel, 2 * modes, iterations=iterations)
    value, _, _ = action(start.arcs, bend, kernel, _HONEST * modes)
    return replace(start, action=value, bend=bend) if value < start.action else start


def _shortened(x: Tensor, y: Tensor, kernel: Tensor, coupling: Coupling, long: np.ndarray, seed: int) -> Found:
    arcs = great_arcs(
        x[coupling.source], y[coupling.target], torch.from_numpy(coupling.mass), torch.from_numpy(long), seed
    )
    straight = torch.zeros(_COARSE[0], *arcs.x.shape, dtype=torch.float64)
    value, _, _ = action(arcs, straight, kernel, _HONEST * _COARSE[0])
    start = Found(value, arcs, straight, coupling)
    if value == 0.0 or float(kernel.abs().max()) == 0.0:
        return start
    return _descend(start, kernel, _COARSE[0], 60)


def _arc_costs(x: Tensor, y: Tensor, kernel: Tensor, best: Found) -> np.ndarray:
    """Action of each arc, the short way and the long way round, in the field of the best path: (way, n, m)."""
    n, m = len(x), len(y)
    ones = torch.ones(n * m, dtype=torch.float64)
    nodes = _COARSE[1]
    t, weights, waves, slopes = quadrature(nodes, len(best.bend))
    sources, _ = path_at(best.arcs, best.bend, waves, slopes, t)
    costs = []
    for long in (False, True):
        arcs = great_arcs(x.repeat_interleave(m, 0), y.repeat(n, 1), ones, torch.full((n * m,), long, dtype=torch.bool))
        nothing = torch.zeros(0, n * m, x.shape[1], dtype=torch.float64)
        none = torch.zeros(nodes, 0, dtype=torch.float64)
        z, v = path_at(arcs, nothing, none, none, t)
        mass = (z @ kernel @ sources.mT).exp() @ best.arcs.weights
        costs.append((weights[:, None] * mass * v.square().sum(-1)).sum(0).reshape(n, m).numpy())
    return np.stack(costs)


def _proposals(
    costs: np.ndarray, masses: tuple[np.ndarray, np.ndarray], rng: np.random.Generator, noise: float
) -> list[tuple[Coupling, np.ndarray]]:
    """Couplings with their ways round, the most promising first."""
    short, long = costs
    best = np.minimum(short, long)
    n, m = best.shape
    equal = n == m and np.ptp(masses[0]) < 1e-14 and np.ptp(masses[1]) < 1e-14
    if equal and n <= _ALL and noise == 0.0:
        orders = np.array(list(itertools.permutations(range(n))))
        totals = best[np.arange(n), orders].sum(1)
        couplings = [Coupling(np.arange(n), orders[k], masses[0]) for k in np.argsort(totals, kind="stable")[:24]]
    else:
        cost = best * (1 + noise * rng.random(best.shape))
        couplings = [optimal_coupling(cost, *masses)]
    out = []
    for c in couplings:
        way = long[c.source, c.target] < short[c.source, c.target]
        out.append((c, way))
        if noise == 0.0 and n <= _ALL:  # the other way round for the token whose ways differ least
            gap = np.abs(long - short)[c.source, c.target]
            flipped = way.copy()
            flipped[gap.argmin()] ^= True
            out.append((c, flipped))
    order = [float((c.mass * np.where(w, long[c.source, c.target], short[c.source, c.target])).sum()) for c, w in out]
    return [out[k] for k in np.argsort(order, kind="stable")]


def _name(coupling: Coupling, long: np.ndarray) -> tuple[tuple[int, int, bool], ...]:
    return tuple(sorted(zip(coupling.source.tolist(), coupling.target.tolist(), long.tolist(), strict=True)))
