"""What ``geoattn simulate`` says: tables for people, dictionaries for machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geoattn._version import __version__
from geoattn.cli.printable import printable
from geoattn.dynamics.clusters import cluster_count

if TYPE_CHECKING:
    from geoattn.dynamics.experiments import Check, Experiment
    from geoattn.dynamics.trajectory import Trajectory

__all__ = ["experiment_json", "print_experiment", "print_run", "run_json"]

_ROWS = 9  # times of a run in the table
_MOST_TOKENS = 20_000  # above, clusters are not counted


def experiment_json(done: Experiment, size: str, out: Path | None) -> dict[str, Any]:
    """Everything but the tokens."""
    checks = [
        {"what": c.what, "found": _plain(c.found), "lowest": _plain(c.lowest), "highest": _plain(c.highest),
         "passed": c.passed}
        for c in done.checks
    ]  # fmt: skip
    return {
        "geoattn": __version__, "experiment": done.name, "title": done.title, "size": size, "passed": done.passed,
        "parameters": done.parameters, "checks": checks, "notes": list(done.notes),
        "table": {name: [_plain(v) for v in np.asarray(values).tolist()] for name, values in done.table.items()},
        "out": None if out is None else str(out),
    }  # fmt: skip


def print_experiment(done: Experiment, size: str, out: Path | None) -> None:
    """What was expected and what came."""
    console, table = _console(), _table("what", "found", "expected", "")
    for check in done.checks:
        mark = "[green]holds[/green]" if check.passed else "[bold red]does not hold[/bold red]"
        table.add_row(check.what, f"{check.found:.7g}", _expected(check), mark)
    console.print(f"[bold]{done.name}[/bold] ({size}): {done.title}", soft_wrap=True)
    console.print(", ".join(f"{k} {v}" for k, v in done.parameters.items()), markup=False, soft_wrap=True)
    console.print(table)
    for note in done.notes:
        console.print(note, markup=False, soft_wrap=True)
    held = sum(check.passed for check in done.checks)
    console.print(f"{held} of {len(done.checks)} hold")
    if out is not None:
        console.print(printable(f"written: {out}"), markup=False, soft_wrap=True)


def _expected(check: Check) -> str:
    if math.isinf(check.highest):
        return f"at least {check.lowest:.6g}"
    middle, half = (check.lowest + check.highest) / 2, (check.highest - check.lowest) / 2
    if check.lowest == check.highest:
        return f"{check.lowest:.7g}"
    if half < 1e-2 * abs(middle) or abs(middle) < 1e-12 * half:
        return f"{middle:.7g} +- {half:.1e}"
    return f"{check.lowest:.6g} to {check.highest:.6g}"


def run_json(run: Trajectory, files: Sequence[Path]) -> dict[str, Any]:
    """Settings, numbers over time, how it ended; the tokens are in the file."""
    final = cluster_count(run.final).tolist() if run.final.shape[-2] <= _MOST_TOKENS else None
    over_time = {"log_energy": run.log_energy, "speed": run.speed, **run.observables}
    return {
        "geoattn": __version__, "settings": run.settings, "status": run.status, "steps": run.steps,
        "rejected": run.rejected, "t": run.t.tolist(),
        **{name: _plain(values.tolist()) for name, values in over_time.items()},
        "clusters": final, "balance": _plain(float(run.balance.max())), "files": [str(path) for path in files],
    }  # fmt: skip


def print_run(run: Trajectory, files: Sequence[Path]) -> None:
    """Some times of the run; means over runs side by side."""
    console, s = _console(), run.settings
    counted = run.final.shape[-2] <= _MOST_TOKENS
    columns = ["t", "energy", "polarisation", "nematic", *(["clusters"] if counted else []), "speed"]
    table = _table(*columns)
    kept = np.unique(np.linspace(0, len(run.t) - 1, min(_ROWS, len(run.t))).round().astype(int))
    for k in kept.tolist():
        log = float(run.log_energy[k].mean())
        cells = [f"{float(run.t[k]):.4g}", f"{math.exp(log):.6g}" if abs(log) < 300 else f"exp({log:.6g})"]
        cells += [f"{float(run.observables[name][k].mean()):.4f}" for name in ("polarisation", "nematic")]
        if counted:
            cells.append(f"{float(cluster_count(run.at(k)).double().mean()):.4g}")
        table.add_row(*cells, f"{float(run.speed[k].max()):.1e}")
    batch = tuple(run.log_energy.shape[1:])
    title = f"{s['flow']}, n = {s['n']}, d = {s['d']}, method {s['method']}"
    title += f", means over {math.prod(batch)} runs" if batch else ""
    console.print(f"[bold]{title}[/bold]")
    console.print(table)
    console.print(f"{run.steps:,} steps; ended: {run.status}.")
    balance = float(run.balance.max())
    if math.isfinite(balance):
        console.print(f"The energy follows the dissipation identity to {balance:.1e} of its largest value.")
    for path in files:
        console.print(printable(f"written: {path}"), markup=False, soft_wrap=True)


def _plain(value: Any) -> Any:
    """None for what JSON has no word for."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 110)
    return console


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(columns):
        table.add_column(name, justify="left" if k == 0 and name == "what" else "right")
    return table
