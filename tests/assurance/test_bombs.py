"""No file makes the process grow beyond the read limit: one line and exit code 2 instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import geoattn as ga
from geoattn._core.read_limit import LIMIT_VARIABLE
from tests.assurance.bombs import npz

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_every_bomb_ends_with_one_line(tmp_path: Path) -> None:
    """One child reads them all; what it grew by is measured for each."""
    command = [sys.executable, "-m", "tests.assurance.bombs", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=850)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) >= 35
    wrong = [
        row
        for row in rows
        if row["code"] != 2
        or row["words"] not in row["said"]
        or "\n" in row["said"]
        or row["grown"] > (300 if row["name"].startswith("200MB") else 1000) * 10**6
    ]
    assert not wrong, json.dumps(wrong, indent=1)


def test_the_limit_can_be_raised_and_lowered(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = np.random.default_rng(0).dirichlet(np.ones(9), (2, 9))
    np.savez_compressed(tmp_path / "a.npz", a=attention)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.1 kB")
    said = run("curvature", tmp_path / "a.npz")
    assert said.exit_code == 0  # four times its size on the disk is always allowed
    npz(tmp_path / "b.npz", (100, 100, 100))
    assert "asks for 4 MB of memory" in run("curvature", tmp_path / "b.npz").stderr
    raised = run("--read-limit", "1GB", "curvature", tmp_path / "b.npz")
    assert "asks for" not in raised.stderr
    for bad in ("much", "-1", "8XB", "nan", "0"):
        said = run("--read-limit", bad, "curvature", tmp_path / "a.npz")
        assert (said.exit_code, said.stderr.count("\n")) == (2, 1)
        assert "must be a number of bytes" in said.stderr


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    monkeypatch.setenv(LIMIT_VARIABLE, "")  # put back afterwards: the option sets it
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args], prog_name="geoattn")


def test_a_callback_that_fails_says_whose_fault_it_is() -> None:
    attention = np.random.default_rng(0).dirichlet(np.ones(9), 9)
    with pytest.raises(ga.GeoattnError, match="progress= raised ZeroDivisionError") as raised:
        ga.ollivier_ricci(attention, progress=lambda done, total: 1 / 0)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_no_edge_at_all_is_an_error() -> None:
    attention = np.random.default_rng(0).dirichlet(np.ones(9), 9)
    for none in (np.zeros((9, 9), bool), np.array([]), np.zeros((0, 2), int), []):
        with pytest.raises(ga.GeoattnError, match="edges"):
            ga.ollivier_ricci(attention, edges=none)  # type: ignore[arg-type]
