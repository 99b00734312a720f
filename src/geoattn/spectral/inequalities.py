"""Inequalities between curvature and eigenvalues, as objects that carry their hypotheses and check themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.spatial.distance
from jaxtyping import Float

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.transport import Status, all_edges, solve_pairs
from geoattn.graph.build import Graphs, build_graphs
from geoattn.graph.convention import Convention
from geoattn.graph.inputs import read_weights
from geoattn.graph.shortest_paths import shortest_paths

__all__ = ["Inequality", "assumed_bound", "contraction_bound", "neighbourhood_bound", "smallest_curvature"]

# What rounding may cost before a theorem counts as violated: eigenvalues of defective maps are the weakest link.
_ROUNDING = 1e-7


@dataclass(frozen=True, repr=False)
class Inequality(Displayed):
    """``left`` <= ``right``: what it says, when it is a theorem, and whether it holds here.

    ``theorem`` is False when a hypothesis does not hold for this input, and ``missing`` names it; the comparison is
    then an observation. ``slack`` = right - left.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import contraction_bound
    >>> bound = contraction_bound(np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]))
    >>> print(bound)
    contraction, hop distance: 0.541421 <= 0.6 holds, slack 0.0586; theorem
    >>> bound.statement
    '|alpha + (1 - alpha) lambda| <= 1 - min kappa over all pairs'
    """

    name: str
    statement: str
    hypotheses: tuple[str, ...]
    missing: tuple[str, ...]
    left: float
    right: float
    reference: str

    @property
    def theorem(self) -> bool:
        """Whether all hypotheses hold."""
        return not self.missing

    @property
    def slack(self) -> float:
        """Right minus left; negative where the comparison fails."""
        return self.right - self.left

    @property
    def holds(self) -> bool:
        """Whether left <= right, to rounding."""
        return self.slack >= -_ROUNDING

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        kind = "theorem" if self.theorem else f"no theorem here ({'; '.join(self.missing)})"
        return f"{self.name}: {self.left:.6g} <= {self.right:.6g} {verdict}, slack {self.slack:.3g}; {kind}"


def smallest_curvature(
    attention: Float[np.ndarray, "n n"], metric: Float[np.ndarray, "n n"], alpha: float = 0.0
) -> float:
    r"""The smallest :math:`\kappa` over all pairs of tokens, for any metric on them and the rows of A as measures.

    With ``alpha`` the measures are :math:`\alpha \delta_x + (1 - \alpha) A(x, \cdot)`. O(n^4) for all pairs, exact.
    """
    n = len(attention)
    measures = alpha * np.eye(n) + (1 - alpha) * attention
    lengths = np.array(metric, dtype=np.float64)
    np.fill_diagonal(lengths, np.inf)
    convention = Convention.of("markov")
    graphs = Graphs(lengths[None], measures[None], measures[None], convention)
    _, pairs, offsets = all_edges(graphs)
    solved = solve_pairs(graphs, pairs, offsets)
    if not (solved.status == Status.SOLVED).all():
        return float("nan")
    return float(solved.kappa.min())


def contraction_bound(attention: Any, metric: Any = "hop", *, alpha: Any = 0.0) -> Inequality:
    r"""Every eigenvalue but the first obeys :math:`|\alpha + (1 - \alpha) \lambda| \le 1 - k`, k the smallest
    curvature.

    A theorem for any row-stochastic A and any true metric on the tokens, with k the minimum over **all pairs**: A
    contracts Lipschitz functions, :math:`\mathrm{Lip}(A f) \le (1 - k) \mathrm{Lip}(f)`. With hop distance on a
    complete graph 1 - k is Dobrushin's coefficient. ``metric`` is "hop" (every two tokens one apart), "-log w"
    (shortest paths for S = (A + A^T)/2), or a matrix of distances. A matrix that is no metric leaves an observation.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import contraction_bound
    >>> complete = (np.ones((6, 6)) - np.eye(6)) / 5
    >>> bound = contraction_bound(complete)  # K_6 without loops: |lambda| = 1/5 = 1 - k, sharp
    >>> bound.holds, bound.theorem, round(bound.slack, 12)
    (True, True, 0.0)
    """
    a = _one_map(attention)
    n = len(a)
    if not (isinstance(alpha, (int, float)) and 0 <= alpha < 1):
        raise GeoattnError(f"alpha must lie in [0, 1); got {alpha!r}.")
    missing: list[str] = []
    if isinstance(metric, str):
        if metric == "hop":
            distances = np.ones((n, n)) - np.eye(n)
        elif metric == "-log w":
            distances = shortest_paths(build_graphs(a[None], Convention.of("markov")).lengths[0])
        else:
            raise GeoattnError(f"metric must be 'hop', '-log w' or an (n, n) array; got {metric!r}.")
    else:
        distances = np.asarray(metric, dtype=np.float64)
        if distances.shape != (n, n):
            raise GeoattnError(f"metric must have shape {(n, n)} like the attention; got {distances.shape}.")
    missing += _not_a_metric(distances)
    hop = bool((distances == 1 - np.eye(n)).all())
    if hop:
        tv = scipy.spatial.distance.pdist(alpha * np.eye(n) + (1 - alpha) * a, "cityblock") / 2
        k = 1.0 - float(tv.max(initial=0.0))
    elif np.isfinite(distances).all() and not (np.triu(distances, 1)[np.triu_indices(n, 1)] <= 0).any():
        k = smallest_curvature(a, distances, alpha)
    else:
        k = float("nan")
    values = np.linalg.eigvals(a)
    others = np.delete(values, np.argmin(np.abs(values - 1)))
    left = float(np.abs(alpha + (1 - alpha) * others).max(initial=0.0))
    return Inequality(
        f"contraction, {metric if isinstance(metric, str) else 'given'} distance",
        "|alpha + (1 - alpha) lambda| <= 1 - min kappa over all pairs",
        ("rows of A sum to one", "a metric: positive, symmetric, triangle inequality", "all pairs, not edges only"),
        tuple(missing),
        left,
        1.0 - k,
        "Ollivier 2009, Proposition 29; for hop distance Dobrushin 1956",
    )


def neighbourhood_bound(weights: Any, t: Any = 1) -> tuple[Inequality, Inequality]:
    r"""Bauer, Jost and Liu: eigenvalues of :math:`\Delta = I - D^{-1} W` lie in :math:`1 \pm (1 - k[t])^{1/t}`.

    W symmetric and non-negative (for attention: S = (A + A^T)/2), loops allowed. k[t] is the smallest curvature over
    the edges of the neighbourhood graph G[t], which has weights :math:`d_x P^t(x, y)`, transition :math:`P^t` and its
    own hop distance. Returns the bounds of the smallest and of the largest eigenvalue beside the first. t = 1 is k <=
    lambda <= 2 - k.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.spectral import neighbourhood_bound
    >>> low, high = neighbourhood_bound(np.ones((6, 6)) - np.eye(6))
    >>> round(low.left, 12), round(high.left, 12), round(high.right, 12)  # k = 0.8, all eigenvalues 1.2 = 2 - k
    (0.8, 1.2, 1.2)
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or len(w) < 2:
        raise GeoattnError(f"weights must have shape (n, n) with n >= 2; got {w.shape}.")
    if not np.isfinite(w).all() or (w < 0).any():
        raise GeoattnError("weights must be finite and not negative.")
    if not isinstance(t, (int, np.integer)) or isinstance(t, bool) or t < 1:
        raise GeoattnError(f"t must be a whole number of at least 1; got {t!r}.")
    missing: list[str] = []
    if not np.allclose(w, w.T, rtol=1e-12, atol=0):
        missing.append("W is not symmetric")
    degree = w.sum(axis=1)
    if (degree <= 0).any():
        raise GeoattnError(f"token {int(np.argmin(degree))} has no edge and no loop: D^-1 W is not defined.")
    p = w / degree[:, None]
    step = np.linalg.matrix_power(p, t)
    reached = shortest_paths(np.where(w > 0, 1.0, np.inf) + np.where(np.eye(len(w)) > 0, np.inf, 0.0))
    if not np.isfinite(reached).all():
        missing.append("the graph is not connected")
    steps = (step + step.T) / 2 > 0
    np.fill_diagonal(steps, False)
    lengths = np.where(steps, 1.0, np.inf)
    if not np.isfinite(shortest_paths(lengths)).all():
        missing.append(f"the neighbourhood graph G[{t}] is not connected: bipartite")
    k = _smallest_over_edges(lengths, step)
    root = np.sqrt(degree)
    values = np.linalg.eigvalsh(np.eye(len(w)) - (root[:, None] * p / root[None, :] + (root[:, None] * p / root).T) / 2)
    radius = max(0.0, 1.0 - k) ** (1.0 / t)
    hypotheses = ("W symmetric, non-negative", "connected", "hop distance of the neighbourhood graph", "edges suffice")
    reference = "Bauer, Jost, Liu 2012, Theorems 4 and 6"
    name = f"Bauer-Jost-Liu t={t}"
    low = Inequality(
        f"{name}, lower", "1 - (1 - k[t])^(1/t) <= lambda_1", hypotheses, tuple(missing), 1.0 - radius,
        float(values[1]), reference,
    )  # fmt: skip
    high = Inequality(
        f"{name}, upper", "lambda_max <= 1 + (1 - k[t])^(1/t)", hypotheses, tuple(missing), float(values[-1]),
        1.0 + radius, reference,
    )  # fmt: skip
    return low, high


