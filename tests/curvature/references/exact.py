"""Reference curvature, written from the definitions alone: nothing here calls or imports geoattn.

Weights, lengths, measures, denominators and the rules of GraphRicciCurvature are spelled out anew; distances come from
a plain Floyd-Warshall. Three solvers stand for each other where one of them fails:

pot      POT's network simplex on the costs divided by the distance of the pair: quick, good to about 1e-12.
highs    SciPy's HiGHS, scaled costs, tolerances of 1e-10.
exact    networkx's network simplex on the graph's own edges with integers: floats are whole multiples of a power of
         two, so the answer is the exact one, whatever the range of weights. For graphs of up to about 20 nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction

import networkx as nx
import numpy as np
from ot.lp.emd_wrap import emd_c
from scipy.optimize import linprog
from scipy.sparse import csr_array

GRC_EPSILON = 1e-7  # GraphRicciCurvature's own constant: no curvature below it, no neighbour weights below it


@dataclass(frozen=True)
class Rule:
    """The parts of a convention that decide a number; the defaults are the preset `markov`."""

    direction: str = "mean"
    length: str = "-log w"
    measure: str = "markov"
    alpha: float = 0.0
    denominator: str = "distance"
    exponent: float = 2.0
    floor: float = 0.0

    @classmethod
    def of(cls, convention: object) -> Rule:
        """The rule by the name of a preset, or from the parts of a convention."""
        if isinstance(convention, str):
            return PRESET_RULES[convention]
        return cls(**{part.name: getattr(convention, part.name) for part in fields(cls)})


PRESET_RULES = {
    "markov": Rule(),
    "hop": Rule(length="hop"),
    "grc-0.6": Rule(length="w", measure="exponential", alpha=0.5, floor=GRC_EPSILON),
    "grc-0.5": Rule(length="w", measure="exponential", alpha=0.5, floor=GRC_EPSILON, denominator="length"),
}


@dataclass(frozen=True)
class Problem:
    """One graph: lengths and distances (infinite: none), the measure of node x in row x."""

    lengths: np.ndarray
    distances: np.ndarray
    measures: np.ndarray
    rule: Rule

    def pairs(self) -> np.ndarray:
        """The edges: i < j, or all ordered pairs of a directed graph."""
        edge = np.isfinite(self.lengths)
        return np.argwhere(edge if self.rule.direction == "directed" else np.triu(edge))

    def kappa(self, x: int, y: int, solver: str = "pot") -> tuple[float, str]:
        """Curvature of a pair and the status it should have; NaN where it is not defined."""
        d = self.distances[x, y]
        denominator = self.lengths[x, y] if self.rule.denominator == "length" else d
        if np.isinf(denominator) or np.isinf(d):
            return np.nan, "unreachable"
        if denominator < self.rule.floor:
            return 0.0, "below_floor"
        if denominator == 0:
            return np.nan, "zero_distance"
        if solver == "exact":
            return self._exact(x, y)
        with np.errstate(over="ignore"):  # a subnormal distance: the exact solver has to decide
            cost = self.distances / (d or denominator)
        w1 = {"pot": w1_pot, "highs": w1_highs}[solver](self.measures[x], self.measures[y], cost)
        return (np.nan, "unreachable") if np.isnan(w1) else (1 - w1 * ((d or denominator) / denominator), "solved")

    def _exact(self, x: int, y: int) -> tuple[float, str]:
        w1, d = w1_exact(self.measures[x], self.measures[y], self.lengths, x, y)
        if w1 is None:
            return np.nan, "unreachable"
        assert d is not None
        denominator = Fraction(self.lengths[x, y]) if self.rule.denominator == "length" else d
        return float(1 - w1 / denominator), "solved"


def problem(rows: np.ndarray, convention: object) -> Problem:
    """The graph of one matrix of attention or weights (n, n) under a convention, literally by the tables."""
    rule = Rule.of(convention)
    a = np.asarray(rows, dtype=np.float64)
    n = len(a)
    if rule.measure == "markov":
        a = a / a.sum(axis=1)[:, None]
    one_per_pair = {
        "mean": lambda p, q: (p + q) / 2,
        "max": max,
        "min": min,
        "product": lambda p, q: p * q,
        "directed": lambda p, q: p,
    }[rule.direction]
    length_of = {
        "w": lambda w: w,
        "1/w": lambda w: 1 / w,
        "-log w": lambda w: max(0.0, -np.log(w)),  # a normalised weight may be 1 + 1e-16
        "1-w": lambda w: max(0.0, 1 - w),
        "hop": lambda w: 1.0,
    }[rule.length]
    lengths = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            w = one_per_pair(a[i, j], a[j, i])
            if i != j and w > 0:
                lengths[i, j] = length_of(w)
    measures = np.stack([measure_of(a[v], lengths[v], v, rule) for v in range(n)])
    return Problem(lengths, floyd_warshall(lengths), measures, rule)


def measure_of(row: np.ndarray, lengths: np.ndarray, v: int, rule: Rule) -> np.ndarray:
    """Mass alpha on v and the rest by the rule; a node without neighbours keeps all of it."""
    neighbours = np.flatnonzero(np.isfinite(lengths))
    own = np.zeros(len(row))
    own[v] = 1.0
    if rule.measure == "markov":
        return rule.alpha * own + (1 - rule.alpha) * row
    if len(neighbours) == 0:
        return own
    shares = np.zeros(len(row))
    shares[neighbours] = 1 / len(neighbours)
    if rule.measure == "exponential":
        with np.errstate(over="ignore"):
            decay = np.exp(-(lengths[neighbours] ** rule.exponent))
        if decay.sum() > GRC_EPSILON:
            shares[neighbours] = decay / decay.sum()
    return rule.alpha * own + (1 - rule.alpha) * shares


def floyd_warshall(lengths: np.ndarray) -> np.ndarray:
    """Shortest-path distances, three lines."""
    d = np.where(np.eye(len(lengths), dtype=bool), 0.0, lengths)
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def w1_pot(p: np.ndarray, q: np.ndarray, cost: np.ndarray) -> float:
    """POT; NaN when no transport of finite cost exists."""
    source, sink = p > 0, q > 0
    cost = np.ascontiguousarray(cost[source][:, sink])
    a, b = p[source] / p.sum(), q[sink] / q.sum()
    barred = ~np.isfinite(cost)
    if barred.any():  # a way that costs more than any other is taken only if there is no other
        wall = 4 * len(a) * max(1.0, cost[~barred].max(initial=0.0))
        cost = np.where(barred, wall, cost)
    plan, _, _, _, code = emd_c(a, b, cost, 1_000_000, 1)
    if code != 1:
        raise ArithmeticError(f"POT failed with code {code}")
    if plan[barred].sum() > 1e-9:
        return np.nan
    return float((plan * cost).sum()) if not barred.any() else float((plan * np.where(barred, 0, cost)).sum())


def w1_highs(p: np.ndarray, q: np.ndarray, cost: np.ndarray) -> float:
    """HiGHS on what is left when the mass that both measures share stays; NaN when there is no transport."""
    move = p / p.sum() - q / q.sum()
    source, sink = np.flatnonzero(move > 0), np.flatnonzero(move < 0)
    if len(source) == 0 or len(sink) == 0:
        return 0.0
    cost = cost[np.ix_(source, sink)]
    i, j = np.nonzero(np.isfinite(cost))
    if len(i) == 0:
        return np.nan
    supply, demand = move[source], -move[sink]
    mass = supply.sum()
    supply, demand = supply / mass, demand / demand.sum()
    count = np.arange(len(i))
    constraints = csr_array(
        (np.ones(2 * len(i)), (np.concatenate([i, len(source) + j]), np.concatenate([count, count]))),
        shape=(len(source) + len(sink), len(i)),
    )
    scale = max(cost[i, j].max(), np.finfo(float).tiny)
    answer = linprog(
        cost[i, j] / scale,
        A_eq=constraints,
        b_eq=np.concatenate([supply, demand]),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status == 2:
        return np.nan
    if answer.status != 0:
        raise ArithmeticError(f"HiGHS: {answer.message}")
    return float(answer.fun) * scale * float(mass)


def w1_exact(
    p: np.ndarray, q: np.ndarray, lengths: np.ndarray, x: int, y: int
) -> tuple[Fraction | None, Fraction | None]:
    """W1 of p / sum(p) and q / sum(q), and d(x, y), without any rounding; None where they are infinite."""
    whole_p, _ = _whole_numbers(p)
    whole_q, _ = _whole_numbers(q)
    sum_p, sum_q = sum(whole_p), sum(whole_q)
    supply = [a * sum_q - b * sum_p for a, b in zip(whole_p, whole_q, strict=True)]
    everything = sum(s for s in supply if s > 0)
    edges = np.argwhere(np.isfinite(lengths))
    whole_lengths, unit = _whole_numbers(lengths[tuple(edges.T)])
    graph = nx.DiGraph()
    graph.add_nodes_from((v, {"demand": -s}) for v, s in enumerate(supply))
    for (u, v), length in zip(edges.tolist(), whole_lengths, strict=True):
        graph.add_edge(u, v, weight=length, capacity=max(everything, 1))
    try:
        distance = nx.bellman_ford_path_length(graph, x, y)
        cost = nx.network_simplex(graph)[0] if everything else 0
    except (nx.NetworkXUnfeasible, nx.NetworkXNoPath):
        return None, None
    return Fraction(cost, sum_p * sum_q) * unit, distance * unit


def _whole_numbers(values: np.ndarray) -> tuple[list[int], Fraction]:
    """Floats as whole multiples of one power of two."""
    ratios = [float(v).as_integer_ratio() for v in values]
    scale = max((bottom for _, bottom in ratios), default=1)
    return [top * (scale // bottom) for top, bottom in ratios], Fraction(1, scale)
