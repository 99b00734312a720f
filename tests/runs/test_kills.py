"""kill -9 of workers and drivers at random moments: the same results as in an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from geoattn.runs.drive import run_trials
from tests.runs.test_store import SQUARE, contents, store

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers of a driver in /proc")

_DRIVER = """
import json, sys
from geoattn.runs.drive import run_trials
from geoattn.runs.store import Store
run_trials(Store(sys.argv[1], "squares", 1), "small", json.loads(sys.argv[2]), "tests.runs.trials:square", workers=2)
"""


def driver(folder: Path, configs: list[dict[str, Any]], log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "GEOATTN_TEST_LOG": str(log)}
    return subprocess.Popen([sys.executable, "-c", _DRIVER, str(folder), json.dumps(configs)], env=environment)


def children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill(pid: int) -> int:
    """Of our own children, by number; 1 if it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
        return 1
    except ProcessLookupError:
        return 0


def disturbed(folder: Path, configs: list[dict[str, Any]], log: Path, kills: int, longest: float, seed: int) -> None:
    """Kill workers and drivers in turn, then let a last driver come to the end."""
    rng, done = random.Random(seed), 0
    while done < kills:
        running = driver(folder, configs, log)
        while running.poll() is None and done < kills:
            time.sleep(rng.uniform(0.3, longest))
            workers = children(running.pid)
            if done % 2 and workers:
                done += kill(rng.choice(workers))
            elif running.poll() is None:
                done += kill(running.pid)
                break
        running.wait(timeout=250)
        if running.returncode == -signal.SIGKILL:
            time.sleep(0.3)
            assert store(folder).status(configs).running == 0  # the workers went with their driver
        else:  # it came to its end, and must have been disturbed enough by then
            assert (running.returncode, done) == (0, kills)
    last = driver(folder, configs, log)
    assert last.wait(timeout=200) == 0


def check(tmp_path: Path, configs: list[dict[str, Any]], kills: int) -> None:
    calm = [{**config, "seconds": 0.0} for config in configs]
    assert len(run_trials(store(tmp_path / "calm"), "small", calm, SQUARE)) == len(configs)
    found = [content["result"] for content in contents(tmp_path / "wild").values()]
    wanted = [content["result"] for content in contents(tmp_path / "calm").values()]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert not list((tmp_path / "wild").rglob("*.part"))
    ends = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("end")]
    # a trial is done once, but for one that was killed between its end and the writing of its result
    assert len(configs) <= len(ends) <= len(configs) + kills


def test_random_kills_of_workers_and_drivers(tmp_path: Path) -> None:
    configs = [{"x": x, "seconds": 0.25} for x in range(40)]
    disturbed(tmp_path / "wild", configs, tmp_path / "log", kills=4, longest=0.9, seed=0)
    check(tmp_path, configs, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ten_kills_of_a_study_of_forty_trials(tmp_path: Path, seed: int) -> None:
    configs = [{"x": x, "seconds": 1.0} for x in range(40)]
    disturbed(tmp_path / "wild", configs, tmp_path / "log", kills=10, longest=1.8, seed=seed)
    check(tmp_path, configs, 10)


def test_two_drivers_on_one_folder(tmp_path: Path) -> None:
    configs = [{"x": x, "seconds": 0.05} for x in range(40)]
    both = [driver(tmp_path / "wild", configs, tmp_path / "log") for _ in range(2)]
    assert [one.wait(timeout=100) for one in both] == [0, 0]
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if not line.startswith("node")]
    assert sorted(lines) == sorted(f"{what} {x}" for what in ("begin", "end") for x in range(40))  # each once
    check(tmp_path, configs, 0)
