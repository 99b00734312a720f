"""A study for tests: three trials, of which one fails until a file exists."""

from __future__ import annotations

from typing import Any

from geoattn.studies.engine.finding import judge
from geoattn.studies.engine.study import Study


def _sizes(size: str) -> list[dict[str, Any]]:
    return [{"x": 0}, {"x": 1}, {"x": 2, "bad": True}]


def _table(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame([{"x": config["x"], "square": result["square"]} for config, result in pairs])


def _figure(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    from matplotlib.figure import Figure

    return Figure()


def _verdict(pairs: list[tuple[dict[str, Any], Any]]) -> list[Any]:
    return [judge("squares exceed", "numbers", [result["square"] - config["x"] + 1.0 for config, result in pairs])]


STUDY = Study("squares", 1, "tests.runs.trials:mended", _sizes, _table, _figure, _verdict, "ricci", "none", "by hand")
