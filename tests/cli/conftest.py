from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a verb inside this process."""
    from geoattn.cli.app import app

    return lambda *args: CliRunner().invoke(app, [str(a) for a in args], prog_name="geoattn")


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a verb as a user does, in a process of its own."""

    def start(*args: Any, **extra: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "geoattn", *map(str, args)]
        return subprocess.run(command, text=True, timeout=120, **{"capture_output": "stdout" not in extra, **extra})

    return start


@pytest.fixture
def attention() -> Callable[..., np.ndarray]:
    """Softmax of random logits, of a given shape."""

    def make(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
        logits = 2.0 * np.random.default_rng(seed).standard_normal(shape)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype)

    return make
