"""The cost model of docs/scale.md is what the measured points give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.scale import EDGES, FITTED, HELD_OUT, fit, predict

ROOT = Path(__file__).parents[1]
FIGURES = json.loads((ROOT / "benchmarks/results/scale.json").read_text())
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")


def test_the_fit_and_its_error_on_points_that_it_has_not_seen() -> None:
    points = {int(point["n"]): point for point in FIGURES["points"]}
    assert not set(FITTED) & set(HELD_OUT)
    model = fit([points[n] for n in FITTED])
    for part in (*EDGES, "prepare"):
        assert model[part] == pytest.approx(FIGURES["model"][part])
    for n in HELD_OUT:
        assert predict(model, n, points[n]["edges"]) == pytest.approx(points[n]["seconds"], rel=0.12), n


def test_the_page_says_these_numbers() -> None:
    for part in (*EDGES, "prepare"):
        coefficients = re.search(rf"\b{part}\(n\)\s+= (\S+) n\^2 \+ (\S+) n\^3", PAGE)
        assert coefficients is not None
        assert float(coefficients[1]) == pytest.approx(FIGURES["model"][part]["square"], rel=0.01)
        assert float(coefficients[2]) == pytest.approx(FIGURES["model"][part]["cube"], rel=0.01)
    hours = 1024 * predict(FIGURES["model"], 8192, 16) / 3600
    assert f"| {hours:.0f} h |" in PAGE
    for row in FIGURES["held_out"]:
        assert f"| {row['n']:,} | " in PAGE
        assert f" {row['ratio']:.2f} |" in PAGE
