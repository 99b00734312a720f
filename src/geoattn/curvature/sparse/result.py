"""The curvature of a sparse graph: one row per edge, with certificate, convention and names of the nodes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.numpy_files import read_npz
from geoattn._version import __version__
from geoattn.curvature.result import Curvature, why_degenerate
from geoattn.curvature.sparse.tables import EdgeTable
from geoattn.curvature.transport import Status
from geoattn.graph.convention import Convention

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EdgeCurvature"]

_COLUMNS = ("kappa", "w1", "distance", "gap", "status")


@dataclass(frozen=True, repr=False)
class EdgeCurvature(EdgeTable):
    """Curvature of the edges of one sparse graph, as `Curvature` has it for attention.

    Arrays are 1-D, one entry per edge; ``index`` (e, 2) holds the two nodes of each, i < j unless directed, in the
    order of rows. ``names`` are the nodes of a networkx graph, None if they are 0, 1, ... ``gap`` is the duality gap of
    W1 relative to max(W1, D); ``status`` a `Status` code. ``edges`` counts those of the graph, of which a sample holds
    only some.

    Examples
    --------
    >>> import networkx as nx, geoattn as ga
    >>> result = ga.ollivier_ricci(nx.path_graph(4), "grc-0.6")
    >>> result.index.tolist(), result.kappa.round(3).tolist()
    ([[0, 1], [1, 2], [2, 3]], [0.5, 0.0, 0.5])
    """

    kappa: Float[np.ndarray, " e"]
    w1: Float[np.ndarray, " e"]
    distance: Float[np.ndarray, " e"]
    gap: Float[np.ndarray, " e"]
    status: UInt8[np.ndarray, " e"]
    index: Int[np.ndarray, "e 2"]
    convention: Convention
    shape: tuple[int, ...]
    names: tuple[Any, ...] | None = None
    edges: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def max_gap(self) -> float:
        """The largest relative duality gap of any value; 0 when there is none."""
        return float(np.nanmax(self.gap, initial=0.0))

    @property
    def lower(self) -> Float[np.ndarray, " e"]:
        """Certified lower bound of kappa: the value less its duality gap."""
        return self.kappa - self.gap * np.maximum(1.0, np.abs(1.0 - self.kappa))

    @property
    def upper(self) -> Float[np.ndarray, " e"]:
        """Certified upper bound of kappa: the value plus its duality gap."""
        return self.kappa + self.gap * np.maximum(1.0, np.abs(1.0 - self.kappa))

    @property
    def degenerate(self) -> str:
        """Why the distribution says next to nothing about the graph; empty when it does say something."""
        return why_degenerate(self.kappa, self.status, self.convention)

    def column(self, name: str) -> np.ndarray:
        """An array of this result, one entry per edge."""
        return getattr(self, name)

    def summary(self) -> dict[str, Any]:
        """Mean, extremes, quantiles, share of negative edges, distance to a point mass at 1, and the certificate."""
        return self._as_curvature().summary()

    def summary_of_status(self) -> dict[str, int]:
        """How many edges have each status, in words."""
        return self._as_curvature().summary_of_status()

    def _as_curvature(self) -> Curvature:
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return Curvature(**columns, convention=self.convention, shape=self.shape, index=self.index, edges=self.edges)

    def to_pandas(self) -> pd.DataFrame:
        """One row per edge: the names of its nodes in ``source`` and ``target``, the values, the status in words."""
        import pandas as pd

        source, target = self._named_ends()
        table = pd.DataFrame({"source": source, "target": target})
        for name in _COLUMNS[:-1]:
            table[name] = getattr(self, name)
        table["status"] = [Status(int(s)).name.lower() for s in self.status]
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed .npz with everything in it; a failed write leaves nothing behind.

        Names of nodes are kept if they are text or numbers, or tuples of them; other names are an error.
        """
        meta = {
            "kind": "edges", "convention": self.convention.as_dict(), "shape": self.shape, "edges": self.edges,
            "settings": self.settings, "geoattn": __version__, "names": _names_to_json(self.names),
        }  # fmt: skip
        arrays = {name: getattr(self, name) for name in (*_COLUMNS, "index")}
        write_atomically(path, lambda file: np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EdgeCurvature:
        """Read what `save` wrote. Nothing in the file is executed."""
        try:
            arrays = read_npz(path, ["meta", *_COLUMNS, "index"])
            meta = json.loads(str(arrays.pop("meta")))
            if meta.get("kind") != "edges":
                raise GeoattnError("it holds the curvature of attention: read it with Curvature.load")
            return cls(
                **arrays, convention=Convention(**meta["convention"]), shape=tuple(meta["shape"]), edges=meta["edges"],
                settings=meta["settings"], names=_names_from_json(meta["names"]),
            )  # fmt: skip
        except FileNotFoundError:
            raise GeoattnError(f"no such file: {path}") from None
        except Exception as error:
            raise GeoattnError(f"{path} is not an edge curvature file written by geoattn ({error}).") from None

    def __repr__(self) -> str:
        """Short, with the certificate."""
        values = self.values()
        mean = f", mean {values.mean():.4g}" if len(values) else ""
        of = f" of {self.edges:,}" if self.edges > len(self.kappa) else ""
        head = f"EdgeCurvature('{self.convention.name}', {self.shape[0]:,} nodes, {len(self.kappa):,}{of} edges"
        return f"{head}, {len(values):,} values{mean}, max_gap {self.max_gap:.1e})"


def _names_to_json(names: tuple[Any, ...] | None) -> Any:
    if names is None:
        return None

    def one(name: Any) -> Any:
        if isinstance(name, tuple):
            return {"tuple": [one(part) for part in name]}
        if isinstance(name, np.generic):
            name = name.item()
        if name is None or isinstance(name, (str, int, float, bool)):
            return name
        raise GeoattnError(
            f"cannot save the node {name!r} of type {type(name).__name__}: names must be text or numbers."
        )

    return [one(name) for name in names]


def _names_from_json(names: Any) -> tuple[Any, ...] | None:
    def one(name: Any) -> Any:
        return tuple(one(part) for part in name["tuple"]) if isinstance(name, dict) else name

    return None if names is None else tuple(one(name) for name in names)
