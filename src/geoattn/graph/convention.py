"""What turns an attention matrix into a metric graph: every choice that decides the number, named and checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean

__all__ = ["PRESETS", "Convention"]

# Editors and type checkers see the choices; at run time __post_init__ checks them, with an error that names them.
if TYPE_CHECKING:
    Heads = Literal["each", "mean"]
    Direction = Literal["mean", "max", "min", "product", "directed"]
    Length = Literal["w", "1/w", "-log w", "1-w", "hop"]
    Measure = Literal["markov", "exponential", "uniform"]
    Denominator = Literal["distance", "length"]
    Alpha = float | Literal["limit"]
    Number = float
else:
    Heads = Direction = Length = Measure = Denominator = Alpha = Number = object

_CHOICES = {
    "heads": ("each", "mean"),
    "direction": ("mean", "max", "min", "product", "directed"),
    "length": ("w", "1/w", "-log w", "1-w", "hop"),
    "measure": ("markov", "exponential", "uniform"),
    "denominator": ("distance", "length"),
}


@dataclass(frozen=True)
class Convention:
    """The definition of curvature in use: kappa(x, y) = 1 - W1(m_x, m_y) / D(x, y).

    Attributes
    ----------
    heads
        ``each`` head is a graph of its own, or one graph from the ``mean`` over the axis before the last two.
    direction
        How the two weights of a pair become one: S = ``mean``, ``max``, ``min`` or ``product`` of A_ij and A_ji; or
        ``directed``, which keeps both. An edge is a pair i != j whose S_ij, as float64 holds it, is above 0: subnormal
        weights are edges, a product or mean below 5e-324 is none.
    length
        Length of an edge of weight w: ``w``, ``1/w``, ``-log w``, ``1-w`` or ``hop`` (1). d is the shortest path.
    measure
        m_x: the attention row itself (``markov``, self weight included), proportional to exp(-length^exponent) over the
        neighbours (``exponential``), or ``uniform`` over them.
    alpha
        Mass that stays on x before the measure gets the rest, 0 <= alpha < 1; or ``"limit"``: the Lin-Lu-Yau curvature,
        the limit of kappa / (1 - alpha) for alpha -> 1.
    denominator
        D: the shortest-path ``distance`` or the ``length`` of the edge.
    exponent
        Of the ``exponential`` measure.
    floor
        kappa is 0 where D is below it: what GraphRicciCurvature does at 1e-7. Otherwise 0, and D = 0 gives NaN.

    Examples
    --------
    >>> from geoattn import Convention
    >>> Convention.of("grc-0.6").length
    'w'
    >>> Convention.of("markov").but(alpha=0.5).name
    'markov (alpha=0.5)'
    """

    heads: Heads = "each"
    direction: Direction = "mean"
    length: Length = "-log w"
    measure: Measure = "markov"
    alpha: Alpha = 0.0
    denominator: Denominator = "distance"
    exponent: Number = 2.0
    floor: Number = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        for part, allowed in _CHOICES.items():
            if getattr(self, part) not in allowed:
                raise GeoattnError(
                    f"Convention: {part} must be one of {', '.join(allowed)}; got {getattr(self, part)!r}."
                )
        if self.alpha != "limit":
            _check_number("alpha", self.alpha, 0 <= _number(self.alpha) < 1, "0 <= alpha < 1, or 'limit'")
        _check_number("exponent", self.exponent, 0 < _number(self.exponent) < float("inf"), "exponent > 0")
        _check_number("floor", self.floor, 0 <= _number(self.floor) < float("inf"), "floor >= 0")
        for part in ("alpha", "exponent", "floor"):  # NumPy numbers become plain ones, so that records can be written
            if getattr(self, part) != "limit":
                object.__setattr__(self, part, float(getattr(self, part)))
        if not self.name:
            object.__setattr__(self, "name", self._describe())

    @classmethod
    def of(cls, convention: str | Convention) -> Convention:
        """A convention from the name of a preset, or the convention itself."""
        if isinstance(convention, Convention):
            return convention
        if isinstance(convention, str) and convention in PRESETS:
            return PRESETS[convention]
        raise GeoattnError(
            f"unknown convention {convention!r}: expected one of {', '.join(PRESETS)}, or a geoattn.Convention."
            f"{did_you_mean(convention, PRESETS)}"
        )

    def but(self, **changes: Any) -> Convention:
        """The same convention with some parts changed; the name says which."""
        unknown = set(changes) - set(asdict(self))
        if unknown:
            raise GeoattnError(
                f"Convention has no part {', '.join(sorted(unknown))}; it has {', '.join(asdict(self))}."
            )
        return replace(self, **{"name": "", **changes})

    def as_dict(self) -> dict[str, Any]:
        """Every part by name, for records."""
        return asdict(self)

    @property
    def directed(self) -> bool:
        """Whether the graph keeps direction."""
        return self.direction == "directed"

    @property
    def laziness(self) -> float:
        """Alpha as a number; in the Lin-Lu-Yau limit the measure itself has none."""
        return 0.0 if self.alpha == "limit" else float(self.alpha)

    def in_words(self) -> str:
        """One sentence that fixes every part."""
        c = self
        weight = {
            "mean": "S = (A + A^T) / 2",
            "max": "S = max(A, A^T)",
            "min": "S = min(A, A^T)",
            "product": "S = A * A^T by entries",
            "directed": "S = A, directed",
        }[c.direction]
        if c.heads == "mean":
            weight = f"A = mean over heads, {weight}"
        length = {"w": "S", "1/w": "1 / S", "-log w": "-log S", "1-w": "1 - S", "hop": "1"}[c.length]
        measure = {
            "markov": "the attention row",
            "exponential": f"proportional to exp(-length^{c.exponent:g}) over the neighbours",
            "uniform": "uniform over the neighbours",
        }[c.measure]
        if c.alpha == "limit":
            lazy = "Lin-Lu-Yau limit alpha -> 1"
        elif c.alpha:
            lazy = f"with {c.alpha:g} of the mass kept on the token"
        else:
            lazy = "alpha = 0"
        below = {"distance": "the shortest-path distance", "length": "the length of the edge"}[c.denominator]
        floor = f"; 0 where that is below {c.floor:g}" if c.floor else ""
        return f"{weight}; edge length {length}; measure {measure}, {lazy}; kappa = 1 - W1 / {below}{floor}."

    def _describe(self) -> str:
        """The nearest preset and what differs from it."""
        mine = {k: v for k, v in asdict(self).items() if k != "name"}
        best, changes = "markov", mine
        for name, parts in _PRESET_PARTS.items():
            differs = {k: v for k, v in mine.items() if v != {**_DEFAULTS, **parts}[k]}
            if len(differs) < len(changes):
                best, changes = name, differs
        return best + (f" ({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else "")


def _number(x: Any) -> float:
    return float(x) if isinstance(x, Real) and not isinstance(x, bool) else float("nan")


def _check_number(part: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise GeoattnError(f"Convention: {part} must be a number with {expected}; got {value!r}.")


_DEFAULTS: dict[str, Any] = {
    "heads": "each", "direction": "mean", "length": "-log w", "measure": "markov", "alpha": 0.0,
    "denominator": "distance", "exponent": 2.0, "floor": 0.0,
}  # fmt: skip
_GRC: dict[str, Any] = {"length": "w", "measure": "exponential", "alpha": 0.5, "floor": 1e-7}
_PRESET_PARTS: dict[str, dict[str, Any]] = {
    "markov": {},
    "hop": {"length": "hop"},
    "grc-0.6": _GRC,
    "grc-0.5": {**_GRC, "denominator": "length"},
}

#: The four presets by name.
PRESETS: dict[str, Convention] = {name: Convention(name=name, **parts) for name, parts in _PRESET_PARTS.items()}
