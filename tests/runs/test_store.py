"""Run store: written once, claimed once, the same whatever is killed."""

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

from geoattn.errors import GeoattnError
from geoattn.runs.local import run_trials, verify
from geoattn.runs.store import Store

SQUARE = "tests.runs.trials:square"
CONFIGS: list[dict[str, Any]] = [{"x": x} for x in range(6)]


def store(folder: Path, version: int = 1) -> Store:
    return Store(folder, "squares", version)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "results").iterdir()}


def test_results_in_order_and_only_once(tmp_path: Path) -> None:
    first = run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    assert first == [{"square": x * x} for x in range(6)]
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").iterdir()}
    assert run_trials(store(tmp_path), "small", CONFIGS, SQUARE) == first
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "results").iterdir()}
    assert store(tmp_path).status(CONFIGS).done == 6
    assert verify(store(tmp_path), CONFIGS, SQUARE) == []


def test_the_version_is_part_of_the_key(tmp_path: Path) -> None:
    assert store(tmp_path, 1).key({"x": 1}) != store(tmp_path, 2).key({"x": 1})


def test_a_claim_excludes_others_and_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom geoattn.runs.store import Store\n"
        "with Store(sys.argv[1], 'squares', 1).claim({'x': 1}) as mine:\n"
        "    sys.stdout.write(str(mine)); sys.stdout.flush(); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.read(4) == "True"
    with store(tmp_path).claim({"x": 1}) as mine:
        assert not mine
    assert store(tmp_path).status([{"x": 1}]).running == 1
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with store(tmp_path).claim({"x": 1}) as mine:  # taken over
        assert mine


def test_a_second_result_must_be_equal(tmp_path: Path) -> None:
    store(tmp_path).write({"x": 1}, {"square": 1})
    store(tmp_path).write({"x": 1}, {"square": 1})
    with pytest.raises(GeoattnError, match="no pure function"):
        store(tmp_path).write({"x": 1}, {"square": 2})


def test_a_damaged_result_is_noticed(tmp_path: Path) -> None:
    run_trials(store(tmp_path), "small", CONFIGS, SQUARE)
    path = next((tmp_path / "results").iterdir())
    path.write_text(path.read_text().replace('"square": ', '"square": 1'))
    with pytest.raises(GeoattnError, match="is damaged"):
        store(tmp_path).status(CONFIGS)


def test_verify_finds_what_differs(tmp_path: Path) -> None:
    store(tmp_path).write({"x": 3}, {"square": 10})
    assert "stored {'square': 10}, now {'square': 9}" in verify(store(tmp_path), CONFIGS, SQUARE)[0]


def test_a_failed_trial_is_an_error_when_the_others_are_done(tmp_path: Path) -> None:
    configs = [{"x": 1}, {"x": 2, "bad": True}, {"x": 3}]
    with pytest.raises(GeoattnError, match=r"1 of 3 trials failed; .*ValueError: no square"):
        run_trials(store(tmp_path), "small", configs, SQUARE)
    status = store(tmp_path).status(configs)
    assert (status.done, status.failed, status.waiting) == (2, 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: run_trials(s, "small", CONFIGS, "tests.runs.trials:cube"), "no trial function"),
        (lambda s: run_trials(s, "small", CONFIGS, SQUARE, workers=0), "workers"),
        (lambda s: s.write({"x": 1}, {"y": float("nan")}), "plain JSON"),
        (lambda s: (s.plan("small", CONFIGS), s.plan("paper", CONFIGS)), "another study, version or size"),
    ],
)
def test_bad_input(tmp_path: Path, call: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        call(store(tmp_path))


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(GeoattnError, match="not empty"):
        run_trials(store(tmp_path), "small", CONFIGS, SQUARE)


_DRIVER = """
import json, sys
from geoattn.runs.local import run_trials
from geoattn.runs.store import Store
run_trials(Store(sys.argv[1], "squares", 1), "small", json.loads(sys.argv[2]), "tests.runs.trials:square", workers=2)
"""


def children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers of a driver in /proc")
def test_random_kills_of_workers_and_driver(tmp_path: Path) -> None:
    configs = [{"x": x, "seconds": 0.15} for x in range(16)]
    run_trials(store(tmp_path / "calm"), "small", configs, SQUARE)
    rng = random.Random(0)
    command = [sys.executable, "-c", _DRIVER, str(tmp_path / "wild"), json.dumps(configs)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    kills = 0
    for attempt in range(6):
        driver = subprocess.Popen(command, env=environment)
        workers: list[int] = []
        deadline = time.monotonic() + 60
        while driver.poll() is None and len(workers) < 2 and time.monotonic() < deadline:
            workers = children(driver.pid) or workers
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.6))
        for pid in [*workers[:1], *([driver.pid] if attempt % 2 == 0 else [])]:  # our own children, by number
            try:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
        driver.wait(timeout=100)
        if driver.returncode == 0:
            break
    subprocess.run(command, env=environment, check=True, timeout=100)
    assert kills >= 2
    deadline = time.monotonic() + 20
    while store(tmp_path / "wild").status(configs).running and time.monotonic() < deadline:
        time.sleep(0.1)  # orphans of a killed driver finish what they are at
    assert contents(tmp_path / "wild") == contents(tmp_path / "calm")
