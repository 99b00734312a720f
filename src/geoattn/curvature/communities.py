"""Communities by Ricci flow: let the bridges grow, then cut the longest edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from geoattn._core.display import Displayed
from geoattn._core.errors import GeoattnError
from geoattn.curvature.flow import RicciFlow, ricci_flow
from geoattn.curvature.sparse.flow import EdgeFlow

__all__ = ["Clustering", "RicciCommunities", "cut_scan", "modularity_drops", "ricci_communities"]

_LEAST_MODULARITY = 1e-4  # GraphRicciCurvature does not look at cuts below it
_MOST_CUTOFFS = 10**6


@dataclass(frozen=True, repr=False)
class Clustering(Displayed):
    """The connected components that remain when all edges longer than ``cutoff`` are cut.

    ``labels`` (n,) numbers the components by their first node. It is -1 for a node outside the component that the flow
    ran on.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> best = ga.ricci_communities(nx.barbell_graph(4, 0), choose="modularity", iterations=5).best
    >>> best.count, best.labels.tolist(), round(best.modularity, 4)
    (2, [0, 0, 0, 0, 1, 1, 1, 1], 0.4231)
    """

    cutoff: float
    labels: Int[np.ndarray, " n"]
    modularity: float
    nodes: tuple[Any, ...]

    @property
    def count(self) -> int:
        """Number of communities."""
        return int(self.labels.max()) + 1

    def groups(self) -> list[list[Any]]:
        """The nodes of each community."""
        return [[self.nodes[i] for i in np.flatnonzero(self.labels == k)] for k in range(self.count)]

    def by_node(self) -> dict[Any, int]:
        """Node -> community, as GraphRicciCurvature returns it."""
        return {self.nodes[i]: int(self.labels[i]) for i in np.flatnonzero(self.labels >= 0)}


@dataclass(frozen=True, repr=False)
class RicciCommunities(Displayed):
    """All clusterings that were found, and the best one; what `ricci_communities` returns.

    ``clusterings`` go from the largest cutoff, with few communities, to the smallest. ``cutoffs`` and ``modularity``
    are the scan that they were chosen from. ``flow`` is the Ricci flow that made the lengths.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> found = ga.ricci_communities(nx.barbell_graph(4, 0), choose="modularity", iterations=5)
    >>> len(found.clusterings), found.best.groups(), found.flow.iterations
    (1, [[0, 1, 2, 3], [4, 5, 6, 7]], 5)
    """

    best: Clustering
    clusterings: tuple[Clustering, ...]
    cutoffs: Float[np.ndarray, " c"]
    modularity: Float[np.ndarray, " c"]
    flow: RicciFlow | EdgeFlow


def ricci_communities(
    graph: Any,
    *,
    cutoff_step: float = 0.025,
    drop_threshold: float = 0.01,
    choose: Literal["drop", "modularity"] = "drop",
    **flow: Any,
) -> RicciCommunities:
    r"""Communities of a graph: the components left when edges that Ricci flow made long are cut.

    Cutoffs go from the largest length down to 1, the mean, in steps of ``cutoff_step``; edges longer than the
    cutoff are removed, and the connected components are the communities. ``choose`` says which cutoffs count:

    ``drop``
        What GraphRicciCurvature does. With W_c the length of all edges left in component c, :math:`Q = 1 -
        \sum_c (W_c / W)^2` is the modularity of the graph after the cut; a cutoff is good if Q falls by more
        than ``drop_threshold`` of itself at the next larger one, to a value above 1e-4. The best is the
        smallest good cutoff. One clean cut into equal parts is never good in this sense: Q falls to 0.
    ``modularity``
        Every cutoff that gives a new clustering counts; Q is Newman's modularity of the communities in the
        graph before the flow, each edge with weight 1, and the best has the largest Q.

    Parameters
    ----------
    graph
        A `RicciFlow` or `EdgeFlow`, or a graph for `ricci_flow`, to which further keywords go (``convention``,
        ``iterations``, ...).

    Notes
    -----
    O(c (n + |E|)) for c cutoffs, after the flow. References: Ni, Lin, Luo and Gao, Community detection on
    networks with Ricci flow, 2019; Newman, Modularity and community structure in networks, 2006.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> found = ga.ricci_communities(nx.barbell_graph(5, 0), choose="modularity", iterations=10)
    >>> found.best.groups()
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    """
    for name, value in (("cutoff_step", cutoff_step), ("drop_threshold", drop_threshold)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < float("inf") or (name == "cutoff_step" and value == 0):
            raise GeoattnError(f"{name} must be a positive number; got {value!r}.")
    if choose not in ("drop", "modularity"):
        raise GeoattnError(f"choose must be 'drop' or 'modularity'; got {choose!r}.")
    if isinstance(graph, (RicciFlow, EdgeFlow)):
        if flow:
            raise GeoattnError(f"ricci_communities got a finished flow and also settings of one: {', '.join(flow)}.")
        done = graph
    else:
        done = ricci_flow(graph, **flow)
    scan = _scan(done, float(cutoff_step), choose)
    cutoffs = np.array([c.cutoff for c in scan])
    quality = np.array([c.modularity for c in scan])
    if choose == "drop":
        good = modularity_drops(quality, drop_threshold)
        if not good:
            raise GeoattnError(
                f"no cutoff makes the modularity drop by more than {drop_threshold:g} of itself. Let the flow"
                " run longer, lower drop_threshold, or use choose='modularity', which finds a single cut too."
            )
        best = scan[good[-1]]
    else:
        good = [i for i in range(1, len(scan)) if scan[i].count > scan[i - 1].count]
        if not good:
            raise GeoattnError("no cutoff divides the graph. Let the flow run for more iterations.")
        best = scan[max(good, key=lambda i: quality[i])]
    return RicciCommunities(best, tuple(scan[i] for i in good), cutoffs, quality, done)


def _edges_of(flow: RicciFlow | EdgeFlow) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[Any, ...]]:
    """Ends of the edges, their lengths, the edges before the flow, and the names of all nodes."""
    if isinstance(flow, EdgeFlow):
        return *flow.index.T, flow.lengths, flow.original_index, flow.node_names
    i, j = np.nonzero(np.triu(np.isfinite(flow.lengths), 1))
    before = np.argwhere(np.triu(np.isfinite(flow.original_kappa), 1))
    return i, j, flow.lengths[i, j], before, flow.nodes


def _scan(flow: RicciFlow | EdgeFlow, cutoff_step: float, choose: str) -> list[Clustering]:
    """The clustering at each cutoff, from the largest length down to 1."""
    i, j, length, before, nodes = _edges_of(flow)
    return cut_scan(i, j, length, flow.inside, nodes, cutoff_step, None if choose == "drop" else before)


def cut_scan(
    i: np.ndarray, j: np.ndarray, length: np.ndarray, inside: np.ndarray, nodes: tuple[Any, ...], cutoff_step: float,
    before: np.ndarray | None,
) -> list[Clustering]:  # fmt: skip
    """The same for edges (i, j) of these lengths; modularity after the cut, or Newman's in the graph ``before``."""
    n = len(inside)
    longest = float(length.max())
    if (longest - 1) / cutoff_step > _MOST_CUTOFFS:
        raise GeoattnError(
            f"cutoff_step {cutoff_step:g} makes over {_MOST_CUTOFFS} cutoffs from {longest:g} to 1; raise it."
        )
    cutoffs = np.arange(longest, 1, -cutoff_step)
    if len(cutoffs) == 0:
        raise GeoattnError(
            "no edge is longer than the mean after the flow (all edges are alike): there is nothing to cut."
            " Let the flow run for more iterations, or accept that the graph is one community."
        )
    found: list[Clustering] = []
    kept_before = -1
    for cutoff in cutoffs:
        kept = length <= cutoff
        if kept.sum() == kept_before:  # the same edges, the same communities
            last = found[-1]
            found.append(Clustering(float(cutoff), last.labels, last.modularity, nodes))
            continue
        kept_before = int(kept.sum())
        labels = _components(i[kept], j[kept], n, inside)
        if before is None:
            quality = _cut_modularity(labels[i[kept]], length[kept])
        else:
            quality = _newman_modularity(labels[before])
        found.append(Clustering(float(cutoff), labels, quality, nodes))
    return found