def _smallest_over_edges(lengths: np.ndarray, measures: np.ndarray) -> float:
    convention = Convention.of("hop")
    graphs = Graphs(lengths[None], measures[None], measures[None], convention)
    _, pairs, offsets = all_edges(graphs)
    if len(pairs) == 0:
        return float("nan")
    solved = solve_pairs(graphs, pairs, offsets)
    return float(np.nanmin(solved.kappa))


def _one_map(attention: Any) -> Float[np.ndarray, "n n"]:
    weights = read_weights(attention, Convention.of("markov"))
    if weights.flat.shape[0] != 1:
        raise GeoattnError(f"one map at a time: expected (n, n); got {(*weights.shape, weights.n, weights.n)}.")
    return weights.chunk(0, 1)[0]


def _not_a_metric(d: Float[np.ndarray, "n n"]) -> list[str]:
    n = len(d)
    off = ~np.eye(n, dtype=bool)
    found = []
    if not np.isfinite(d).all():
        found.append("some pairs are unreachable")
    if (d[off] <= 0).any():
        found.append("two tokens are at distance 0")
    if not np.array_equal(d, d.T) or np.diagonal(d).any():
        found.append("not symmetric with a zero diagonal")
    if not found:
        shortest = shortest_paths(np.where(off, d, np.inf))
        if (d > shortest * (1 + 1e-12)).any():
            found.append("the triangle inequality fails")
    return found


def assumed_bound(attention: Any, convention: str | Convention) -> Inequality:
    r"""What the Ricci paper assumes: :math:`k \le 1 - |\lambda_2|`, with k over the edges under a convention of its
    choice.

    No theorem: the measures of the grc presets are not the rows of A. Shows where it fails.
    """
    a = _one_map(attention)
    rules = Convention.of(convention)
    k = float(ollivier_ricci(a, rules).values().min())
    values = np.linalg.eigvals(a)
    second = float(np.abs(np.delete(values, np.argmin(np.abs(values - 1)))).max(initial=0.0))
    return Inequality(
        f"assumed under {rules.name}", "min kappa over edges <= 1 - |lambda_2|", ("measures are the rows of A",
        "all pairs"), () if rules.measure == "markov" and rules.alpha == 0 and rules.length == "hop" and (a > 0).all()
        else ("curvature of other measures or of edges only",),
        k, 1.0 - second, "",
    )  # fmt: skip
