"""The jobs whose writes fail, and what must be true of their folders afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Job:
    """``run`` writes into a folder; ``plain`` makes of a file what two runs must have in common."""

    name: str
    run: Callable[[Path], Any]
    plain: Callable[[Path], Any]


def contents(folder: Path, plain: Callable[[Path], Any]) -> dict[str, Any]:
    """What is in a folder by name; locks and what is hidden and half-written are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.endswith((".lock", ".part")) and "/.geoattn-" not in f"/{name}":
            found[name] = plain(path)
    return found


def halves(folder: Path) -> list[str]:
    """What a write left behind."""
    return [str(p) for p in folder.rglob("*") if p.name.endswith(".part") or p.name.startswith(".geoattn-")]


def read_bytes(path: Path) -> Any:
    return path.read_bytes()


def without_times(path: Path) -> Any:
    """Seconds and dates differ from run to run; everything else does not."""
    if path.suffix not in (".json", ".jsonl", ".parquet"):
        return path.read_bytes()
    if path.suffix == ".parquet":
        import pandas as pd

        return pd.read_parquet(path).to_csv()
    rows = [
        json.loads(text) for text in (path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()])
    ]
    return [_stripped(row) for row in rows]


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stripped(v) for k, v in value.items() if k not in ("made_with", "provenance", "seconds")}
    return [_stripped(v) for v in value] if isinstance(value, list) else value


def command(*arguments: Any) -> int:
    """A verb of the command line, in this process."""
    from geoattn.cli.app import app

    code = app([str(a) for a in arguments], prog_name="geoattn", standalone_mode=False)
    return code if isinstance(code, int) else 0


@cache
def small_profile() -> Any:
    import geoattn as ga

    model, data = ga.load_model("lvit-digits"), ga.load_data("digits", split="test", limit=2)
    return ga.profile(model, data, edges=4, resamplings=20, examples=1, name="small")


def save_profile(folder: Path) -> None:
    small_profile().save(folder / "profile.npz")


def report(folder: Path) -> None:
    """The profile is kept beside the report, as the command line does it."""
    from geoattn.cli.profile_cache import cached_profile
    from geoattn.datasets.loader import load_data

    data = load_data("digits", split="test", limit=2)
    out = folder / "report.html"
    made, _ = cached_profile(out, "model", data, {"edges": 4}, fresh=False, make=small_profile)
    made.report(out, command="geoattn report")


def curvature(folder: Path) -> int:
    attention = np.random.default_rng(0).dirichlet(np.ones(6), (2, 1, 1, 6))
    source = folder.parent / f"attention-{os.getpid()}.npz"
    np.savez(source, a=attention[0], b=attention[1])
    try:
        return command("curvature", source, "--out", folder / "out")
    finally:
        source.unlink()


CONFIGS = [{"x": x} for x in range(3)]


def study(folder: Path, **options: Any) -> None:
    """Trials, the packed file, table, findings and figure."""
    from geoattn.runs.drive import run_trials
    from geoattn.runs.store import Store
    from geoattn.studies.engine.output import write_output
    from tests.studies.squares import STUDY

    store = Store(folder, "squares", 1)
    run_trials(store, "small", CONFIGS, "tests.runs.trials:square", **options)
    store.pack()
    write_output(STUDY, "small", store, [(config, store.read(config)) for config in CONFIGS])


def study_on_ray(folder: Path) -> None:
    study(folder, backend="ray", workers=2, address=os.environ["GEOATTN_TEST_RAY"])


def train(folder: Path) -> None:
    from geoattn.training.loop import train as run
    from geoattn.training.recipe import Recipe

    recipe = Recipe("digits", epochs=2, limit=24, test_limit=8, batch=8, changes={"depth": 1, "dim": 16, "mlp_dim": 16})
    run(recipe, folder, checkpoint_every=1)


def warm_up() -> None:
    """Import and measure once, so that forks need not."""
    import tempfile

    small_profile()
    for job in (curvature, study, train):
        with tempfile.TemporaryDirectory() as folder:
            job(Path(folder, "run"))


JOBS = {
    job.name: job
    for job in (
        Job("profile", save_profile, read_bytes),
        Job("report", report, read_bytes),
        Job("curvature", curvature, without_times),
        Job("study", study, without_times),
        Job("train", train, read_bytes),
        Job("study on ray", study_on_ray, without_times),
    )
}
