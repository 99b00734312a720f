"""A real Ray cluster of two nodes on this machine: the same bits as here, whatever node is killed."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geoattn._core.errors import GeoattnError
from geoattn._core.versions import versions
from geoattn.runs.cluster import check_versions
from geoattn.runs.drive import run_trials
from tests.runs.test_store import SQUARE, contents, store

pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]

_DRIVER = """
import json, sys
from geoattn.runs.drive import run_trials
from geoattn.runs.store import Store
store = Store(sys.argv[1], "squares", 1)
run_trials(store, "small", json.loads(sys.argv[2]), "tests.runs.trials:square", backend="ray", address=sys.argv[3])
"""


class Cluster:
    """Nodes by number; node 0 is the head."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "GEOATTN_TEST_LOG": str(self.log), "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            # a token of this cluster's own: what the machine is set to, and its token, do not matter
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }  # fmt: skip
        self._nodes: list[tuple[subprocess.Popen[str], int]] = []
        self.address = self.add()

    def add(self, *address: str) -> str:
        node = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/runs/ray_node.py"), str(self.folder), *address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment,
            start_new_session=True,  # a signal to the group of the tests must not end it before it has cleaned up
        )  # fmt: skip
        self._nodes.append((node, 0))
        assert node.stdout is not None
        group, _, place = node.stdout.readline().partition(" ")
        self._nodes[-1] = (node, int(group))
        return place.strip()

    def kill(self, number: int) -> None:
        """The node and all its processes, at once."""
        os.killpg(self._nodes[number][1], signal.SIGKILL)

    def run(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command], env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def used(self) -> set[str]:
        """The nodes on which trials ran."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return {line for line in lines if line.startswith("node")}

    def close(self) -> None:
        for node, _ in self._nodes:
            for pipe in (node.stdin, node.stdout):
                if pipe is not None:
                    pipe.close()  # it ends its node and itself
        for node, _ in self._nodes:
            node.wait(timeout=30)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # short: the names of sockets have a limit
    made = None
    try:
        made = Cluster(folder)
        made.add(made.address)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


def finish(process: subprocess.Popen[str], timeout: float = 250) -> str:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def drive(cluster: Cluster, folder: Path, configs: list[dict[str, Any]]) -> subprocess.Popen[str]:
    return cluster.run("-c", _DRIVER, str(folder), json.dumps(configs), cluster.address)


def wait_for(folder: Path, configs: list[dict[str, Any]], least: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while store(folder).status(configs).done < least and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_two_nodes_one_of_them_killed_and_the_smoke_study(cluster: Cluster, tmp_path: Path) -> None:
    configs = [{"x": x, "seconds": 0.8} for x in range(40)]
    running = drive(cluster, tmp_path / "ray", configs)
    wait_for(tmp_path / "ray", configs, 5, running)
    while len(cluster.used()) < 2 and running.poll() is None:
        time.sleep(0.05)
    if running.poll() is not None:
        finish(running)  # says what went wrong
    assert store(tmp_path / "ray").status(configs).done < 40
    cluster.kill(1)
    finish(running)
    calm = [{**config, "seconds": 0.0} for config in configs]
    here = run_trials(store(tmp_path / "here"), "small", calm, SQUARE)
    assert [store(tmp_path / "ray").read(config) for config in configs] == here
    assert len(contents(tmp_path / "ray")) == 40
    assert not list((tmp_path / "ray").rglob("*.part"))

    cluster.add(cluster.address)  # a new node takes the place of the dead one
    study = ("-m", "geoattn", "study", "table1", "--out", str(tmp_path / "table1"))
    finish(cluster.run(*study, "--size", "smoke", "--backend", "ray", "--address", cluster.address))
    answer = finish(cluster.run(*study[:4], "verify", *study[4:], "--redo", "1"))
    assert "6 trials give table1.csv and table1.json; 1 trials done again: all equal" in answer


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nodes_and_drivers_killed_ten_times(cluster: Cluster, tmp_path: Path) -> None:
    configs = [{"x": x, "seconds": 1.0} for x in range(40)]
    rng, last = random.Random(0), 1
    for number in range(10):
        running = drive(cluster, tmp_path / "ray", configs)
        wait_for(tmp_path / "ray", configs, 2 + 3 * number, running)
        time.sleep(rng.uniform(0, 2))
        if number % 2:
            running.kill()
            running.communicate(timeout=60)
        else:
            cluster.kill(last)
            time.sleep(1)
            cluster.add(cluster.address)
            last += 1
            if number < 9:
                running.kill()
                running.communicate(timeout=60)
    finish(drive(cluster, tmp_path / "ray", configs))
    results = [store(tmp_path / "ray").read(config) for config in configs]
    assert results == [{"square": x * x} for x in range(40)]


def test_no_cluster_at_the_address(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom geoattn.runs.cluster import cluster\nfrom geoattn._core.errors import GeoattnError\n"
        "try:\n    with cluster('auto'):\n        pass\n"
        "except GeoattnError as error:\n    sys.stdout.write(str(error))\n"
    )
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "cannot connect to a Ray cluster at auto" in done.stdout, done.stderr
    assert "ray start --head" in done.stdout


def test_ray_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GeoattnError, match=r"pip install 'geoattn\[ray\]'"):
        run_trials(store(tmp_path), "small", [{"x": 1}], SQUARE, backend="ray")


def test_a_node_with_other_versions_is_refused() -> None:
    check_versions(versions() | {"platform": "another"})
    with pytest.raises(GeoattnError, match=r"a node of the cluster has torch 1\.0, this machine"):
        check_versions(versions() | {"torch": "1.0"})
