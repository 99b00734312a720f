"""Trials for tests: they must be importable by workers."""

from __future__ import annotations

import time
from typing import Any


def square(config: dict[str, Any]) -> dict[str, Any]:
    time.sleep(config.get("seconds", 0.0))
    if config.get("bad"):
        raise ValueError("no square")
    return {"square": config["x"] ** 2}
