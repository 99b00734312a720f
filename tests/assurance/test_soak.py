"""Mixed calls over a long time leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MINUTES = float(os.environ.get("GEOATTN_SOAK_MINUTES", "30"))


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_threads_and_files_stay_flat() -> None:
    """GEOATTN_SOAK_MINUTES sets how long; the default is half an hour."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.assurance.soak", str(MINUTES)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    start, end = found["start"], found["end"]
    assert end["files"] == start["files"]
    assert end["threads"] <= start["threads"]
    assert end["bytes"] - start["bytes"] < 50 * 2**20, found
