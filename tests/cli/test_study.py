"""``geoattn study`` as an app of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from geoattn._core.errors import GeoattnError
from geoattn.cli.study import study
from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study


def run(*args: Any) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(study)
    return CliRunner().invoke(app, [str(a) for a in args])


def test_run_status_verify(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    before = json.loads(run("table1", "status", "--out", folder, "--json").stdout)
    assert before["waiting"] == before["total"] > 0
    assert "are missing: run the study" in run("table1", "verify", "--out", folder).stdout
    done = run("table1", "--size", "smoke", "--out", folder)
    assert done.exit_code == 0, done.output
    assert "table1.csv" in done.stdout
    assert f"{before['total']} done" in run("table1", "status", "--out", folder).stdout
    checked = run("table1", "verify", "--out", folder, "--redo", "1")
    assert (checked.exit_code, "; 1 trials done again: all equal" in checked.stdout) == (0, True)


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of three trials, of which one may fail."""
    from geoattn.studies import catalogue as module
    from tests.studies import squares

    monkeypatch.setitem(module.STUDIES, "squares", f"{squares.__name__}:STUDY")
    monkeypatch.setenv("GEOATTN_TEST_CURE", str(tmp_path / "cure"))
    return tmp_path / "s"


def test_failures_are_listed_and_retried_on_request(finished: Path, tmp_path: Path) -> None:
    assert "1 of 3 trials failed" in str(run("squares", "--out", finished).exception)
    status = run("squares", "status", "--out", finished).stdout
    assert "2 done, 0 running, 1 failed" in status
    assert 'failed: {"x": 2, "bad": true}: ValueError: not yet' in status
    (tmp_path / "cure").write_text("")
    assert "1 of 3 trials failed" in str(run("squares", "--out", finished).exception)
    assert run("squares", "--out", finished, "--retry").exit_code == 0
    assert run("squares", "verify", "--out", finished, "--redo", "3").exit_code == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("squares.csv", "2,4", "2,5", r"line 4, field 2 says '5', the trials say '4'"),
        ("squares.json", '"difference": 1', '"difference": 2', "is not what the trials give: line"),
        ("squares.json", "{", "", "cannot be read"),
    ],
)
def test_verify_finds_a_table_that_was_touched(
    finished: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    (tmp_path / "cure").write_text("")
    assert run("squares", "--out", finished).exit_code == 0
    path = finished / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    checked = run("squares", "verify", "--out", finished)
    assert checked.exit_code == 1
    assert message in checked.stdout
    assert run("squares", "--out", finished).exit_code == 0  # writes it anew
    assert run("squares", "verify", "--out", finished).exit_code == 0


def test_verify_finds_a_result_that_no_trial_gives(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "cure").write_text("")
    store = Store(finished, "squares", 1)
    store.plan("smoke", find_study("squares").configs("smoke"))
    store.write({"x": 1}, {"square": 7})
    assert run("squares", "--out", finished).exit_code == 0
    assert run("squares", "verify", "--out", finished).exit_code == 0  # the table is what the trials give
    checked = run("squares", "verify", "--out", finished, "--redo", "3")
    assert (checked.exit_code, "stored {'square': 7}, now {'square': 1}" in checked.stdout) == (1, True)


def test_a_damaged_trial_is_mentioned_in_one_line(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "cure").write_text("")
    run("squares", "--out", finished)
    table = (finished / "squares.csv").read_bytes()
    path = next((finished / "results").iterdir())
    path.write_text("{")
    assert f"damaged: {path.stem}" in run("squares", "status", "--out", finished).stdout
    assert "1 of 3 trials are missing, 1 of them damaged" in run("squares", "verify", "--out", finished).stdout
    again = run("squares", "--out", finished)
    assert again.exit_code == 0
    assert again.stderr.startswith("geoattn: note: 1 results in")
    assert again.stderr.count("\n") == 1
    assert (finished / "squares.csv").read_bytes() == table


def test_findings_carry_their_provenance_without_times_and_paths(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "cure").write_text("")
    run("squares", "--out", finished)
    text = (finished / "squares.json").read_text()
    about = json.loads(text)
    assert (about["study"], about["version"], about["size"], about["trials"]) == ("squares", 1, "smoke", 3)
    assert set(about["provenance"]["table"]) == {"geoattn", "torch", "numpy", "python", "platform"}
    (made,) = about["provenance"]["trials"]
    assert {k: made[k] for k in about["provenance"]["table"]} == about["provenance"]["table"]
    assert set(made) - set(about["provenance"]["table"]) == {"cpu", "threads", "commit"}
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table1"], "--out is needed"),
        (["table7", "--out", "x"], "unknown study"),
        (["table1", "dance", "--out", "x"], "expected one of run, status, verify"),
        (["table1", "--size", "huge", "--out", "x"], "size must be"),
        (["table1", "--backend", "moon", "--out", "x"], "backend must be local or ray"),
        (["table1", "--address", "auto", "--out", "x"], "that of a Ray cluster"),
        (["table1", "verify", "--redo", "-1", "--out", "x"], "--redo"),
    ],
)
def test_bad_values(args: list[str], message: str) -> None:
    done = run(*args)
    assert isinstance(done.exception, GeoattnError)
    assert message in str(done.exception)


def test_list() -> None:
    from geoattn.studies import STUDIES

    lines = run("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)
    assert all(len(line.split()) > 4 for line in lines)
    assert list(json.loads(run("--list", "--json").stdout)) == list(STUDIES)


def test_all_results_at_once(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "cure").write_text("")
    folder = tmp_path / "results" / "squares" / "smoke"
    assert run("squares", "--out", folder).exit_code == 0
    assert (
        run("status", "--results", tmp_path / "results").stdout == "squares smoke: 3 of 3 done, 0 running, 0 failed\n"
    )
    good = run("verify", "--results", tmp_path / "results")
    assert (good.exit_code, good.stdout) == (0, "squares smoke: the trials give the table\n")
    (folder / "squares.csv").write_text("x\n")
    assert run("verify", "--results", tmp_path / "results").exit_code == 1
    assert run("squares", "--out", folder).exit_code == 0
    unknown = tmp_path / "results" / "no-such-study" / "smoke"
    unknown.mkdir(parents=True)
    (unknown / "trials.json").write_text("{}")
    said = run("verify", "--results", tmp_path / "results")
    assert said.exit_code == 1
    assert "no-such-study smoke: there is no study no-such-study\n" in said.stdout
