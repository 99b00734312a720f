"""Files of every format, changed at random, through their readers; seeded, so that every file can be made again."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.assurance.fuzz.mutator import mutate
from tests.assurance.fuzz.seeds import seeds
from tests.assurance.fuzz.targets import TARGETS, try_file

_SECONDS = 60  # for one file
_MOST = 3 * 10**9  # bytes that a process may grow by: the read limit and what the libraries take


def made(name: str, number: int) -> bytes:
    """The file of a number; the same one on every machine, for the same seeds."""
    random = Random(f"{name} {number}")
    starts = seeds()[name]
    others = [*starts, random.choice(random.choice(list(seeds().values())))]
    return mutate(random.choice(starts), others, random)


def limit_memory() -> None:
    """No file may need more: a MemoryError is a defect."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MOST, resource.RLIM_INFINITY))


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {_SECONDS} seconds")


def fuzz(name: str, numbers: Iterable[int], defects: Path | None = None) -> list[tuple[int, str]]:
    """(number, what is wrong) of the files that a reader does not answer well; they are kept in ``defects``."""
    wrong = []
    before = signal.signal(signal.SIGALRM, _late)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk would be the slowest part
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for number in numbers:
            content = made(name, number)
            signal.alarm(_SECONDS)
            said = try_file(name, content, Path(folder))
            signal.alarm(0)
            if said is not None:
                wrong.append((number, said))
                if defects is not None:
                    (defects / name).mkdir(parents=True, exist_ok=True)
                    (defects / name / str(number)).write_bytes(content)
                    (defects / name / f"{number}.txt").write_text(said)
    signal.signal(signal.SIGALRM, before)
    return wrong


if __name__ == "__main__":
    chosen, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    limit_memory()
    for one in [chosen] if chosen != "all" else TARGETS:
        for number, said in fuzz(one, range(first, first + count), Path("build/fuzz-defects")):
            sys.stdout.write(f"{one} {number}: {said.splitlines()[-1]}\n")
