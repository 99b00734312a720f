"""``geoattn report``: measure one model or two, and write the report."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn.cli.conventions import read_conventions
from geoattn.cli.interrupt import prompt_interrupt
from geoattn.cli.printable import printable
from geoattn.cli.progress import LateProgress

__all__ = ["report"]

_CONVENTIONS = "markov,hop,grc-0.6,grc-0.5"
_EXAMPLES = 4
_SMOOTHNESS = 16  # samples of an L-ViT: some seconds
_MOST_THREADS = 1024


def report(
    model: Annotated[
        str,
        typer.Argument(
            help="A name (lvit-digits, bert-tiny, vit-b16, ...), a folder with config.json and model.safetensors,"
            " owner/name of the hub, or module:function that returns a model or (model, tokenizer).",
        ),
    ] = "lvit-digits",
    other: Annotated[
        str | None,
        typer.Argument(help="A second model, to put beside the first.", metavar="[MODEL2]", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="digits, mnist, fashion-mnist, cifar10, sst2, imdb, headlines; or your own: a .txt file with one text"
            " per line, a .csv, .jsonl or .parquet file, a folder of images. Default: what the embedded model was"
            " trained for.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Which column of a .csv, .jsonl or .parquet file holds the texts.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="test or train.")] = "test",
    samples: Annotated[
        int | None,
        typer.Option(
            help="How many rows, drawn by --seed; of your own data the first ones. Default: 200, all of digits and of"
            " your own texts.",
            show_default=False,
        ),
    ] = None,
    conventions: Annotated[
        str,
        typer.Option(
            "--convention", "--conventions", help="One or several, with commas; the first is that of the summary."
        ),
    ] = _CONVENTIONS,
    tokens: Annotated[str, typer.Option(help="all, or content: without CLS, SEP and the like.")] = "all",
    precision: Annotated[
        float,
        typer.Option(
            help="Half-width of the interval of each head's distance to one: edges of maps of more than 65 tokens are"
            " drawn until it is reached."
        ),
    ] = 0.05,
    minutes: Annotated[
        float | None,
        typer.Option(help="Draw no more edges after so many minutes, whatever was reached.", show_default=False),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            help="Instead of a precision: auto (all of up to 65 tokens, else 512), all, or a number per map.",
            metavar="auto|all|N",
            show_default=False,
        ),
    ] = None,
    smoothness: Annotated[
        int | None,
        typer.Option(
            help="Local Lipschitz constants of so many samples, the first ones; 0: none. Default: 16 for L-ViT, else 0:"
            " they take minutes for long texts.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a training run (geoattn train --out) to show; may come several times."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    seed: Annotated[int, typer.Option(help="Of the draws of samples and edges and of the bootstrap.")] = 0,
    threads: Annotated[
        int | None, typer.Option(help="Default: all that the process may use.", show_default=False)
    ] = None,
    backend: Annotated[
        str, typer.Option(help="local, or ray: batches as tasks of a cluster, with the same numbers.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(help="ray: batches at a time. Default: one per processor.", show_default=False)
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="ray: of a running cluster, as host:port or auto. Default: one of its own.", show_default=False
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, even if a profile is kept.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """One HTML file on the curvature of a model's attention: how curved, where, how sure, under which convention.

    Without MODEL: the embedded L-ViT on digits. Profiles are kept in .geoattn beside the report and used again.
    """
    started = time.perf_counter()
    names = read_conventions(conventions)
    wanted = {"precision": precision, "minutes": minutes} if edges is None else {"edges": _read_edges(edges)}
    if precision <= 0 or (minutes is not None and minutes <= 0):
        raise GeoattnError(f"--precision and --minutes must be above 0; got {precision} and {minutes}.")
    _check_numbers(samples, seed, threads)
    if smoothness is None:
        smoothness = _SMOOTHNESS if model.startswith("lvit-") and (other or model).startswith("lvit-") else 0
    if smoothness < 0:
        raise GeoattnError(f"--smoothness must not be negative; got {smoothness}.")
    for option, value, choices in (("--tokens", tokens, ("all", "content")), ("--split", split, ("test", "train"))):
        if value not in choices:
            raise GeoattnError(f"{option} must be {' or '.join(choices)}; got {value!r}.")
    if backend not in ("local", "ray"):
        raise GeoattnError(f"--backend must be local or ray; got {backend!r}.")
    if backend == "local" and (workers is not None or address is not None):
        raise GeoattnError("--workers and --address are for --backend ray; --threads is for this machine.")
    if workers is not None and workers < 1:
        raise GeoattnError(f"--workers must be at least 1; got {workers}.")
    _check_file(out)

    # Heavy imports wait until the options are known to be good, and --help never pays for them.
    from geoattn.cli.profile_cache import cached_profile
    from geoattn.cli.sources import Source, fit_data, read_data, read_model
    from geoattn.profiles.model_flows import model_flow
    from geoattn.profiles.profiling import profile
    from geoattn.report.page import write_report
    from geoattn.training.run_folder import read_run

    runs = [read_run(folder) for folder in run or []]
    given = read_data(data, model, split, samples, seed, column)
    settings: dict[str, Any] = {
        "tokens": tokens,
        **wanted,
        "seed": seed,
        "convention": names,
        "examples": _EXAMPLES,
    }
    if smoothness:
        settings |= {"lenses": ["weights", "sink_mass", "spectrum", "smoothness"], "smoothness_samples": smoothness}
    profiles, reused, flows = [], [], []

    def measure(source: Source, rows: Any) -> Any:
        bar = LateProgress(len(rows), printable(source.name)[:40], unit="samples")
        with prompt_interrupt(), bar, warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # the report says it, in words
            return profile(
                source.model, rows, tokenizer=source.tokenizer, name=source.name, threads=threads,
                progress=bar.update, backend=backend, workers=workers, address=address,
                **settings,
            )  # fmt: skip

    for name in [model] if other is None else [model, other]:
        source = read_model(name, text=given.texts is not None)
        try:
            rows = fit_data(given, source)
            made, kept = cached_profile(
                out, source.checksum, rows, {**settings, "name": source.name}, fresh=fresh,
                make=lambda source=source, rows=rows: measure(source, rows),
            )  # fmt: skip
        except GeoattnError as error:
            raise GeoattnError(f"{name}: {error}") from None
        profiles.append(made)
        reused.append(kept)
        try:
            with prompt_interrupt():
                flows.append(model_flow(source.model, rows, tokenizer=source.tokenizer, convention=names))
        except GeoattnError:
            flows.append(None)  # windows, other numbers of tokens from layer to layer: nothing to show
    second = profiles[1] if len(profiles) > 1 else None
    write_report(out, profiles[0], second, command=_command(), runs=runs, flows=flows)
    seconds = time.perf_counter() - started
    if as_json:
        print(json.dumps(_as_json(out, profiles, reused, seconds), indent=2, allow_nan=False))
        return
    _print(out, profiles, reused, names[0], seconds)


def _read_edges(text: str) -> str | int:
    if text in ("auto", "all"):
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise GeoattnError(f"--edges must be auto, all, or a positive number of edges per map; got {text!r}.")
    return int(text)


def _check_numbers(samples: int | None, seed: int, threads: int | None) -> None:
    if samples is not None and samples < 1:
        raise GeoattnError(f"--samples must be a positive number; got {samples}.")
    if seed < 0:
        raise GeoattnError(f"--seed must not be negative; got {seed}.")
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        raise GeoattnError(f"--threads must be a number from 1 to {_MOST_THREADS}; got {threads}.")


def _check_file(out: Path) -> None:
    """Fail before the work, not after it."""
    if out.is_dir():
        raise GeoattnError(f"--out must be a file; {out} is a folder. Try {out / 'report.html'}.")
    existing = next(p for p in (out.absolute().parent, *out.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise GeoattnError(f"cannot write {out}: {existing} is not a folder that can be written.")


def _command() -> str:
    """What was typed, as far as it matters: without --fresh and --json."""
    words = [word for word in sys.argv[1:] if word not in ("--fresh", "--json")]
    return shlex.join(["geoattn", *words]) if words[:1] == ["report"] else ""


def _as_json(out: Path, profiles: list[Any], reused: list[bool], seconds: float) -> dict[str, Any]:
    from geoattn.report.findings import findings

    models = []
    for made, kept in zip(profiles, reused, strict=True):
        s = made.settings
        models.append({
            "model": s["model"], "data": s["data"], "samples": s["samples"], "graphs": s["maps"], "values": s["values"],
            "layers": len(made.layers), "max_gap": s["max_gap"], "profile_seconds": s["seconds"], "reused": kept,
            "conventions": {c.name: _numbers(made, c.name) for c in made.conventions},
            "findings": [
                {"finding": one.sentence, "holds": {name: seen.holds for name, seen in one.seen.items()}}
                for one in findings(made, made.conventions[0].name)
            ],
        })  # fmt: skip
    return {"report": str(out), "bytes": out.stat().st_size, "seconds": round(seconds, 3), "models": models}


def _numbers(made: Any, convention: str) -> dict[str, dict[str, float | None]]:
    numbers = {}
    for statistic in ("distance_to_one", "mean", "negative_share"):
        values = (v if v == v else None for v in made.value(statistic, convention=convention))  # JSON has no NaN
        numbers[statistic] = dict(zip(("value", "lower", "upper"), values, strict=True))
    return numbers


def _print(out: Path, profiles: list[Any], reused: list[bool], convention: str, seconds: float) -> None:
    from rich.console import Console
    from rich.text import Text

    from geoattn.report.findings import findings

    console = Console(highlight=False)

    def say(text: Text | str) -> None:
        console.print(text, soft_wrap=not console.is_terminal, markup=False)

    for made, kept in zip(profiles, reused, strict=True):
        s = made.settings
        say(Text(printable(f"{s['model']} on {s['data']}"), style="bold"))
        if kept:
            say("profile reused from .geoattn beside the report; --fresh measures again")
        else:
            say(f"{s['values']:,} edges of {s['maps']:,} graphs solved exactly in {s['seconds']:,.1f} s")
        for one in findings(made, convention):
            say(f"  {one.sentence} {one.tested}")
    say(f"{out}: {out.stat().st_size / 1e6:.1f} MB, {seconds:.1f} s in all")
