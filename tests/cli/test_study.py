"""``geoattn study`` as an app of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from geoattn.cli.study import study
from geoattn.errors import GeoattnError


def run(*args: Any) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(study)
    return CliRunner().invoke(app, [str(a) for a in args])


def test_run_status_verify(tmp_path: Path) -> None:
    before = run("table1", "status", "--out", tmp_path / "s", "--json")
    assert json.loads(before.stdout)["waiting"] == 4
    done = run("table1", "--size", "smoke", "--out", tmp_path / "s")
    assert done.exit_code == 0, done.output
    assert "table1.csv" in done.stdout
    assert "4 done" in run("table1", "status", "--out", tmp_path / "s").stdout
    checked = run("table1", "verify", "--out", tmp_path / "s", "--limit", "1")
    assert "1 trials done again: all equal" in checked.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table1"], "--out is needed"),
        (["table7", "--out", "x"], "unknown study"),
        (["table1", "dance", "--out", "x"], "run, status or verify"),
        (["table1", "--size", "huge", "--out", "x"], "size must be"),
    ],
)
def test_bad_values(args: list[str], message: str) -> None:
    done = run(*args)
    assert isinstance(done.exception, GeoattnError)
    assert message in str(done.exception)
