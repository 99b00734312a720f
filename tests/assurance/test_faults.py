"""Kills, losses of power, Ctrl-C, full and read-only disks at every write: nothing lost, nothing half-written."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from tests.assurance.fault_campaign import campaign, side_by_side
from tests.assurance.fault_jobs import JOBS, small_profile
from tests.assurance.faults import KINDS

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc"),
    pytest.mark.filterwarnings("ignore"),  # of forks beside threads: a child runs one job and ends
]
RECORD = Path(__file__).parent / "results" / "faults.json"


@pytest.fixture(autouse=True, scope="module")
def _measured_once() -> None:
    """Forks share one profile; a second one would hold other seconds."""
    small_profile()


@pytest.mark.parametrize(("job", "every"), [("profile", 2), ("train", 11), ("study", 17)])
def test_some_faults_of_each_kind(job: str, every: int) -> None:
    rows = list(campaign([job], every))
    assert {row["kind"] for row in rows} >= set(KINDS) - {"torn"}  # which needs a sync
    assert [row for row in rows if row["wrong"]] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", ["profile", "report", "curvature", "study", "train"])
def test_every_fault(job: str) -> None:
    assert [row for row in campaign([job]) if row["wrong"]] == []


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("job", ["profile", "study"])
def test_several_processes_on_one_folder(job: str, count: int) -> None:
    for kind, at in (("kill", 3), ("full", 2)):
        assert side_by_side(JOBS[job], count, kind, at)["wrong"] == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_faults_of_a_driver_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from tests.runs.test_cluster import Cluster

    with tempfile.TemporaryDirectory() as folder:  # short: a socket of Ray has its name from it
        cluster = Cluster(Path(folder))
        try:
            cluster.environment["GEOATTN_TEST_RAY"] = cluster.address
            command = (
                "-m",
                "tests.assurance.fault_campaign",
                str(tmp_path / "ray.json"),
                "--every",
                "9",
                "study on ray",
            )
            _, said = cluster.run(*command).communicate()
        finally:
            cluster.close()
    found = json.loads((tmp_path / "ray.json").read_text())
    assert found["faults"] > 20, said[-2000:]
    assert [row for row in found["rows"] if row["wrong"]] == []


def test_the_record_has_no_loss() -> None:
    """The committed record: at least 500 faults, none with something wrong."""
    found = json.loads(RECORD.read_text())
    assert found["faults"] == len(found["rows"]) >= 500
    assert [row for row in found["rows"] if row["wrong"]] == []
