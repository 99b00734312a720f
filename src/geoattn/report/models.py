"""The one or two models of a report, and the choices that their sections share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.profiles.result import Profile, shared_conventions
from geoattn.report.escaping import visible
from geoattn.report.section import Control

__all__ = ["Models"]


@dataclass(frozen=True, eq=False)
class Models:
    """``profiles`` with their ``names``, ready to be shown, and the ``conventions`` that all of them have.

    ``robustness`` has what `geoattn.robustness` gave for each of them, or None; ``runs`` are training runs.
    ``flows`` has what `model_flow` gave for each, or None.
    """

    profiles: tuple[Profile, ...]
    names: tuple[str, ...]
    conventions: tuple[str, ...]
    robustness: tuple[Any, ...] = ()
    runs: tuple[Any, ...] = ()
    flows: tuple[Any, ...] = ()

    @classmethod
    def of(cls, profile: Profile, other: Profile | None, robustness: Any = None, runs: Sequence[Any] = ()) -> Models:
        """Names of equal models get a number; conventions that only one profile has are left out."""
        profiles = (profile,) if other is None else (profile, other)
        shared = shared_conventions(*profiles)
        names = [visible(p.settings["model"], 60) for p in profiles]
        if len(set(names)) < len(names):
            data = [visible(p.settings["data"], 40) for p in profiles]
            extra = data if len(set(data)) == len(data) else ["first", "second"]
            names = [f"{name} ({more})" for name, more in zip(names, extra, strict=True)]
        return cls(profiles, tuple(names), tuple(shared), _one_each(robustness, len(profiles)), tuple(runs))

    def control(self, name: str, label: str, options: Sequence[tuple[str, str]]) -> Control:
        """A choice."""
        return Control(name, label, tuple(options))

    def controls(self) -> tuple[Control, ...]:
        """Model and convention."""
        return (
            self.control("model", "Model", [(str(m), name) for m, name in enumerate(self.names)]),
            self.control("convention", "Convention", [(name, name) for name in self.conventions]),
        )


def _one_each(robustness: Any, count: int) -> tuple[Any, ...]:
    """One result, or one (or None) per model."""
    given = tuple(robustness) if isinstance(robustness, (tuple, list)) else (robustness,)
    if len(given) > count:
        raise GeoattnError(f"robustness must be of the {count} models of the report; got {len(given)} results.")
    return given + (None,) * (count - len(given))
