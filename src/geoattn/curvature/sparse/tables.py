"""What results of sparse graphs have in common: a value for each edge, by the names of its nodes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.errors import GeoattnError
from geoattn.graph.convention import Convention
from geoattn.graph.sparse_inputs import is_networkx

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EdgeTable"]

_ROWS_SHOWN = 5


class EdgeTable:
    """Base of results with ``kappa`` (e,), ``index`` (e, 2), ``names``, ``shape`` (n, n) and ``convention``."""

    kappa: Float[np.ndarray, " e"]
    index: Int[np.ndarray, "e 2"]
    names: tuple[Any, ...] | None
    shape: tuple[int, ...]
    convention: Convention

    def values(self) -> Float[np.ndarray, " e"]:
        """The finite curvatures, each edge once, 1-D."""
        return self.kappa[np.isfinite(self.kappa)]

    def nodes(self) -> Float[np.ndarray, " n"]:
        """Curvature of each node, (n,): the mean over its edges that have a value, NaN for a node without any.

        In a directed graph the edges of a node are those that leave it.
        """
        have = np.isfinite(self.kappa)
        index, kappa = self.index[have], self.kappa[have]
        ends = index[:, :1] if self.convention.directed else index
        repeated = np.repeat(kappa, ends.shape[1])
        n = self.shape[0]
        count = np.bincount(ends.ravel(), minlength=n)
        total = np.bincount(ends.ravel(), weights=repeated, minlength=n)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    node_curvature = nodes

    def to_dict(self) -> dict[tuple[Any, Any], float]:
        """(node, node) -> kappa, by the names of the nodes."""
        source, target = self._named_ends()
        return dict(zip(zip(source, target, strict=True), self.kappa.tolist(), strict=True))

    def annotate(self, graph: Any, attribute: str = "ricciCurvature") -> Any:
        """Put the curvature on the edges, and its mean on the nodes, of a networkx graph; returns the graph.

        Edges and nodes without a value keep what they have. An edge that the graph does not have is an error.
        """
        if not is_networkx(graph):
            raise GeoattnError(f"annotate needs a networkx graph; got {type(graph).__name__}.")
        have = np.isfinite(self.kappa)
        for (u, v), value in zip(self._pairs(have), self.kappa[have].tolist(), strict=True):
            if not graph.has_edge(u, v):
                raise GeoattnError(f"annotate: the graph has no edge ({u!r}, {v!r}); is it another graph?")
            graph[u][v][attribute] = value
        mean = self.nodes()
        for k in np.flatnonzero(np.isfinite(mean)):
            graph.nodes[self._name(int(k))][attribute] = float(mean[k])
        return graph

    def to_pandas(self) -> pd.DataFrame:
        """One row per edge: the names of its nodes in ``source`` and ``target``, and kappa."""
        import pandas as pd

        source, target = self._named_ends()
        return pd.DataFrame({"source": source, "target": target, "kappa": self.kappa})

    def _name(self, k: int) -> Any:
        return k if self.names is None else self.names[k]

    def _named_ends(self) -> tuple[list[Any], list[Any]]:
        source, target = self.index[:, 0].tolist(), self.index[:, 1].tolist()
        if self.names is None:
            return source, target
        return [self.names[k] for k in source], [self.names[k] for k in target]

    def _pairs(self, wanted: np.ndarray) -> Any:
        source, target = self._named_ends()
        return ((source[k], target[k]) for k in np.flatnonzero(wanted))

    def _repr_html_(self) -> str:
        """A line and the edges of lowest and highest curvature, for notebooks."""
        order = np.argsort(self.kappa, kind="stable")[: len(self.values())]  # NaN comes last
        shown = order if len(order) <= 2 * _ROWS_SHOWN else np.concatenate([order[:_ROWS_SHOWN], order[-_ROWS_SHOWN:]])
        lines = [
            f"<p><code>{escape(repr(self))}</code></p>",
            "<table><tr><th>source</th><th>target</th><th>kappa</th></tr>",
        ]
        for place, k in enumerate(shown):
            if place == _ROWS_SHOWN and len(shown) < len(order):
                lines.append("<tr><td>...</td><td>...</td><td>...</td></tr>")
            i, j = (escape(str(self._name(int(v)))) for v in self.index[k])
            lines.append(f"<tr><td>{i}</td><td>{j}</td><td>{self.kappa[k]:.4f}</td></tr>")
        return "".join([*lines, "</table>"])
