"""The claims of the three papers: what each says, where, and which findings of which study speak to it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["Claim", "claims", "papers"]


@dataclass(frozen=True)
class Claim:
    """One claim of ``claims.toml``, which says what the fields mean."""

    id: str
    paper: str
    place: str
    kind: str
    says: str
    tests: tuple[tuple[str, str], ...] = ()
    note: str = ""
    checked_by: str = ""

    def is_tested_by(self, study: str, claim: str) -> bool:
        """Whether a finding of a study speaks to it.

        >>> claims()[1].is_tested_by("spectral-link", "higher curvature, higher row entropy")
        True
        """
        return any(study == name and re.match(pattern, claim) is not None for name, pattern in self.tests)


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the papers."""
    return tuple(
        Claim(**{**content, "tests": tuple((name, pattern) for name, pattern in content.get("tests", ()))})
        for content in _catalogue()["claims"]
    )


def papers() -> dict[str, str]:
    """Titles by the name that studies use."""
    return dict(_catalogue()["papers"])


@cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(files("geoattn.studies").joinpath("claims.toml").read_text(encoding="utf-8"))
