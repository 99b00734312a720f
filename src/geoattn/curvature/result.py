"""The result of a curvature computation: values, certificate, convention, versions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.numpy_files import npz_names, read_npz
from geoattn._version import __version__
from geoattn.curvature.transport import IDLE_MASS, Status
from geoattn.graph.axes import name_axes
from geoattn.graph.convention import Convention

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Curvature", "distance_to_one", "error_of_kappa", "why_degenerate"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_FIELDS = ("kappa", "w1", "distance", "gap", "status")
# A distribution narrower than this is the convention's, not the attention's.
_DEGENERATE_SPREAD = 0.01
# Values whose gap is no larger are exact: what the solver promises without a tolerance.
EXACT_GAP = 1e-9


def distance_to_one(values: Float[np.ndarray, " e"]) -> float:
    """The distance W1 between the distribution of the values and a point mass at 1: the mean of 1 - kappa.

    Examples
    --------
    >>> import numpy as np
    >>> from geoattn.curvature import distance_to_one
    >>> distance_to_one(np.array([1.0, 0.5, 0.0]))
    0.5
    """
    return float(np.mean(np.abs(1.0 - values)))


def why_degenerate(kappa: Float[np.ndarray, " e"], status: UInt8[np.ndarray, " e"], convention: Convention) -> str:
    """Why the distribution of these edges says next to nothing about the attention; empty when it does."""
    solved = np.count_nonzero(status) == 0  # all of them, as a rule: then two looks are enough
    values = kappa if solved else kappa[np.isfinite(kappa)]
    if len(values) < 3:
        return ""
    floored = 0.0 if solved else float(np.count_nonzero(status == Status.BELOW_FLOOR.value) / len(status))
    if floored > 0.5:
        limit = f"{convention.floor:g}, where this convention sets curvature to 0"
        return f"{floored:.0%} of the edges are shorter than {limit}"
    if _wide(values):
        return ""
    low, middle, high = _quantiles(values, (0.01, 0.5, 0.99))
    if high - low >= _DEGENERATE_SPREAD:
        return ""
    spread = f"98% of the values lie within {high - low:.2g} of each other, around {middle:.4g}"
    if convention.measure == "exponential":
        return spread + ": exp(-length^2) is nearly the same for all neighbours, whatever the attention is"
    if convention.measure == "markov" and low > 1 - _DEGENERATE_SPREAD:
        return spread + ": all rows of attention are nearly equal"
    return spread


def _wide(values: Float[np.ndarray, " e"]) -> bool:
    """Whether more than 1% of the values exceed some value by more than the spread, and more than 1% fall short of it.

    Then the quantiles are farther apart than the spread, and two counts have shown it in a small part of the time.
    """
    some = float(values[len(values) // 2])  # any will do; most lie well within a wide distribution
    tail = 0.01 * (len(values) - 1) + 1  # one more, since a quantile may lie between two values
    above, below = values > some + _DEGENERATE_SPREAD, values < some - _DEGENERATE_SPREAD
    return bool(np.count_nonzero(above) > tail and np.count_nonzero(below) > tail)


def _quantiles(values: Float[np.ndarray, " e"], shares: tuple[float, ...]) -> list[float]:
    """As np.quantile gives them, which takes several times as long: that shows beside a small graph."""
    places = [share * (len(values) - 1) for share in shares]
    below = [min(int(place), len(values) - 2) for place in places]
    ordered = np.partition(values, [*below, *(k + 1 for k in below)])
    return [float(ordered[k] + (p - k) * (ordered[k + 1] - ordered[k])) for p, k in zip(places, below, strict=True)]


def error_of_kappa(kappa: np.ndarray, gap: np.ndarray, convention: Convention) -> np.ndarray:
    """The bound of |error| of each kappa that the gap of its W1 gives: gap * max(1, W1 / D), with the idle mass.

    A value that the convention sets (below its floor) has no gap and no error.
    """
    idle = IDLE_MASS if convention.alpha == "limit" else 0.0
    error = (gap + 4 * np.finfo(float).eps) * np.maximum(1.0, 1.0 + idle - kappa)  # kappa itself is rounded
    return np.where(np.isnan(gap) & np.isfinite(kappa), 0.0, error)


@dataclass(frozen=True, repr=False)
class Curvature(Viewable):
    """The curvature of the edges of one or many graphs; what `ollivier_ricci` returns.

    With all edges each array has the shape of the attention, (..., n, n), and is NaN where there is no value. An
    undirected edge stands in both triangles. With a sample of edges the arrays are 1-D, and ``index`` (e, batch axes +
    2) says where each edge is. ``gap`` is the duality gap of W1 relative to max(W1, D); it bounds the error of kappa
    relative to max(1, |1 - kappa|). ``status`` is a `Status` code for each entry.

    Examples
    --------
    >>> import numpy as np, geoattn as ga
    >>> attention = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    >>> result = ga.ollivier_ricci(attention)
    >>> result.kappa.shape, result.values().round(3)
    ((3, 3), array([0.468, 0.44 , 0.534]))
    >>> round(result.summary()["distance_to_one"], 3), result.max_gap < 1e-9
    (0.519, True)
    >>> list(result.to_pandas().columns)
    ['i', 'j', 'kappa', 'w1', 'distance', 'gap', 'status']
    """

    kappa: Float[np.ndarray, "..."]
    w1: Float[np.ndarray, "..."]
    distance: Float[np.ndarray, "..."]
    gap: Float[np.ndarray, "..."]
    status: UInt8[np.ndarray, "..."]
    convention: Convention
    shape: tuple[int, ...]
    index: Int[np.ndarray, "e k"] | None = None
    edges: int = 0  # in the graphs, of which a sample may hold only some
    settings: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        s = self.summary()
        facts = {
            "convention": s["convention"],
            "shape": self.shape,
            "values": f"{s['values']:,} of {s['edges']:,} edges",
        }
        if s["values"]:
            facts |= {name: s[name] for name in ("mean", "min", "max", "negative_share", "distance_to_one")}
        return facts | {"max_gap": f"{s['max_gap']:.1e}"}

    @property
    def max_gap(self) -> float:
        """The largest relative duality gap of any value; 0 when there is none."""
        return float(np.nanmax(self.gap, initial=0.0))

    @property
    def lower(self) -> Float[np.ndarray, "..."]:
        """A certified lower bound of each kappa, rounding included."""
        return self.kappa - error_of_kappa(self.kappa, self.gap, self.convention)

    @property
    def upper(self) -> Float[np.ndarray, "..."]:
        """A certified upper bound of each kappa, rounding included."""
        return self.kappa + error_of_kappa(self.kappa, self.gap, self.convention)

    @property
    def exact(self) -> Bool[np.ndarray, "..."]:
        """Which values are exact to 1e-9. With ``tolerance`` the others are the middle of [lower, upper]."""
        return np.isfinite(self.kappa) & ~(self.gap > EXACT_GAP)

    def places(self) -> Int[np.ndarray, "e k"]:
        """Index of each edge, once: the axes of the batch, i, j; i < j unless directed."""
        if self.index is not None:
            return self.index
        wanted = self.status != Status.NO_EDGE
        wanted &= self.status != Status.MISSING_TOKEN
        if not self.convention.directed:
            n = self.shape[-1]
            wanted &= np.triu(np.ones((n, n), dtype=bool), 1)
        return np.argwhere(wanted)

    def column(self, name: str) -> np.ndarray:
        """An array of this result, one entry per edge, in the order of `places`."""
        array = getattr(self, name)
        return array if self.index is not None else array[tuple(self.places().T)]

    def values(self) -> Float[np.ndarray, " e"]:
        """The finite curvatures, each edge once, 1-D."""
        kappa = self.column("kappa")
        return kappa[np.isfinite(kappa)]

    @property
    def degenerate(self) -> str:
        """Why the distribution says next to nothing about the attention; empty when it does say something."""
        return why_degenerate(self.column("kappa"), self.column("status"), self.convention)

    def summary(self) -> dict[str, Any]:
        """Mean, extremes, quantiles, share of negative edges, distance to a point mass at 1, and the certificate."""
        values = self.values()
        if len(values) == 0:
            nothing = float("nan")
            stats: dict[str, Any] = dict.fromkeys(
                ("mean", "std", "min", "max", "negative_share", "distance_to_one"), nothing
            )
            stats["quantiles"] = dict.fromkeys(map(str, _QUANTILES), nothing)
        else:
            stats = {
                "mean": float(values.mean()),
                "std": float(values.std()),
                "min": float(values.min()),
                "max": float(values.max()),
                "negative_share": float(np.mean(values < 0)),
                "distance_to_one": distance_to_one(values),
                "quantiles": dict(zip(map(str, _QUANTILES), map(float, np.quantile(values, _QUANTILES)), strict=True)),
            }
        return {
            **stats,
            "edges": self.edges,
            "values": len(values),
            "status": self.summary_of_status(),
            "degenerate": self.degenerate,
            "max_gap": self.max_gap,
            "bounded": int(np.count_nonzero(self.column("gap") > EXACT_GAP)),
            "convention": self.convention.name,
        }

    def summary_of_status(self) -> dict[str, int]:
        """How many edges have each status, in words."""
        codes, counts = np.unique(self.column("status"), return_counts=True)
        return {Status(int(c)).name.lower(): int(k) for c, k in zip(codes, counts, strict=True)}

    def band(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, " e"], Float[np.ndarray, " e"], Float[np.ndarray, " e"]]:
        r"""(x, lower, upper): the distinct values and a confidence band for the distribution function of all edges.

        Dvoretzky-Kiefer-Wolfowitz with Massart's constant: F_m(x) +- sqrt(log(2 / (1 - level)) / (2 m)) holds for all x
        at once with probability at least ``level``; sampling without replacement only makes it safer. For one graph, or
        for graphs of equal size. With all edges the band has no width.
        """
        if not 0 < level < 1:
            raise GeoattnError(f"level must lie between 0 and 1; got {level!r}.")
        values = np.sort(self.values())
        m = len(values)
        if m == 0:
            raise GeoattnError("band: no edge has a value.")
        x = np.unique(values)
        centre = np.searchsorted(values, x, side="right") / m
        half = 0.0 if self.index is None or m >= self.edges else float(np.sqrt(np.log(2 / (1 - level)) / (2 * m)))
        return x, np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)

    def to_pandas(self, axes: Sequence[str] | None = None) -> pd.DataFrame:
        """One row per edge: the axes of the batch, i, j, the values and the status in words.

        ``axes`` names the axes before the tokens. Default: ``graph`` for one, ``("sample", "head")`` for two, as in the
        attention of a call, ``("layer", "sample", "head")`` for three.
        """
        import pandas as pd

        where = self.places()
        names = name_axes(where.shape[1] - 2, axes)
        table = pd.DataFrame(where, columns=pd.Index([*names, "i", "j"]))
        for name in _FIELDS[:-1] + (("lower", "upper") if self.settings.get("tolerance") else ()):
            table[name] = self.column(name)
        table["status"] = [Status(int(s)).name.lower() for s in self.column("status")]
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed .npz with everything in it; a failed write leaves nothing behind."""
        meta = {
            "convention": self.convention.as_dict(),
            "shape": self.shape,
            "edges": self.edges,
            "settings": self.settings,
            "geoattn": __version__,
        }
        arrays = {name: getattr(self, name) for name in _FIELDS}
        if self.index is not None:
            arrays["index"] = self.index
        write_atomically(path, lambda file: np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Curvature:
        """Read what `save` wrote. Nothing in the file is executed."""
        try:
            arrays = read_npz(path, ["meta", *_FIELDS, *(["index"] if "index" in npz_names(path) else [])])
            meta = json.loads(str(arrays.pop("meta")))
            return cls(
                **arrays, convention=Convention(**meta["convention"]), shape=tuple(meta["shape"]), edges=meta["edges"],
                settings=meta["settings"],
            )  # fmt: skip
        except FileNotFoundError:
            raise GeoattnError(f"no such file: {path}") from None
        except Exception as error:
            raise GeoattnError(f"{path} is not a curvature file written by geoattn ({error}).") from None
