"""What came of a trial, and where it goes: a result to the results, a fault to the failures."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from geoattn.runs.provenance import made_here
from geoattn.runs.store import Store

__all__ = ["Outcome", "keep"]


class Outcome(NamedTuple):
    """A result, or why there is none; and the seconds of processor time that it took, since the last kill."""

    result: Any
    error: str | None
    seconds: float | None = None


def keep(store: Store, config: dict[str, Any], outcome: Outcome) -> None:
    """Write it down. A result that is no plain JSON is the trial's fault; a disk that is full is not, and an error."""
    error = outcome.error
    if error is None:
        try:
            json.dumps(outcome.result, allow_nan=False)
            if outcome.result is None:
                error = "a trial must return something; got None"
        except (TypeError, ValueError) as wrong:
            error = f"results must be plain JSON: {wrong}"
    if error is None:
        store.write(config, outcome.result, provenance=made_here(outcome.seconds))
    else:
        store.fail(config, error)