def _components(i: np.ndarray, j: np.ndarray, n: int, inside: np.ndarray) -> Int[np.ndarray, " n"]:
    """Component of each node inside, numbered in the order of their first nodes; -1 outside."""
    _, raw = connected_components(csr_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)
    labels = np.full(n, -1)
    _, first, place = np.unique(raw[inside], return_index=True, return_inverse=True)
    labels[inside] = np.argsort(np.argsort(first))[place]
    return labels


def _cut_modularity(community: Int[np.ndarray, " e"], length: Float[np.ndarray, " e"]) -> float:
    """1 - sum_c (W_c / W)^2: all edges that are left lie inside a community."""
    share = np.bincount(community, weights=length) / length.sum()
    return float(1 - (share**2).sum())


def _newman_modularity(ends: Int[np.ndarray, "e 2"]) -> float:
    """sum_c (edges inside c / |E|) - (degree of c / 2 |E|)^2, from the communities of both ends."""
    inside = float(np.mean(ends[:, 0] == ends[:, 1]))
    degree = np.bincount(ends.ravel()) / ends.size
    return inside - float((degree**2).sum())


def modularity_drops(quality: Float[np.ndarray, " c"], threshold: float) -> list[int]:
    """Places from which modularity falls at the next larger cutoff, in the order of the scan."""
    above, below = quality[:-1], quality[1:]  # at the larger and at the smaller cutoff
    falls = (below > above) & (above > _LEAST_MODULARITY) & (below - above > threshold * below)
    falls[:1] = False  # the largest cutoff cuts nothing, and GraphRicciCurvature stops before it
    return [int(k) + 1 for k in np.flatnonzero(falls)]
