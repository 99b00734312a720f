"""The result of a profile: one tidy table, distributions, examples, and what it was made with."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from geoattn._core.display import Viewable
from geoattn._core.errors import GeoattnError
from geoattn._core.files import write_atomically
from geoattn._core.names import did_you_mean
from geoattn._core.numpy_files import read_npz
from geoattn._core.parquet_files import open_parquet, read_columns
from geoattn._core.visible import visible
from geoattn.graph.convention import Convention
from geoattn.profiles.examples import Example
from geoattn.profiles.means import interval

if TYPE_CHECKING:
    import pandas as pd

    Other: TypeAlias = "Profile"
else:  # checked by `check_profile`, with words that help
    Other = Any

__all__ = ["Key", "Profile", "check_profile", "shared_conventions"]

_FORMAT = 1


class Key(NamedTuple):
    """What is averaged: a statistic of a lens, under a convention, in a layer."""

    layer: int
    lens: str
    convention: str
    statistic: str


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Viewable):
    """Lenses over the layers and heads of one model; what `profile` returns.

    ``table`` is tidy: layer, name, head, lens, convention, statistic, value, lower, upper, samples, count. Rows without
    a head are a whole layer, rows without a layer the whole model; both pool the maps, so that each edge counts once.
    ``histograms[convention][layer]`` (h, bins) are counts of curvature values, in the bins of
    `geoattn.statistics.count_values`. ``resampled`` holds totals and counts (2, r) of the bootstrap by layer.
    ``settings`` say how it was made: model, data, tokens, edges, seed, versions, seconds, certificate, notes.

    Examples
    --------
    >>> import geoattn as ga
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4)
    >>> result = ga.profile(model, digits)
    >>> value, low, high = result.value("distance_to_one", layer=7)
    >>> low <= value <= high, result.settings["samples"], result.layers[0]
    (True, 4, 'transformer.layers.0.0')
    >>> list(result.to_pandas().columns)[:6]
    ['layer', 'name', 'head', 'lens', 'convention', 'statistic']
    >>> float(result.compare(result)["difference"].abs().max())
    0.0
    """

    table: pd.DataFrame
    layers: tuple[str, ...]
    conventions: tuple[Convention, ...]
    histograms: dict[str, tuple[np.ndarray, ...]]
    resampled: dict[Key, Float[np.ndarray, "2 r"]]
    examples: tuple[Example, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        s = self.settings
        return (
            f"Profile({visible(s['model'])}: {len(self.layers)} layers, {s['samples']} samples, {s['values']} values)"
        )

    def facts(self) -> dict[str, Any]:
        """What the result shows of itself."""
        s = self.settings
        facts: dict[str, Any] = {name: s[name] for name in ("model", "data", "samples", "tokens")}
        facts |= {"layers": len(self.layers), "heads": sum(s["heads"]), "values": s["values"], "seconds": s["seconds"]}
        for c in self.conventions:
            value, low, high = self.value("distance_to_one", convention=c.name)
            facts[f"distance to one, {c.name}"] = f"{value:.4f} [{low:.4f}, {high:.4f}]"
        return facts

    def to_pandas(self) -> pd.DataFrame:
        """The table; a copy."""
        return self.table.copy()

    def heads(self, convention: str | None = None) -> pd.DataFrame:
        """One row a head, one column a number, of what was measured.

        ``distance_to_one``, ``mean``, ``negative_share``, q05, min and std of the curvature under one convention, the
        first by default. ``negative_depth`` is the mean of -kappa over the negative edges: a head with many edges just
        below 0 is flat, a bottleneck has deep ones. ``first_token`` and ``heaviest_token`` are the mass on sinks. Then
        row entropy, weight on the token itself, variance, second eigenvalue, and the local constant with the smoothness
        lens. ``rank_<convention>`` is the place of the head by distance to one, 1 the farthest; ``rank_spread`` is how
        far these places are apart: a large one says that the convention decides, not the head.

        Examples
        --------
        >>> import geoattn as ga
        >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
        >>> table = ga.profile(model, digits, convention=["markov", "hop"]).heads()
        >>> table.sort_values("negative_depth")[["layer", "head", "rank_markov", "rank_spread"]].shape
        (8, 4)
        """
        from geoattn.profiles.heads_table import heads_table

        return heads_table(self, convention)

    def edges(self, sample: int = 0, layer: int = 0, head: int = 0, *, tokens: bool = False) -> pd.DataFrame:
        """The edges that were kept of one head on one sample, the strongest first, with the texts of their tokens.

        Kept are those of the first ``examples`` samples of `profile`: all of small graphs, of larger ones the strongest
        and the most negative.

        Examples
        --------
        >>> import geoattn as ga
        >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
        >>> list(ga.profile(model, digits).edges(layer=3, tokens=True).columns)
        ['i', 'j', 'token_i', 'token_j', 'weight', 'kappa']
        """
        from geoattn.profiles.heads_table import edges_table

        return edges_table(self, sample, layer, head, tokens)

    def value(
        self, statistic: str, *, layer: int | None = None, head: int | None = None, lens: str = "curvature",
        convention: str | None = None,
    ) -> tuple[float, float, float]:  # fmt: skip
        """(value, lower, upper) of one row; without a layer the whole model, without a head the whole layer."""
        convention = convention or (self.conventions[0].name if lens == "curvature" else "")
        t = self.table
        wanted = (t["lens"] == lens) & (t["convention"] == convention) & (t["statistic"] == statistic)
        wanted &= t["layer"].isna() if layer is None else (t["layer"] == layer).fillna(False)
        wanted &= t["head"].isna() if head is None else (t["head"] == head).fillna(False)
        rows = t.loc[wanted]
        if len(rows) != 1:
            raise GeoattnError(
                f"no row for {lens}, {convention or 'no convention'}, {statistic}, layer {layer}, head {head}:"
                f" {self._missing(statistic, lens, layer, head, convention)} See .to_pandas() for those there are."
            )
        row = rows.iloc[0]
        return float(row.value), float(row.lower), float(row.upper)

    def _missing(self, statistic: str, lens: str, layer: int | None, head: int | None, convention: str) -> str:
        """Why there is no such row."""
        t = self.table
        own, others = t[t["lens"] == lens], dict.fromkeys(t.loc[t["statistic"] == statistic, "lens"])
        known = list(dict.fromkeys(own["statistic"]))
        if others and lens not in others:
            where = " and to the lens ".join(others)
            return f"{statistic} belongs to the lens {where}. Give lens={next(iter(others))!r}."
        if not known:
            return f"this profile has the lenses {', '.join(dict.fromkeys(t['lens']))}."
        if statistic not in known:
            return f"the lens {lens} has {', '.join(known)}.{did_you_mean(statistic, known)}"
        if convention not in set(own["convention"]):
            conventions = ", ".join(filter(None, dict.fromkeys(own["convention"])))
            return f"the lens {lens} has {conventions or 'no convention'}."
        if layer is not None and layer not in range(len(self.layers)):
            return f"this profile has layers 0 to {len(self.layers) - 1}."
        if layer is None and head is not None:
            return "a head is one of a layer. Give layer=, too."
        if layer is not None and head is not None and head not in range(self.settings["heads"][layer]):
            return f"layer {layer} has heads 0 to {self.settings['heads'][layer] - 1}."
        return f"the lens {lens} has {statistic} in other places only."

    def compare(self, other: Other, statistic: str = "distance_to_one", *, lens: str = "curvature",
                convention: str | None = None) -> pd.DataFrame:  # fmt: skip
        """Difference other - self of a statistic, by place in depth, with an interval and a two-sided p-value.

        When both profiles saw the same samples (`paired_with`) the resamplings are paired: the interval is that of the
        difference on the same data. Models of different depth are compared at first, last and
        whole model only. The convention is the first of this profile, and the other one must have it. p is twice the
        smaller share of resampled differences on one side of 0, at least 2 / r.
        """
        import pandas as pd

        check_profile(other)
        convention = convention or (self.conventions[0].name if lens == "curvature" else "")
        if lens == "curvature" and convention not in (shared := shared_conventions(self, other)):
            raise GeoattnError(f"not both profiles have the convention {convention}: give one of {', '.join(shared)}.")
        places: list[tuple[str, int | None, int | None]] = [("whole model", None, None)]
        if len(self.layers) == len(other.layers):
            places += [(str(k), k, k) for k in range(len(self.layers))]
        else:
            places += [("first", 0, 0), ("last", len(self.layers) - 1, len(other.layers) - 1)]
        rows = []
        for label, mine, theirs in places:
            a = self._ratios(mine, lens, convention, statistic)
            b = other._ratios(theirs, lens, convention, statistic)
            level = float(self.settings["level"])
            size = min(len(a), len(b))
            difference = b[:size] - a[:size]
            difference = difference[np.isfinite(difference)]
            low, high = interval(difference, np.ones(len(difference)), level)
            left = self.value(statistic, layer=mine, lens=lens, convention=convention)[0]
            right = other.value(statistic, layer=theirs, lens=lens, convention=convention)[0]
            share = min((difference <= 0).mean(), (difference >= 0).mean()) if len(difference) else np.nan
            p = float(np.clip(2 * share, 2 / max(size, 1), 1)) if np.isfinite(share) else np.nan
            rows.append((label, left, right, right - left, low, high, p))
        names = ["layer", "this", "other", "difference", "lower", "upper", "p"]
        return pd.DataFrame(rows, columns=pd.Index(names))

    def paired_with(self, other: Profile) -> bool:
        """Whether both saw the same samples in the same order, and resampled them alike."""
        return all(self.settings[name] == other.settings[name] for name in ("fingerprint", "seed", "resamplings"))

    def _ratios(self, layer: int | None, lens: str, convention: str, statistic: str) -> Float[np.ndarray, " r"]:
        chosen = range(len(self.layers)) if layer is None else [layer]
        keys = [key for k in chosen if (key := Key(k, lens, convention, statistic)) in self.resampled]
        if not keys or self.settings["samples"] < 2:
            return np.full(int(self.settings["resamplings"]), np.nan)
        totals, counts = np.sum([self.resampled[key] for key in keys], axis=0)
        return np.where(counts > 0, totals / np.where(counts > 0, counts, 1.0), np.nan)

    def report(
        self, path: str | os.PathLike[str], other: Other | None = None, *, command: str | None = None,
        robustness: Any = None, runs: Sequence[Any] = (), flows: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Write the report: one HTML file that opens from disk. Folders that are missing are made.

        The arguments are those of `write_report`.
        """
        from geoattn.report.page import write_report

        if other is not None:
            check_profile(other)
        write_report(path, self, other, command=command, robustness=robustness, runs=runs, flows=flows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a compressed .npz with everything in it; folders that are missing are made.

        A failed write leaves no file behind.
        """
        buffer = io.BytesIO()
        self.table.to_parquet(buffer, index=False)
        arrays: dict[str, Any] = {"table": np.frombuffer(buffer.getvalue(), dtype=np.uint8)}
        for c, convention in enumerate(self.conventions):
            for k, counts in enumerate(self.histograms[convention.name]):
                arrays[f"histogram/{c}/{k}"] = counts
        keys = list(self.resampled)
        arrays["resampled"] = np.array([self.resampled[key] for key in keys], dtype=np.float64)
        for e, example in enumerate(self.examples):
            if example.image is not None:
                arrays[f"example/{e}/image"] = example.image
            for part in ("edges", "weights", "kappa", "moves"):
                for k, values in enumerate(getattr(example, part)):
                    arrays[f"example/{e}/{part}/{k}"] = values
        meta = {
            "format": _FORMAT,
            "layers": self.layers,
            "conventions": [convention.as_dict() for convention in self.conventions],
            "resampled": keys,
            "examples": [
                {"sample": e.sample, "tokens": e.tokens, "valid": e.valid, "grid": e.grid} for e in self.examples
            ],
            "settings": self.settings,
        }
        write_atomically(path, lambda file: np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read what `save` wrote. Nothing in the file is executed."""
        try:
            arrays = read_npz(path)
            meta = json.loads(str(arrays["meta"]))
            if meta["format"] != _FORMAT:
                raise GeoattnError(f"{path} has format {meta['format']}, this version reads {_FORMAT}: make it anew.")
            layers = tuple(meta["layers"])
            conventions = tuple(Convention(**parts) for parts in meta["conventions"])
            depth = range(len(layers))
            examples = tuple(
                Example(
                    sample=e["sample"], tokens=tuple(e["tokens"]), valid=tuple(e["valid"]),
                    image=arrays.get(f"example/{i}/image"), grid=None if e["grid"] is None else tuple(e["grid"]),
                    **{part: tuple(arrays[f"example/{i}/{part}/{k}"] for k in depth)
                       for part in ("edges", "weights", "kappa")},
                    moves=tuple(arrays[name] for k in depth if (name := f"example/{i}/moves/{k}") in arrays),
                )
                for i, e in enumerate(meta["examples"])
            )  # fmt: skip
            return cls(
                table=read_columns(open_parquet(io.BytesIO(arrays["table"].tobytes()), path), path).to_pandas(),
                layers=layers,
                conventions=conventions,
                histograms={
                    c.name: tuple(arrays[f"histogram/{i}/{k}"] for k in depth) for i, c in enumerate(conventions)
                },
                resampled={Key(*key): arrays["resampled"][i] for i, key in enumerate(meta["resampled"])},
                examples=examples,
                settings=meta["settings"],
            )
        except FileNotFoundError:
            raise GeoattnError(f"no such file: {path}") from None
        except GeoattnError:
            raise
        except Exception as error:
            raise GeoattnError(f"{path} is not a profile written by geoattn ({error}).") from None


def check_profile(given: Any) -> None:
    """An error for what is no profile, such as the model."""
    if not isinstance(given, Profile):
        raise GeoattnError(
            f"expected a Profile, as ga.profile(model, data) gives; got {type(given).__name__}. Profile the model"
            " first."
        )


def shared_conventions(*profiles: Profile) -> list[str]:
    """Names of the conventions that all of these profiles have, in the order of the first; an error for none."""
    known = [[convention.name for convention in one.conventions] for one in profiles]
    shared = [name for name in known[0] if all(name in names for names in known)]
    if not shared:
        raise GeoattnError(
            f"the two profiles share no convention ({'; '.join(', '.join(names) for names in known)}): profile one of"
            " them anew."
        )
    return shared
