"""``geoattn train`` as an app of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from geoattn._core.errors import GeoattnError
from geoattn.cli.train import train

QUICK = ["digits", "--epochs", "1", "--limit", "64", "--test-limit", "32"]


def run(*args: Any) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train)
    return CliRunner().invoke(app, [str(a) for a in args])


def test_json_and_folder(tmp_path: Path) -> None:
    done = run(*QUICK, "--variance", "increase", "--gamma", "0.5", "--json", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["recipe"]["regularisers"] == [["variance", {"direction": "increase", "gamma": 0.5}]]
    assert summary["steps"] == 1
    assert 0 <= summary["test_accuracy"] <= 1
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoint.safetensors", "log.jsonl", "recipe.json",
    ]  # fmt: skip


def test_words(tmp_path: Path) -> None:
    done = run(*QUICK, "--edge-mask", "0.3", "--out", tmp_path)
    assert "train accuracy" in done.stdout
    assert "checkpoint.safetensors" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["cats"], "unknown data set"),
        ([*QUICK, "--variance", "sideways"], "direction"),
        ([*QUICK, "--variance", "decrease", "--b", "-1"], "undefined"),
        ([*QUICK, "--variance", "decrease", "--gamma", "0"], "gamma"),
        ([*QUICK, "--gamma", "1"], "--gamma needs a penalty"),
        ([*QUICK, "--a", "1"], "belong to --variance"),
        ([*QUICK, "--edge-mask", "1.0"], "below 1"),
    ],
)
def test_bad_values(args: list[str], message: str) -> None:
    done = run(*args)
    assert isinstance(done.exception, GeoattnError)
    assert message in str(done.exception)
