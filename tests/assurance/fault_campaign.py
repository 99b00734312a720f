"""Every fault at every change of every job, and what came of it.

    python -m tests.assurance.fault_campaign OUT.json [--every K] [job ...]

writes one row for each fault: the job, the kind, at which change, how the process ended, and what was wrong afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.assurance.fault_jobs import JOBS, Job, contents, halves
from tests.assurance.faults import CRASHED, DONE, INTERRUPTED, KINDS, REFUSED, run_child

#: How a process may end, by the kind of its fault. A fault that needs nothing of what it breaks is no fault.
ENDS = {
    "kill": (-9,), "power": (-9,), "interrupt": (INTERRUPTED,), "full": (REFUSED, DONE), "readonly": (REFUSED, DONE),
    "torn": (REFUSED, DONE),
}  # fmt: skip
WORDS = {-9: "killed", DONE: "done", REFUSED: "one line", INTERRUPTED: "interrupted", CRASHED: "crashed"}


def reference(job: Job, folder: Path) -> tuple[dict[str, Any], int]:
    """What an undisturbed run leaves, and how many changes it makes."""
    folder.mkdir()
    code, changes, said = run_child(job.run, folder, "none", 0)
    assert code == DONE, said
    return contents(folder, job.plain), changes


def fault(job: Job, folder: Path, kind: str, at: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """One fault and one run after it."""
    folder.mkdir()
    code, _, said = run_child(job.run, folder, kind, at, seed=at)
    wrong = []
    if code not in ENDS[kind]:
        wrong.append(f"ended with {code}")
    if kind in ("interrupt", "full", "torn") and halves(folder):
        wrong.append(f"left {halves(folder)}")
    if code == REFUSED and ("\n" in said.strip() or not said.strip()):
        wrong.append("no line that says why")
    code_after, _, said_after = run_child(job.run, folder, "none", 0)
    if code_after != DONE:
        wrong.append(f"the next run ended with {code_after}: {said_after[-300:]}")
    else:
        found = contents(folder, job.plain)
        wrong += [f"{name} differs" for name in sorted(found.keys() | wanted) if found.get(name) != wanted.get(name)]
        wrong += [f"left {halves(folder)}"] if halves(folder) else []
    shutil.rmtree(folder)
    row = {"job": job.name, "kind": kind, "change": at, "ended": WORDS.get(code, str(code)), "wrong": "; ".join(wrong)}
    return {**row, "said": said[-400:]} if wrong else row


def campaign(jobs: Iterable[str], every: int = 1, kinds: Iterable[str] = KINDS) -> Iterator[dict[str, Any]]:
    """Rows of all faults of some jobs, at every change or at some."""
    with tempfile.TemporaryDirectory() as base:
        for name in jobs:
            job = JOBS[name]
            wanted, changes = reference(job, Path(base, "reference"))
            shutil.rmtree(Path(base, "reference"))
            for k, kind in enumerate(kinds):
                for at in range(1 + k % every, changes + 1, every):
                    row = fault(job, Path(base, "run"), kind, at, wanted)
                    if row["wrong"] or row["ended"] != WORDS[DONE]:  # a change that the kind does not break is no fault
                        yield row


def side_by_side(job: Job, count: int, kind: str, at: int) -> dict[str, Any]:
    """Several processes on one folder, one of them on a faulty disk; the others come to their end."""
    with tempfile.TemporaryDirectory() as base:
        wanted, _ = reference(job, Path(base, "reference"))
        folder = Path(base, "run")
        folder.mkdir()
        children = []
        for k in range(count):
            child = os.fork()
            if not child:
                os._exit(1 + run_child(job.run, folder, kind if k == 0 else "none", at if k == 0 else 0)[0] % 200)
            children.append(child)
        codes = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) - 1 for child in children]
        wrong = [f"process {k} ended with {code}" for k, code in enumerate(codes) if k and code != DONE]
        run_child(job.run, folder, "none", 0)
        found = contents(folder, job.plain)
        wrong += [f"{name} differs" for name in sorted(found.keys() | wanted) if found.get(name) != wanted.get(name)]
    return {
        "job": f"{job.name}, {count} processes",
        "kind": kind,
        "change": at,
        "ended": "others done",
        "wrong": "; ".join(wrong),
    }


def main(out: Path, names: list[str], every: int = 1) -> int:
    rows: list[dict[str, Any]] = []
    local = [name for name in JOBS if name != "study on ray"]
    for row in campaign(names or local, every):
        rows.append(row)
        sys.stderr.write(f"{len(rows)} {row}\n" if row["wrong"] else "")
    if not names:
        for count in (2, 4):
            for name in ("profile", "curvature", "study"):
                for kind in ("kill", "power", "interrupt", "full"):
                    for at in (2, 3, 4):
                        rows.append(side_by_side(JOBS[name], count, kind, at))
    bad = [row for row in rows if row["wrong"]]
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        one = counts.setdefault(row["job"], {})
        one[row["kind"]] = one.get(row["kind"], 0) + 1
    about = {"command": "python -m tests.assurance.fault_campaign", "faults": len(rows), "wrong": len(bad)}
    lines = ",\n".join(json.dumps(row) for row in rows)
    out.write_text(f'{json.dumps(about)[:-1]}, "counts": {json.dumps(counts)}, "rows": [\n{lines}\n]}}\n')
    sys.stderr.write(f"{len(rows)} faults, {len(bad)} with something wrong\n")
    return int(bool(bad))


if __name__ == "__main__":
    from tests.assurance.fault_jobs import warm_up

    given = sys.argv[2:]
    if "study on ray" not in given:  # Ray wants a process that did little before
        warm_up()
    step = int(given[given.index("--every") + 1]) if "--every" in given else 1
    sys.exit(main(Path(sys.argv[1]), [name for name in given if name in JOBS], step))
