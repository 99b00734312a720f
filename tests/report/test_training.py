"""The section on training runs: curves, numbers, hostile names, and the folders that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.cli.app import app
from geoattn.report.models import Models
from geoattn.report.page import page
from geoattn.report.training import training
from geoattn.training.run_folder import TrainingRun, read_run


@pytest.fixture(scope="module")
def profile() -> Any:
    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=3)
    return ga.profile(model, digits, convention="hop", examples=0, lenses=("weights",))


def write(folder: Path, rows: list[dict[str, Any]], **recipe: Any) -> Path:
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps({"data": "digits", "seed": 0, "regularisers": [], **recipe}))
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


ROWS = [
    {"step": 1, "loss": 9.0, "variance": 0.001, "curvature": 0.8, "pl_ratio": 2.0},  # of the monitor
    {"step": 5, "epoch": 1, "loss": 2.25, "penalty": 0.5, "test_accuracy": 0.25},
    {"step": 6, "loss": 8.0, "variance": 0.004, "curvature": 0.5, "pl_ratio": None},
    {"step": 10, "epoch": 2, "loss": 1.5, "penalty": 0.4, "test_accuracy": 0.625},
]


def test_curves_per_direction(profile: Any, tmp_path: Path) -> None:
    up = read_run(write(tmp_path / "up", ROWS, regularisers=[["variance", {"direction": "increase", "gamma": 1.0}]]))
    plain = read_run(write(tmp_path / "plain", ROWS[1:2]))
    section = training(Models.of(profile, None, runs=[up, plain]))
    assert section is not None
    figures = {figure.name: figure.variants[""]["data"] for figure in section.figures}
    assert list(figures) == ["loss", "test_accuracy", "variance", "curvature", "pl_ratio"]
    loss = figures["loss"]
    assert [line["name"] for line in loss] == ["up: variance increase", "plain: no regulariser"]
    assert (loss[0]["x"], loss[0]["y"]) == ([5, 10], [2.25, 1.5])  # epochs alone: the monitor's loss has the penalty
    assert (figures["curvature"][0]["x"], figures["curvature"][0]["y"]) == ([1, 6], [0.8, 0.5])
    assert len(figures["curvature"]) == 1  # the second run has none
    assert figures["pl_ratio"][0]["x"] == [1]  # null is no number
    for words in ("2.250 → 1.500", "62.5 %", "0.001 → 0.004", "0.800 → 0.500", "variance increase"):
        assert words in section.html, words
    text = page(profile, runs=[up])
    assert "Training runs" in text
    assert "Training runs" not in page(profile)


def test_hostile_names_stay_text(profile: Any) -> None:
    bad = TrainingRun(
        "<script>alert(1)</script>\u202e", {"regularisers": [["<b>", {"direction": "<i>"}]], "data": "<u>"}, tuple(ROWS)
    )
    section = training(Models.of(profile, None, runs=[bad]))
    assert section is not None
    assert "<script>" not in section.html
    assert "\u202e" not in section.html
    assert "<script>" not in section.figures[0].variants[""]["data"][0]["name"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "missing", "is not the folder of a training run: recipe.json and log.jsonl expected"),
        (lambda folder: write(folder / "empty", []), "no finished epoch yet"),
        (lambda folder: write(folder / "odd", [{"loss": 1.0}]), "no finished epoch yet"),
    ],
)
def test_folders_that_hold_no_run(make: Any, message: str, tmp_path: Path) -> None:
    folder = make(tmp_path)
    with pytest.raises(GeoattnError, match=message):
        read_run(folder)
    done = CliRunner().invoke(app, ["report", "--run", str(folder), "--out", str(tmp_path / "report.html")])
    assert done.exit_code == 2
    assert not (tmp_path / "report.html").exists()


def test_a_real_run(tmp_path: Path) -> None:
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    recipe = Recipe(
        "digits", epochs=2, limit=40, test_limit=10, batch=20, monitor_every=2, changes={"depth": 1},
        regularisers=(("curvature", {"direction": "decrease"}), ("dropout", {"rate": 0.1})),
    )  # fmt: skip
    train(recipe, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.direction == "curvature decrease, dropout 0.1"
    assert run.series("pl_ratio")[0] == [1, 3]
    assert run.series("test_accuracy")[0] == [2, 4]
