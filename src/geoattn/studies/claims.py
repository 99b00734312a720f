"""The claims of the three papers: what each says, where, and on which number of which study its verdict rests."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["Claim", "Endpoint", "claims", "papers"]


@dataclass(frozen=True)
class Endpoint:
    """The one number of a claim: ``number[more] - number[less]`` of a study; see ``claims.toml``."""

    fixed: Any
    study: str
    number: str
    more: str
    less: str
    data: str
    convention: str | None = None
    margin: float = 0.0
    paper: dict[str, float] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Of all that fixes the endpoint: it changes when the endpoint does."""
        content = {**vars(self), "fixed": str(self.fixed), "beside": ", ".join(self.beside)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def paper_effect(self) -> float | None:
        """The mean over data sets of the differences that the paper prints."""
        return sum(self.paper.values()) / len(self.paper) if self.paper else None


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
    not_here: str = ""
    endpoint: Endpoint | None = None

    def is_tested_by(self, study: str, claim: str) -> bool:
        """Whether a finding of a study speaks to it.

        >>> claims()[1].is_tested_by("spectral-link", "higher curvature, higher row entropy")
        True
        """
        return any(study == name and re.match(pattern, claim) is not None for name, pattern in self.tests)


@cache
def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the papers."""
    return tuple(map(_claim, _catalogue()["claims"]))


def _claim(content: dict[str, Any]) -> Claim:
    tests = tuple((name, pattern) for name, pattern in content.get("tests", ()))
    endpoint = None
    if "endpoint" in content:
        fields = content["endpoint"]
        endpoint = Endpoint(**{**fields, "beside": tuple(fields.get("beside", ()))})
    return Claim(**{**content, "tests": tests, "endpoint": endpoint})


def papers() -> dict[str, str]:
    """Titles by the name that studies use."""
    return dict(_catalogue()["papers"])


@cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(files("geoattn.studies").joinpath("claims.toml").read_text(encoding="utf-8"))
