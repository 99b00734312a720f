"""The contract of a lens: it sees a piece of attention, merges what it saw, and turns it into rows of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn.profiles.batches import Batch
from geoattn.profiles.pieces import Piece

__all__ = ["LENSES", "Lens", "LensSettings", "Row", "make_lenses", "register_lens"]


@dataclass(frozen=True)
class Row:
    """One row that a lens adds to the table of a profile: a statistic with its interval, and how much it counts.

    ``lower`` and ``upper`` are for other samples like these; they are NaN when there is no interval. ``half_width`` is
    what a draw of edges, instead of all, leaves open about these samples: 0 when everything was measured, NaN where
    nothing is known of it. A lens that measures more than one kind of thing names the kind in ``lens``; None is the
    name of the lens itself.

    Examples
    --------
    >>> from geoattn.profiles import Row
    >>> Row("row_entropy", value=2.01, lower=1.98, upper=2.04, count=272)
    Row(statistic='row_entropy', value=2.01, lower=1.98, upper=2.04, count=272, ...)
    """

    statistic: str
    value: float
    lower: float
    upper: float
    count: int
    lens: str | None = None
    half_width: float = 0.0


class LensSettings(NamedTuple):
    """The settings of a profile from which a registered function makes its lenses; see `register_lens`.

    Examples
    --------
    >>> import geoattn as ga
    >>> settings = ga.profiles.LensSettings(
    ...     model=None, layers=None, conventions=(ga.Convention.of("markov"), ga.Convention.of("hop")), edges="all",
    ...     threads=1, seed=0, resamplings=100, smoothness_samples=1,
    ... )
    >>> [lens.convention for lens in ga.profiles.LENSES["curvature"](settings)]
    ['markov', 'hop']
    """

    model: Any
    layers: Any
    conventions: tuple[Any, ...]
    edges: Any  # "all", "auto", a number, or a `Precision`
    threads: int | None
    seed: int
    resamplings: int
    smoothness_samples: int


class Lens(ABC):
    """A way to look at attention maps that a profile can stream over batches, and spread over machines.

    `see` looks at one piece of attention and gives a *state*, any object that pickle can copy. `merge` puts two states
    of one layer together; a profile calls it in the order of the samples. `rows` gives the estimates of some heads of
    some layers, pooled. So one lens serves heads, layers and the whole model, on one machine and on a cluster.

    Most lenses average something over samples: `MeanLens` asks for the numbers alone and does the rest.

    ``name`` is the entry of the column ``lens`` of the table, ``convention`` that of the column ``convention``.

    Examples
    --------
    The largest weight of each head, which is no mean:

    >>> import numpy as np, geoattn as ga
    >>> class LargestWeight(ga.profiles.Lens):
    ...     name = "extremes"
    ...
    ...     def see(self, piece):
    ...         state = np.zeros(piece.head_count)
    ...         state[piece.heads] = piece.attention.amax((0, 2, 3)).cpu()
    ...         return state
    ...
    ...     def merge(self, one, other):
    ...         return np.maximum(one, other)
    ...
    ...     def rows(self, states, heads, level):
    ...         largest = max(float(state[heads].max()) for state in states)
    ...         yield ga.profiles.Row("largest_weight", largest, np.nan, np.nan, 1)
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=4)
    >>> profile = ga.profile(model, digits, lenses=LargestWeight())
    >>> layers = [profile.value("largest_weight", layer=k, lens="extremes")[0] for k in range(8)]
    >>> profile.value("largest_weight", lens="extremes")[0] == max(layers) <= 1
    True
    """

    name: str
    convention: str = ""

    @abstractmethod
    def see(self, piece: Piece) -> Any:
        """The state of one piece of the attention of a layer."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Both states together; ``other`` holds later samples or other heads. ``one`` may be changed and returned."""

    @abstractmethod
    def rows(self, states: Sequence[Any], heads: slice, level: float) -> Iterator[Row]:
        """Estimates over the given heads of these layers, with intervals of this level."""

    def see_batch(self, batch: Batch, first: int) -> Iterator[tuple[tuple[str, int], Any]]:
        """States of layers, by (name, visit), of a lens that makes a forward pass of its own.

        ``first`` is the number of the first sample. Such a lens has ``own_pass = True``, and `see` is never called.
        """
        return iter(())

    own_pass = False

    def resampled(self, state: Any) -> dict[str, np.ndarray]:
        """Totals and counts (2, r) of each statistic of a layer in each resampling, for paired comparisons."""
        return {}

    def notes(self, states: Sequence[Any]) -> list[str]:
        """What a reader of the profile must know, in words."""
        return []


Maker = Callable[[LensSettings], Sequence[Lens]]

#: Lenses by name: a function from the settings of a profile to the lens, or to several of one name.
LENSES: dict[str, Maker] = {}


def register_lens(name: str) -> Callable[[Maker], Maker]:
    """Register a function that makes the lens of this name; `profile` then knows it by that name.

    The function takes `LensSettings` and gives a list of lenses. A name is registered once.

    Examples
    --------
    >>> import geoattn as ga
    >>> class Tokens(ga.profiles.MeanLens):
    ...     name = "tokens"
    ...
    ...     def measure(self, piece):
    ...         tokens = piece.valid.sum(-1)
    ...         return ga.profiles.Moments(tokens > 0, {"tokens": tokens})
    >>> @ga.profiles.register_lens("tokens")
    ... def make(settings):
    ...     return [Tokens(resamplings=settings.resamplings, seed=settings.seed)]
    >>> model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    >>> ga.profile(model, digits, lenses="tokens").value("tokens", lens="tokens")[0]
    17.0
    >>> del ga.profiles.LENSES["tokens"]
    """

    def register(maker: Maker) -> Maker:
        if name in LENSES:
            raise GeoattnError(f"there is a lens {name!r} already; choose another name.")
        LENSES[name] = maker
        return maker

    return register


def make_lenses(wanted: Any, settings: LensSettings) -> tuple[tuple[str, ...], list[Lens]]:
    """(names, lenses) of what a user asked for: names, objects of the contract, or a list of both. Curvature is first.

    Parameters
    ----------
    wanted
        A name of `LENSES`, a `Lens`, or a list of them.
    settings
        For those that are made by name.
    """
    many = [wanted] if isinstance(wanted, (str, Lens)) else list(wanted)
    names: list[str] = ["curvature"]
    lenses: list[Lens] = list(LENSES["curvature"](settings))
    for one in many:
        if isinstance(one, Lens):
            names.append(one.name)
            lenses.append(one)
        elif one in LENSES:
            if one not in names:
                names.append(one)
                lenses.extend(LENSES[one](settings))
        else:
            raise GeoattnError(
                f"unknown lens {one!r}; expected some of {', '.join(LENSES)}, or objects of geoattn.profiles.Lens."
                f"{did_you_mean(one, LENSES)}"
            )
    keys = [(lens.name, lens.convention) for lens in lenses]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise GeoattnError(f"two lenses are called {twice[0]!r}; give each its own name.")
    return tuple(names), lenses
