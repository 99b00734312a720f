"""The same bits from one, two and four threads, from here and from Ray, and from two instruction sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.assurance.determinism import curvature, profile, study

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")


def test_threads_do_not_matter() -> None:
    assert len({curvature(threads) for threads in (1, 2, 4)}) == 1
    assert len({profile(threads) for threads in (1, 2, 4)}) == 1


def test_the_number_of_workers_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert len({study(tmp_path / str(workers), workers=workers) for workers in (1, 2, 4)}) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray_does_not_matter(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    script = (
        "import sys; from pathlib import Path; from tests.assurance.determinism import profile, study;"
        "here, there = (study(Path(sys.argv[1], name), **options)"
        " for name, options in (('here', {}), ('ray', dict(backend='ray', workers=2))));"
        "assert here == there; assert profile(1) == profile(1, backend='ray', workers=2); print('same')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert "same" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_builds_give_the_same_bits(tmp_path: Path) -> None:
    """The kernel for any x86-64 beside the one that chooses AVX2."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("no cmake")
    plain = tmp_path / "plain"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    configure = [cmake, "-S", str(ROOT), "-B", str(plain), "-G", "Ninja", "-DGEOATTN_V3=OFF"]
    subprocess.run(
        [*configure, f"-DPython_EXECUTABLE={sys.executable}"], check=True, capture_output=True, env=environment
    )
    subprocess.run([cmake, "--build", str(plain), "-j", "2"], check=True, capture_output=True, env=environment)
    found = []
    for kernel in ([], [str(plain)]):
        command = [sys.executable, "-m", "tests.assurance.determinism", *kernel]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads(done.stdout))
    native, other = found
    if native["instruction_set"] == other["instruction_set"]:
        pytest.skip("this machine has no other instruction set")
    assert {**native, "instruction_set": ""} == {**other, "instruction_set": ""}
