"""Certified lower and upper bounds of Ollivier-Ricci curvature, without solving transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn._core.arguments import Count, read_count
from geoattn._core.display import Displayed
from geoattn._version import __version__
from geoattn.curvature.excess import Excess, MetricGraph, metric_graph
from geoattn.curvature.layout import Edges, flat_places, lay_out, read_edges
from geoattn.curvature.ollivier import choose_pairs, chunks
from geoattn.curvature.transport import Status, solve_pairs
from geoattn.curvature.w1_bounds import Kernels, w1_bounds
from geoattn.graph.build import Graphs
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.sparse_inputs import is_sparse

__all__ = ["CurvatureBounds", "curvature_bounds"]

_SOLVER_ROUNDING = 4e-12  # of kappa, twice what the exact solver may lose by rounding masses
_BLOCK_ENTRIES = 1 << 17  # edges times tokens in work at once; some ten arrays of that size exist


@dataclass(frozen=True, repr=False)
class CurvatureBounds(Displayed):
    """Bounds lower <= kappa <= upper of each edge, in the layout of `Curvature`; what `curvature_bounds` returns.

    Both are NaN where there is no value, and ``status`` says why. With a sample of edges the arrays are 1-D, and
    ``index`` (e, batch axes + 2) says where each edge is.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> attention = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    >>> bounds = ga.curvature_bounds(attention)
    >>> lower, upper = bounds.values()
    >>> lower.round(3), bool((upper - lower).max() < 1e-9), bounds.summary()["sign_known"]
    (array([0.468, 0.44 , 0.534]), True, 1.0)
    """

    lower: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]
    status: UInt8[np.ndarray, "..."]
    convention: Convention
    shape: tuple[int, ...]
    index: Int[np.ndarray, "e k"] | None = None
    edges: int = 0  # in the graphs, of which a sample may hold only some
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> Float[np.ndarray, "..."]:
        """Upper minus lower bound."""
        return self.upper - self.lower

    def values(self) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
        """(lower, upper) of the edges that have a value, each edge once, 1-D."""
        wanted = np.isfinite(self.lower)
        if self.index is None and not self.convention.directed:
            wanted &= np.triu(np.ones(self.shape[-2:], dtype=bool), 1)
        return self.lower[wanted], self.upper[wanted]

    def summary(self) -> dict[str, Any]:
        """Brackets of the mean and of the share of negative edges; widths; share of edges of certain sign."""
        lower, upper = self.values()
        stats: dict[str, Any] = {
            "mean": (float("nan"), float("nan")), "negative_share": (float("nan"), float("nan")),
            "sign_known": float("nan"), "width_mean": float("nan"), "width_max": float("nan"),
        }  # fmt: skip
        if len(lower):
            stats = {
                "mean": (float(lower.mean()), float(upper.mean())),
                "negative_share": (float(np.mean(upper < 0)), float(np.mean(lower < 0))),
                "sign_known": float(np.mean((lower > 0) | (upper < 0))),
                "width_mean": float((upper - lower).mean()),
                "width_max": float((upper - lower).max()),
            }
        return {
            **stats,
            "edges": self.edges,
            "values": len(lower),
            "convention": self.convention.name,
        }


def curvature_bounds(
    attention: Any,
    convention: str | Convention = "markov",
    *,
    edges: Edges = "all",
    mask: Any = None,
    seed: Count = 0,
    steps: Count = 4,
) -> CurvatureBounds:
    r"""Lower and upper bounds of the Ollivier-Ricci curvature of each edge, without solving for it.

    kappa = 1 - W1 / D, so a bound of W1 from either side bounds kappa from the other. Let s = (m_x - m_y)^+
    be what has to move, t = (m_y - m_x)^+ where it is missing, d the distance of the graph.

    * Any function with f(a) - f(b) <= d(a, b) shows :math:`W_1 \ge \langle s - t, f \rangle`. Taken is the
      best of d(., k) and -d(k, .) for all tokens k; of the distance to the nearest other token; and of the
      soft distances :math:`f = -\epsilon \log K v`, :math:`K = e^{-d/\epsilon}`, which have the property for
      every v >= 0 by the triangle inequality.
    * Any plan P from s to t shows :math:`W_1 \le \langle P, d \rangle`. Taken is the better of the
      independent plan :math:`s t^\top / |s|` and :math:`\mathrm{diag}(u) K \mathrm{diag}(v)` cut to the
      marginals, its rest independent. By the triangle inequality the independent plan costs no more than any
      plan through one hub, or than total variation times the largest distance, so these need not be tried.

    u and v come from a few Sinkhorn steps, matrix products for all edges of a graph at once; epsilon is 0.05
    of the mean distance. All bounds allow for the rounding of float64. Directed graphs and the Lin-Lu-Yau
    limit are covered. Where part of the surplus of a directed pair cannot reach part of the deficit, as in
    causal attention, no plan is known beforehand to be possible: those pairs are solved exactly.

    Parameters
    ----------
    attention, convention, edges, mask, seed
        As in `ollivier_ricci`; the same seed draws the same edges. An edge of a sparse graph costs microseconds: its
        bounds are the exact value and the duality gap.
    steps
        Sinkhorn steps for the bounds by K; 0 leaves those out.

    Returns
    -------
    CurvatureBounds
        ``lower`` and ``upper``, NaN with a status in the same places as in `ollivier_ricci`; but an edge that it
        cannot certify (UNCERTAIN) still has bounds.

    Notes
    -----
    O(n^2) per edge in matrix products, O(n^3) once per graph. Mean of upper - lower over edges of
    softmax attention with normal logits of standard deviation 1 (4), beside the spread of kappa itself, and
    the time as a share of that of the exact value, one thread:

    ========  ===  ===============  ===============  =================  ==========  ==========
    preset    n    steps=0          steps=4          std of kappa       steps=0     steps=4
    ========  ===  ===============  ===============  =================  ==========  ==========
    markov    17   0.17 (0.13)      0.028 (0.027)    0.13 (0.36)        above 1     above 1
    markov    65   0.20 (0.20)      0.041 (0.042)    0.083 (0.28)       0.1 (0.3)   0.4 (0.6)
    markov    197  0.20 (0.22)      0.058 (0.046)    0.061 (0.23)       0.1 (0.2)   0.3 (0.4)
    grc-0.6   65   0.0002 (0.002)   0.0001 (0.001)   0.0001 (0.054)     0.2 (0.4)   0.5 (1.5)
    grc-0.6   197  2e-5 (2e-4)      9e-6 (9e-5)      8e-6 (0.17)        0.1 (0.8)   0.3 (0.8)
    ========  ===  ===============  ===============  =================  ==========  ==========

    The sign of kappa is certain for 98 % of the edges under ``markov``. Under ``hop`` on a complete graph the
    bounds meet. Short edges of graphs whose lengths span many orders of magnitude get wide bounds. For few
    tokens, and where most edges lie below the floor, `ollivier_ricci` is quicker.

    References: Peyre and Cuturi, Computational Optimal Transport, 2019, sections 4 and 6; Altschuler, Weed
    and Rigollet, 2017, algorithm 2 (cutting a plan to its marginals).

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> attention = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    >>> bounds = ga.curvature_bounds(attention)
    >>> kappa = ga.ollivier_ricci(attention).kappa
    >>> bool(np.all((bounds.lower <= kappa) & (kappa <= bounds.upper) | np.isnan(kappa)))
    True
    """
    convention = Convention.of(convention)
    sample = read_edges(edges)
    seed, steps = read_count("seed", seed, least=0), read_count("steps", steps, least=0)
    if is_sparse(attention):
        from geoattn.curvature.sparse.bounds import sparse_curvature_bounds

        return sparse_curvature_bounds(attention, convention, edges=edges, mask=mask, seed=seed)
    weights = read_weights(attention, convention, mask)
    graph_of, pairs_of, lower, upper, status = [], [], [], [], []
    edge_count = 0
    for first, graphs in chunks(weights):
        _, pairs, offsets, available = choose_pairs(graphs, sample, seed, first)
        edge_count += available
        for g in range(len(offsets) - 1):
            mine = pairs[offsets[g] : offsets[g + 1]]
            if len(mine) == 0:
                continue
            graph_of.append(np.full(len(mine), first + g))
            pairs_of.append(mine)
            for part in _bound_graph(graphs, g, mine, steps):
                lower.append(part[0])
                upper.append(part[1])
                status.append(part[2])
    columns = {
        "lower": np.concatenate([*lower, np.empty(0)]),
        "upper": np.concatenate([*upper, np.empty(0)]),
        "status": np.concatenate([*status, np.empty(0, np.uint8)]),
    }
    graph = np.concatenate([*graph_of, np.empty(0, int)])
    where = np.concatenate([*pairs_of, np.empty((0, 2), np.int32)])
    settings = {
        "edges": "all" if sample is None else sample, "seed": seed, "steps": steps, "dtype": weights.dtype,
        "geoattn": __version__, "numpy": np.__version__,
    }  # fmt: skip
    return CurvatureBounds(
        **lay_out(columns, flat_places(graph, where, weights.n), weights, dense=sample is None),
        convention=convention,
        edges=edge_count,
        settings=settings,
    )


def _bound_graph(graphs: Graphs, place: int, pairs: Int[np.ndarray, "e 2"], steps: int) -> Any:
    """(lower, upper, status) of the pairs of one graph, block by block."""
    metric = metric_graph(graphs, place)
    kernels = Kernels.of(metric)
    step = max(1, _BLOCK_ENTRIES // len(metric.distances))
    for start in range(0, len(pairs), step):
        block = pairs[start : start + step]
        problem = metric.excess(block)
        status = problem.status.copy()
        low, high = w1_bounds(problem, kernels, steps)
        if problem.blocked.any():
            _solve_blocked(metric, block, problem, low, high, status)
        denominator = np.where(status == Status.SOLVED, problem.denominator, np.nan)
        rounding = _SOLVER_ROUNDING * (1 + metric.idle)
        lower = 1.0 + metric.idle - high / denominator - rounding
        upper = 1.0 + metric.idle - low / denominator + rounding
        if metric.idle == 0:
            upper = np.minimum(upper, 1.0)  # W1 >= 0
        lower[status == Status.BELOW_FLOOR] = upper[status == Status.BELOW_FLOOR] = 0.0
        yield lower, upper, status


def _solve_blocked(
    metric: MetricGraph,
    pairs: Int[np.ndarray, "e 2"],
    problem: Excess,
    low: Float[np.ndarray, " e"],
    high: Float[np.ndarray, " e"],
    status: UInt8[np.ndarray, " e"],
) -> None:
    """Overwrite the bounds of blocked pairs by the exact value and its duality gap."""
    all_graphs, one = metric.graphs, slice(metric.place, metric.place + 1)
    graph = Graphs(all_graphs.lengths[one], all_graphs.measures[one], all_graphs.attention[one], all_graphs.convention)
    which = np.flatnonzero(problem.blocked)
    chosen = np.ascontiguousarray(pairs[which])
    solved = solve_pairs(graph, chosen, np.array([0, len(chosen)], dtype=np.int64))
    status[which] = solved.status
    low[which] = solved.w1 * (1 - np.maximum(solved.gap, 0.0) - 1e-14)
    high[which] = solved.w1 * (1 + 1e-14)
