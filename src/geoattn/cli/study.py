"""``geoattn study``: a table or figure of the papers, done again."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.errors import GeoattnError, GeoattnWarning
from geoattn._core.files import write_atomically
from geoattn._core.text_files import read_json
from geoattn.cli.printable import printable
from geoattn.cli.progress import LateProgress

__all__ = ["study"]

_ACTIONS = ("run", "status", "verify", "pack", "take")
_DAY = 86400.0


def study(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A study: table1, fig4, ...; see --list. Or, over all that --results holds: status, verify, or ledger,"
            " the page of all claims and what came out.",
            show_default=False,
        ),
    ] = None,
    action: Annotated[
        str,
        typer.Argument(
            help="run; status; verify: derive the table from the stored trials and compare; pack: fold the files of the"
            " trials into one; take: copy what the store given by --reuse has finished so far."
        ),
    ] = "run",
    size: Annotated[
        str | None,
        typer.Option(
            help="smoke (seconds), small (hours) or paper (the paper's own). Default: that of the folder, else smoke.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the trials; run it again to go on.", show_default=False)
    ] = None,
    backend: Annotated[str, typer.Option(help="local (processes of this machine) or ray (a cluster).")] = "local",
    workers: Annotated[
        int | None,
        typer.Option(help="Trials at a time. Default: 1; with ray all processors of the cluster.", show_default=False),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of a running Ray cluster, as host:port or auto. Default: one of its own.", show_default=False
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try the failed trials again.")] = False,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of another study with the same trials (table1 for fig4), to take results from; may be given"
            " several times."
        ),
    ] = None,
    redo: Annotated[int, typer.Option(help="verify: do so many trials once more and compare the results.")] = 0,
    results: Annotated[
        Path, typer.Option(help="The folder of all results, for status, verify and ledger without a study.")
    ] = Path("results"),
    show: Annotated[bool, typer.Option("--list", help="Print the studies and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Do the trials of a study and write its table, its figure and a verdict on each claim.

    Killed? The same command goes on where it was. `ledger --out docs/claims.md` writes the claims ledger.
    """
    if show:
        _list(as_json)
        return
    if name is None:
        raise GeoattnError("a study is needed; geoattn study --list names them.")
    if name == "ledger":
        _ledger(results, out)
        return
    if name in ("status", "verify"):
        _all(results, name, as_json)
        return
    if out is None:
        raise GeoattnError("--out is needed: the folder of the trials.")
    if action not in _ACTIONS:
        raise GeoattnError(f"expected one of {', '.join(_ACTIONS)}; got {action!r}.")
    if redo < 0:
        raise GeoattnError(f"--redo must not be negative; got {redo}.")
    from geoattn.runs.store import Store
    from geoattn.studies.catalogue import find_study
    from geoattn.studies.run import run_study, take_results

    chosen = find_study(name)
    size = size or ("paper" if action == "take" else _size_of(out))
    configs, store = chosen.configs(size), Store(out, chosen.name, chosen.version)
    if action == "status":
        _status(store, configs, as_json)
    elif action == "verify":
        _verify(chosen, size, store, redo, as_json)
    elif action == "pack":
        _say(
            {"packed": (count := store.pack())},
            [f"{count} trials folded into {store.folder / 'trials.jsonl'}"],
            as_json,
        )
    elif action == "take":
        if not reuse:
            raise GeoattnError("take needs --reuse: the folder of the store to take finished trials from.")
        findings = take_results(chosen, "paper", out, reuse[0])
        s = store.status(configs)
        _say({"done": s.done, "total": s.total}, [f"{s.done} of {s.total} trials, {len(findings)} findings"], as_json)
    else:
        bar = LateProgress(len(configs), printable(name), unit="trials", period=_DAY)
        with _notes(), bar:
            findings = run_study(
                chosen, size, out, backend=backend, workers=workers, address=address, retry=retry, reuse=reuse or (),
                progress=lambda s: bar.update(s.finished),
            )  # fmt: skip
        from geoattn.studies.engine.output import as_plain

        lines = [f"{f.data}: {f.claim}: {f.verdict} ({f.difference:+.4f}, {f.trials} pairs)" for f in findings]
        lines.append(f"written to {out}: {name}.csv, {name}.png, {name}.json")
        _say([as_plain(f) for f in findings], lines, as_json)


def _list(as_json: bool) -> None:
    from geoattn.studies.catalogue import STUDIES, find_study

    studies = {name: find_study(name) for name in STUDIES}
    content = {name: {"paper": one.paper, "place": one.place, "how": one.how} for name, one in studies.items()}
    width = max(map(len, studies))
    _say(content, [f"{name:{width}}  {one.place}: {one.how}" for name, one in studies.items()], as_json)


