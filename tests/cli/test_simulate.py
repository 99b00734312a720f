"""``geoattn simulate``: experiments with their outcome and exit code, free runs, files, bad values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoattn._core.progress import Progress
from geoattn.dynamics.experiments import FIGURES, Check, Entry, Experiment, experiment_names, experiments
from geoattn.dynamics.trajectory import Trajectory

# the ones that take a second or less; tests/dynamics runs all of them in small form
QUICK = ("fig1", "fig7", "long-context")


@pytest.mark.parametrize("name", QUICK)
def test_an_experiment_in_small_form(run: Any, name: str) -> None:
    done = run("simulate", name, "--size", "small")
    assert done.exit_code == 0, done.output
    assert "does not hold" not in done.stdout
    count = done.stdout.count("holds")
    assert f"{count} of {count} hold" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*FIGURES, *(k for k in experiment_names() if k not in FIGURES.values())])
def test_as_published(run: Any, name: str) -> None:
    """From the command line, at the published parameters."""
    done = run("simulate", name, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["passed"]
    assert answer["size"] == "paper"


def test_exit_code_of_an_outcome_that_is_not_as_expected(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*, small: bool, seed: int, progress: Progress) -> Experiment:
        """Never."""
        return Experiment({"seed": seed}, (Check.near("one", 2.0, 1.0, 0.5), Check("nan", float("nan"), 0, 1)))

    monkeypatch.setitem(experiments(), "wrong", Entry("wrong", "Never.", "", "", wrong))
    done = run("simulate", "wrong")
    assert done.exit_code == 1
    assert "0 of 2 hold" in done.stdout
    answer = json.loads(run("simulate", "wrong", "--json").stdout)
    assert [c["passed"] for c in answer["checks"]] == [False, False]
    assert answer["checks"][1]["found"] is None


def test_an_experiment_shows_how_far_it_is_but_not_with_json(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from geoattn.cli.progress import LateProgress

    seen = []
    monkeypatch.setattr(LateProgress, "update", lambda self, done: seen.append(done))
    assert run("simulate", "fig1", "--size", "small").exit_code == 0
    assert len(seen) > 100
    assert seen == sorted(seen)
    assert seen[-1] == 1000
    seen.clear()
    assert run("simulate", "fig1", "--size", "small", "--json").exit_code == 0
    assert run("simulate", "--n", 4, "--until", "0.5", "--json").exit_code == 0
    assert not seen


def test_every_experiment_is_listed(run: Any) -> None:
    lines = run("simulate", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(experiment_names())
    rows = json.loads(run("simulate", "--list", "--json").stdout)
    assert {row["figure"] for row in rows} >= {f"fig{k}" for k in range(1, 8)}


def test_a_run_with_files(run: Any, tmp_path: Path) -> None:
    out, film = tmp_path / "run.npz", tmp_path / "film.gif"
    done = run(
        "simulate",
        "--n",
        6,
        "--d",
        3,
        "--beta",
        2,
        "--until",
        "0.4",
        "--step",
        "0.1",
        "--out",
        out,
        "--gif",
        film,
        "--json",
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["t"][-1] == 0.4
    assert answer["settings"]["beta"] == 2.0
    assert answer["balance"] < 1e-4
    assert answer["files"] == [str(out), str(film)]
    back = Trajectory.load(out)
    assert back.final.shape == (6, 3)
    assert film.read_bytes()[:6] == b"GIF89a"
    assert not list(tmp_path.glob(".film-*"))


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (["--D", "1,3,4", "--V", "D", "--flow", "usa", "--method", "adaptive"], 1.0),  # at the top eigenvector
        (["--D", "-1", "--V", "D", "--d", "2"], 1.0),  # an antipodal pair
        (["--D", "1,0.5", "--V", "-D", "--until", "20"], 0.75),  # towards the axis of 0.5
    ],
)
def test_gradient_flows(run: Any, options: list[str], end: float) -> None:
    done = run("simulate", "--n", 12, *options, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["nematic"][-1] >= end - 1e-6
    steps = np.diff(answer["log_energy"])
    assert (steps >= -1e-9).all() if "-D" not in options else (steps <= 1e-9).all()


def test_start_from_a_file_and_runs_side_by_side(run: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[3.0, 4.0], [1.0, 0.0]]))
    np.save(tmp_path / "D.npy", np.array([[0.0, 1.0], [-1.0, 0.0]]))
    off = run("simulate", "--tokens", tmp_path / "x.npy", "--until", "1")
    assert off.exit_code == 2
    assert "unit sphere" in off.output
    done = run("simulate", "--tokens", tmp_path / "x.npy", "--normalise", "--D", tmp_path / "D.npy", "--until", "1")
    assert done.exit_code == 0, done.output
    assert "n = 2, d = 2" in done.stdout
    done = run("simulate", "--n", 4, "--runs", 3, "--until", "0.5", "--causal")
    assert "means over 3 runs" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["fig9"], "experiment must be one of"),
        (["fig1", "--n", "5"], "--n belongs to a run of one's own"),
        (["fig1", "--size", "huge"], "size must be one of"),
        (["--size", "small"], "--size belongs to an experiment"),
        (["fig1", "--seed", "-1"], "seed must be"),
        (["--n", "-3"], "n must be a whole number of at least 1"),
        (["--d", "1"], "d must be"),
        (["--flow", "ua"], "flow must be one of"),
        (["--method", "rk5"], "method must be one of"),
        (["--until", "soon"], "--until must be a time or stationary"),
        (["--D", "1,x"], "--D must be a number"),
        (["--D", "1,2", "--d", "3"], "D must be a number or a matrix (3, 3)"),
        (["--D", "none.npy"], "no such file"),
        (["--tokens", "none.npy"], "no such file"),
        (["--normalise"], "--normalise goes with --tokens"),
        (["--gif", "film.avi"], "a film is a .gif or an .mp4"),
        (["--out", "run.csv"], "--out must be a .npz file"),
        (["--out", "nowhere/run.npz"], "not a folder that can be written"),
        (["--flow", "usa", "--beta", "800", "--until", "1"], "shift"),
    ],
)  # fmt: skip
def test_bad_values(run: Any, options: list[str], message: str) -> None:
    done = run("simulate", *options)
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert done.output.count("\n") == 1
