"""`make fuzz`: maps, files and arguments by seed for some minutes, from where the last call stopped.

    python -m tests.assurance.fuzz [--minutes 5] [--only maps|files|arguments] [--state build/fuzz.json]

What is wrong is written to build/fuzz-defects and ends the call with exit code 1. A file that shows a defect goes to
tests/assurance/fuzz/corpus/TARGET/ when the defect is mended: from then on it is tried first, and mutated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEFECTS = Path("build/fuzz-defects")
_PIECE = {"maps": 200, "files": 2000, "arguments": 60}  # of one turn


def _maps(first: int, count: int, _: int) -> list[str]:
    from tests.assurance.fuzz.maps import fuzz

    return [f"map {number}: {said}" for number, said in fuzz(range(first, first + count))[1]]


def _files(first: int, count: int, turn: int) -> list[str]:
    from tests.assurance.fuzz.files import fuzz
    from tests.assurance.fuzz.targets import TARGETS

    name = list(TARGETS)[turn % len(TARGETS)]
    return [f"{name} {number}: {said}" for number, said in fuzz(name, range(first, first + count), DEFECTS)]


def _arguments(first: int, count: int, _: int) -> list[str]:
    from tests.assurance.fuzz.arguments import fuzz

    return [f"arguments {number} {words}: {said}" for number, words, said in fuzz(range(first, first + count))]


PARTS: dict[str, Callable[[int, int, int], list[str]]] = {"maps": _maps, "files": _files, "arguments": _arguments}


def main() -> int:
    """Turn by turn, each part in a process of its own, so that a crash is a finding and not the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("--state", type=Path, default=Path("build/fuzz.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _work(given.worker, given.minutes, given.state)
    wrong = 0
    for name in [given.only] if given.only else PARTS:
        share = given.minutes if given.only else given.minutes / len(PARTS)
        command = [sys.executable, "-m", "tests.assurance.fuzz", "--worker", name, "--minutes", str(share)]
        code = subprocess.run([*command, "--state", str(given.state)]).returncode
        if code < 0:
            turn = _state(given.state).get(name, {}).get("turns", 0)
            sys.stdout.write(f"{name}: the process died of signal {-code} in turn {turn}\n")
        wrong |= code
    return int(bool(wrong))


def _work(name: str, minutes: float, path: Path) -> int:
    if name == "files":
        from tests.assurance.fuzz.files import limit_memory
        from tests.assurance.fuzz.seeds import seeds

        seeds()
        limit_memory()
    end, wrong = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        state = _state(path)
        part = state.setdefault(name, {"done": 0, "turns": 0, "wrong": 0})
        # A turn of files is one format; all formats get the same numbers.
        first = part["turns"] // _formats(name) * _PIECE[name]
        found = PARTS[name](first, _PIECE[name], part["turns"])
        part["done"] += _PIECE[name]
        part["turns"] += 1
        part["wrong"] += len(found)
        wrong += len(found)
        for said in found:
            sys.stdout.write(f"{said}\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**_state(path), name: part}, indent=1) + "\n")
    sys.stdout.write(f"{name}: {_state(path)[name]}\n")
    return int(wrong > 0)


def _formats(name: str) -> int:
    if name != "files":
        return 1
    from tests.assurance.fuzz.targets import TARGETS

    return len(TARGETS)


def _state(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
