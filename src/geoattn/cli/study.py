"""``geoattn study``: a table or figure of the papers, done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn.errors import GeoattnError

__all__ = ["study"]


def study(
    name: Annotated[str, typer.Argument(help="table1.")],
    action: Annotated[str, typer.Argument(help="run, status, or verify (do finished trials once more).")] = "run",
    size: Annotated[str, typer.Option(help="smoke (seconds), small (an hour) or paper (the paper's own).")] = "smoke",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the trials; run it again to go on.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    limit: Annotated[int | None, typer.Option(help="verify: at most so many trials.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Do the trials of a study and write its table, its figure and a verdict on each claim."""
    if out is None:
        raise GeoattnError("--out is needed: the folder of the trials.")
    if action not in ("run", "status", "verify"):
        raise GeoattnError(f"expected run, status or verify; got {action!r}.")
    from geoattn.runs.local import verify
    from geoattn.runs.store import Store
    from geoattn.studies.study import as_plain, find_study, run_study

    chosen = find_study(name)
    configs, store = chosen.configs(size), Store(out, chosen.name, chosen.version)
    if action == "run":
        findings = run_study(chosen, size, out, workers=workers)
        lines = [f"{f.data}: {f.claim}: {f.verdict} ({f.difference:+.4f}, {f.trials} pairs)" for f in findings]
        _say(
            [as_plain(f) for f in findings], [*lines, f"written to {out}: {name}.csv, {name}.png, {name}.json"], as_json
        )
    elif action == "status":
        s = store.status(configs)
        counts = {"total": s.total, "done": s.done, "running": s.running, "failed": s.failed, "waiting": s.waiting}
        _say(counts, [", ".join(f"{v} {k}" for k, v in counts.items())], as_json)
    else:
        findings = verify(store, configs, chosen.trial, limit=limit)
        done = min(store.status(configs).done, limit or len(configs))
        _say({"compared": done, "different": findings}, findings or [f"{done} trials done again: all equal"], as_json)
        if findings:
            raise typer.Exit(1)


def _say(content: Any, lines: list[str], as_json: bool) -> None:
    print(json.dumps(content, indent=2) if as_json else "\n".join(lines))