def _size_of(out: Path) -> str:
    try:
        return str(read_json(out / "trials.json")["size"])
    except (OSError, ValueError, KeyError, TypeError):
        return "smoke"


def _status(store: Any, configs: list[dict[str, Any]], as_json: bool) -> None:
    s = store.status(configs)
    counts: dict[str, Any] = {"total": s.total, "done": s.done, "running": s.running, "failed": s.failed,
                              "damaged": s.damaged, "waiting": s.waiting}  # fmt: skip
    failed = [{"config": config, "error": why} for config, why in store.failures(configs)]
    lines = [", ".join(f"{v} {k}" for k, v in counts.items())]
    lines += [f"failed: {json.dumps(one['config'])}: {one['error']}" for one in failed]
    lines += [f"damaged: {store.key(config)}" for config in configs if store.is_damaged(config)]
    _say({**counts, "failures": failed}, lines, as_json)


def _verify(chosen: Any, size: str, store: Any, redo: int, as_json: bool) -> None:
    from geoattn.runs.drive import compare_again
    from geoattn.studies.engine.output import check_output

    found = check_output(chosen, size, store)
    configs = chosen.configs(size)
    done = store.status(configs).done
    redo = min(redo, done)
    found += compare_again(store, configs, chosen.trial, limit=redo) if redo else []
    part = "" if done == len(configs) else f" of {len(configs)}"
    good = f"{done}{part} trials give {chosen.name}.csv and {chosen.name}.json"
    lines = found or [good + (f"; {redo} trials done again: all equal" if redo else "")]
    _say({"trials": len(configs), "done_again": redo, "different": found}, lines, as_json)
    if found:
        raise typer.Exit(1)


def _all(results: Path, action: str, as_json: bool) -> None:
    """Status or verification of every study below the folder of results."""
    from geoattn.runs.store import Store
    from geoattn.studies.catalogue import STUDIES, find_study
    from geoattn.studies.engine.output import check_output

    if not results.is_dir():
        raise GeoattnError(f"no results in {results}: it must be the folder that holds NAME/SIZE.")
    content: dict[str, Any] = {}
    wrong = False
    for plan in sorted(results.glob("*/*/trials.json")):
        folder, name = plan.parent, plan.parent.parent.name
        if name not in STUDIES:
            content[f"{name} {folder.name}"] = f"there is no study {name}"
            wrong = True
            continue
        chosen, size = find_study(name), _size_of(folder)
        store = Store(folder, name, chosen.version)
        if action == "status":
            s = store.status(chosen.configs(size))
            content[f"{name} {size}"] = f"{s.done} of {s.total} done, {s.running} running, {s.failed} failed"
        else:
            found = check_output(chosen, size, store)
            content[f"{name} {size}"] = "; ".join(found) or "the trials give the table"
            wrong |= bool(found)
    _say(content, [f"{key}: {value}" for key, value in content.items()], as_json)
    if wrong:
        raise typer.Exit(1)


def _ledger(results: Path, out: Path | None) -> None:
    """The ledger; with ``out`` a page per claim and figures of studies in the folder beside it, the plot in images/."""
    from geoattn.studies.ledger import claims_figures, claims_page, claims_pages, forest_plot

    page = claims_page(results)
    if out is None:
        print(page, end="")
        return
    write_atomically(out, lambda file: file.write(page.encode()))
    pages = claims_pages(results)
    for name, text in pages.items():
        write_atomically(out.with_suffix("") / f"{name}.md", lambda file, text=text: file.write(text.encode()))
    for name, path in claims_figures(results).items():
        content = path.read_bytes()
        to = out.with_suffix("") / "figures" / f"{name}.png"
        write_atomically(to, lambda file, content=content: file.write(content))
    picture = out.parent / "images" / f"{out.stem}.png"
    figure = forest_plot(results)
    write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=120, metadata={"Software": None}))
    print(printable(f"written to {out}, {len(pages)} pages in {out.with_suffix('')}, plot in {picture}"))


@contextmanager
def _notes() -> Iterator[None]:
    """Our warnings as one line each, when they come."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Any, category: Any, *place: Any, **more: Any) -> None:
            if issubclass(category, GeoattnWarning):
                print(f"geoattn: note: {printable(str(message))}", file=sys.stderr)
            else:
                before(message, category, *place, **more)

        warnings.simplefilter("always", GeoattnWarning)
        warnings.showwarning = show
        yield


def _say(content: Any, lines: list[str], as_json: bool) -> None:
    print(json.dumps(content, indent=2) if as_json else "\n".join(printable(line, keep_blanks=True) for line in lines))
