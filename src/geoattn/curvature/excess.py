"""What has to move: of two measures the shared mass stays, the rest goes where the other has more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from geoattn.curvature.transport import IDLE_MASS, Status
from geoattn.graph.build import Graphs
from geoattn.graph.shortest_paths import shortest_paths

__all__ = ["Excess", "MetricGraph", "metric_graph"]

# A set of tokens that mass cannot leave, and that must lose more than this: no plan exists.
_TRAPPED_MASS = 1e-9


@dataclass(frozen=True)
class Excess:
    r"""The transport problem of each pair (x, y) after the shared mass is taken out.

    ``surplus`` is (m_x - m_y)^+ and ``deficit`` (m_y - m_x)^+; W1(m_x, m_y) is the cheapest way from one to
    the other, because under a metric the shared mass can stay. In the Lin-Lu-Yau limit both hold the idle
    mass as well. ``status`` is SOLVED where a value exists, otherwise what `ollivier_ricci` would say.
    ``blocked`` marks pairs of a directed graph with surplus that cannot reach some of the deficit: whether a
    plan exists is not known here.
    """

    surplus: Float[np.ndarray, "e n"]
    deficit: Float[np.ndarray, "e n"]
    distance: Float[np.ndarray, " e"]
    denominator: Float[np.ndarray, " e"]
    status: UInt8[np.ndarray, " e"]
    blocked: Bool[np.ndarray, " e"]


@dataclass(frozen=True)
class MetricGraph:
    """One graph with its distances (infinite: no path); ``inside[x]`` marks the connected part of token x."""

    graphs: Graphs
    place: int
    distances: Float[np.ndarray, "n n"]
    inside: Bool[np.ndarray, "n n"]

    @property
    def idle(self) -> float:
        """Extra mass on the pair itself: 0 but for the Lin-Lu-Yau limit."""
        return IDLE_MASS if self.graphs.convention.alpha == "limit" else 0.0

    def excess(self, pairs: Int[np.ndarray, "e 2"]) -> Excess:
        """The transport problems of some pairs. O(n) each; O(n^2) if directed and not strongly connected."""
        convention = self.graphs.convention
        x, y = pairs.T
        distance = self.distances[x, y]
        lengths = self.graphs.lengths[self.place]
        denominator = lengths[x, y] if convention.denominator == "length" else distance
        measures = self.graphs.measures[self.place]
        difference = measures[x] - measures[y]
        # mass in another part of the graph cannot move: fine where both measures have the same of it
        outside = ~self.inside[x]
        status = np.full(len(pairs), Status.SOLVED, dtype=np.uint8)
        status[((difference != 0) & outside).any(axis=1)] = Status.UNREACHABLE
        status[denominator == 0] = Status.ZERO_DISTANCE
        status[denominator < convention.floor] = Status.BELOW_FLOOR
        status[~(np.isfinite(distance) & np.isfinite(denominator))] = Status.UNREACHABLE
        difference[outside] = 0.0
        each = np.arange(len(pairs))
        difference[each, x] += self.idle
        difference[each, y] -= self.idle
        surplus, deficit = np.maximum(difference, 0.0), np.maximum(-difference, 0.0)
        blocked = np.zeros(len(pairs), dtype=bool)
        reach = np.isfinite(self.distances)
        if convention.directed and not reach.all():
            # what k reaches is a set that no mass can leave
            trapped = (difference @ reach.T.astype(np.float64)).max(axis=1) > _TRAPPED_MASS
            status[trapped & (status == Status.SOLVED)] = Status.UNREACHABLE
            cut_off = (surplus > 0).astype(np.float32) @ (~reach).astype(np.float32)
            blocked = ((cut_off > 0) & (deficit > 0)).any(axis=1) & (status == Status.SOLVED)
        return Excess(surplus, deficit, distance, denominator, status, blocked)


def metric_graph(graphs: Graphs, place: int, *, threads: int | None = None) -> MetricGraph:
    """Distances and connected parts of one of the graphs. O(n^3) once.

    >>> import numpy as np
    >>> from geoattn.graph import Convention, build_graphs
    >>> rows = np.array([[[0.5, 0.25, 0.25], [0.25, 0.75, 0.0], [0.25, 0.25, 0.5]]])
    >>> excess = metric_graph(build_graphs(rows, Convention.of("hop")), 0).excess(np.array([[0, 1]]))
    >>> excess.surplus, excess.deficit
    (array([[0.25, 0.  , 0.25]]), array([[0. , 0.5, 0. ]]))
    """
    lengths, directed = graphs.lengths[place], graphs.convention.directed
    distances = shortest_paths(lengths, directed=directed, threads=threads)
    if not directed:
        return MetricGraph(graphs, place, distances, np.isfinite(distances))
    _, part = connected_components(csr_array(np.isfinite(lengths)), directed=False)
    return MetricGraph(graphs, place, distances, part[:, None] == part)
