"""What a study is: trials in three sizes, a table, a figure and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geoattn._core.errors import GeoattnError
from geoattn.studies.engine.finding import Finding

__all__ = ["SIZES", "Pairs", "Study"]

SIZES = ("smoke", "small", "paper")
#: Configurations and results of trials, in order.
Pairs = list[tuple[dict[str, Any], Any]]


@dataclass(frozen=True)
class Study:
    """A study. ``trial`` names the trial function as ``module:function``; raise ``version`` when its results change.

    ``sizes`` maps smoke, small and paper to lists of configurations, ``table`` makes a data frame of (configuration,
    result) pairs, ``figure`` a matplotlib figure and ``verdict`` the findings. ``paper`` (ricci, smoothness or
    mean-field), ``place`` (where the paper makes the claim) and ``how`` (a sentence: how it was tested) go to the
    claims ledger. ``partial``: table and findings may be written from the trials that are done, for long studies.
    ``deviations`` (a sentence: where the study differs from the paper) and ``accuracy`` (mean test accuracy by name of
    data set and arm) stand beside its findings.
    """

    name: str
    version: int
    trial: str
    sizes: Callable[[str], list[dict[str, Any]]]
    table: Callable[[list[tuple[dict[str, Any], Any]]], Any]
    figure: Callable[[list[tuple[dict[str, Any], Any]]], Any]
    verdict: Callable[[list[tuple[dict[str, Any], Any]]], list[Finding]]
    paper: str = ""
    place: str = ""
    how: str = ""
    partial: bool = False
    deviations: str = ""
    accuracy: Callable[[list[tuple[dict[str, Any], Any]]], dict[str, float]] | None = None

    def configs(self, size: str) -> list[dict[str, Any]]:
        """The trials of a size."""
        if size not in SIZES:
            raise GeoattnError(f"size must be one of {', '.join(SIZES)}; got {size!r}.")
        return self.sizes(size)
