"""Trials for tests: they must be importable by workers."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def square(config: dict[str, Any]) -> Any:
    """The square, after a while; notes begin and end in a file, if there is one to note it in."""
    _note(f"begin {config['x']}")
    time.sleep(config.get("seconds", 0.0))
    if config.get("bad"):
        raise ValueError("no square")
    if config.get("leave"):
        raise SystemExit(3)
    if config.get("crash"):
        os.kill(os.getpid(), signal.SIGKILL)
    if config.get("nothing"):
        return None
    _note(f"node {os.getppid()}")
    _note(f"end {config['x']}")
    return {"square": config["x"] ** 2}


def mended(config: dict[str, Any]) -> dict[str, Any]:
    """Fails until a file exists."""
    if config.get("bad") and not os.path.exists(os.environ["GEOATTN_TEST_CURE"]):
        raise ValueError("not yet")
    return {"square": config["x"] ** 2}


def dot(config: dict[str, Any]) -> dict[str, Any]:
    """A sum whose last bits depend on how many threads share it."""
    import torch

    torch.manual_seed(config["x"])
    return {"sum": float(torch.randn(3_000_000).sum()), "threads": torch.get_num_threads()}


def _note(line: str) -> None:
    path = os.environ.get("GEOATTN_TEST_LOG")
    if path:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, f"{line}\n".encode())
        os.close(handle)
