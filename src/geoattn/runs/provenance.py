"""Where and how a trial was done: processor, threads, seconds and the commit of the code."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["made_here"]


def made_here(seconds: float | None) -> dict[str, Any]:
    """What is stored with a trial that this process has done. ``seconds``: of processor time.

    Trials run with one thread (see `geoattn.runs.trial.one_thread`). ``commit`` is None where the package is installed
    and not run from its repository; it ends with ``+`` where files differ from the commit.

    >>> sorted(made_here(1.5))
    ['commit', 'cpu', 'seconds', 'threads']
    """
    return {"seconds": seconds, "cpu": _cpu(), "threads": 1, "commit": _commit()}


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


@cache
def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        tracked = _git(here, "ls-files", "--error-unmatch", Path(__file__).name)
        if not tracked:
            return None
        return _git(here, "rev-parse", "HEAD")[:12] + ("+" if _git(here, "status", "--porcelain", "-uno", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
