"""What capture costs: the time of a training step of L-ViT, in one process and taking turns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("fused", "percent"), [(True, 5), pytest.param(False, 8, marks=pytest.mark.slow)])
def test_overhead_of_a_training_step(fused: bool, percent: float) -> None:
    """Below 5 % for L-ViT. As vit-pytorch writes it, with a softmax of its own, more functions are watched.

    In a process of its own: the checks of shapes that tests switch on would be measured too.
    """
    code = f"from benchmarks.capture import overhead; print(overhead({fused}, {percent}))"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    assert float(done.stdout) < percent
