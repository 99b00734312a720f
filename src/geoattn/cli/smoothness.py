"""``geoattn smoothness``: local Lipschitz constants of the attention of a model, by layer and head."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.errors import GeoattnError
from geoattn.cli.interrupt import prompt_interrupt
from geoattn.cli.printable import printable
from geoattn.cli.progress import LateProgress

__all__ = ["smoothness"]

_WIDTH_IN_A_FILE = 110
_SAMPLES = 8


def smoothness(
    model: Annotated[
        str,
        typer.Argument(
            help="A name (lvit-digits, bert-tiny, ...), a folder with config.json and model.safetensors, owner/name of"
            " the hub, or module:function that returns a model or (model, tokenizer).",
        ),
    ] = "lvit-digits",
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
    samples: Annotated[int, typer.Option(help="How many rows, drawn by --seed.")] = _SAMPLES,
    layers: Annotated[
        str | None, typer.Option(help="Only these modules: a pattern such as '*.layer.3.*'.", show_default=False)
    ] = None,
    by_head: Annotated[bool, typer.Option("--heads/--no-heads", help="Rows for heads in the table.")] = True,
    tolerance: Annotated[float, typer.Option(help="On the residual, relative to the value.")] = 1e-4,
    starts: Annotated[int, typer.Option(help="Independent starts that must agree.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the draw of samples and of the starts.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for smoothness.parquet and smoothness.json.", show_default=False)
    ] = None,
) -> None:
    """How far a small move of the tokens can travel through each attention layer and head, with bounds.

    The local Lipschitz constant is the spectral norm of the derivative at the model's own tokens, without residual and
    norm. The bound holds for all tokens of the same number in the ball of the same radius R. R^2 gamma says how far
    worst-case tokens can go: well above log n, they reach growth like sqrt(n).
    """
    if samples < 1:
        raise GeoattnError(f"--samples must be a positive number; got {samples}.")
    if seed < 0:
        raise GeoattnError(f"--seed must not be negative; got {seed}.")
    if starts < 1:
        raise GeoattnError(f"--starts must be a positive number; got {starts}.")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise GeoattnError(f"--tolerance must be a positive number; got {tolerance:g}.")
    if split not in ("test", "train"):
        raise GeoattnError(f"--split must be test or train; got {split!r}.")

    # Heavy imports wait until the options are known to be good, and --help never pays for them.
    from geoattn.cli.folder import check_folder, write_folder
    from geoattn.cli.sources import fit_data, read_data, read_model
    from geoattn.profiles.model_constants import model_smoothness

    if out is not None:
        check_folder(out)
    given = read_data(data, model, split, samples, seed, column)
    source = read_model(model, text=given.texts is not None)
    rows = fit_data(given, source)
    started = time.perf_counter()
    with prompt_interrupt(), LateProgress(len(rows), printable(source.name)[:40], unit="samples") as bar:
        try:
            found = model_smoothness(
                source.model, rows, tokenizer=source.tokenizer, layers=layers, tolerance=tolerance, starts=starts,
                seed=seed, progress=lambda done, _: bar.update(done),
            )  # fmt: skip
        except GeoattnError as error:
            raise GeoattnError(f"{model}: {error}") from None
    seconds = time.perf_counter() - started
    summary = found.summary()
    content = _as_json(found, summary, source.name, f"{rows.name} ({rows.split})", seconds)
    if out is not None:
        files = {
            "smoothness.parquet": found.table.to_parquet(index=False),
            "smoothness.json": (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(),
        }
        write_folder(out, files)
    if as_json:
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    title = f"{source.name} on {rows.name} ({rows.split}), {found.settings['samples']} samples"
    _print(found, summary, title, seconds, by_head, out)


def _as_json(found: Any, summary: Any, model: str, data: str, seconds: float) -> dict[str, Any]:
    import pandas as pd

    rows = []
    for row in summary.to_dict("records"):
        head = row.pop("head")
        plain = {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in row.items()}
        rows.append({"layer": plain.pop("layer"), "head": None if pd.isna(head) else int(head), **plain})
    return {
        "model": model, "data": data, "samples": found.settings["samples"], "settings": found.settings,
        "seconds": round(seconds, 3), "skipped": found.skipped, "rows": rows,
    }  # fmt: skip


def _print(found: Any, summary: Any, title: str, seconds: float, by_head: bool, out: Path | None) -> None:
    import pandas as pd
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    in_a_file = not console.is_terminal
    if in_a_file:
        console.width = max(console.width, _WIDTH_IN_A_FILE)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer")
    table.add_column("head", justify="right")
    for column in ("constant", "largest", "residual", "status", "bound", "ratio", "R^2 gamma"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in summary.itertuples():
        whole = bool(pd.isna(row.head))
        if not (whole or by_head):
            continue
        status = "converged" if row.converged == 1 else f"{row.converged:.0%} converged"
        cells = [
            _number(row.value), _number(row.largest), f"{row.relative_residual:.0e}", status, _number(row.bound),
            _number(row.ratio), "" if whole else _number(row.r2_gamma),
        ]  # fmt: skip
        name = Text(printable(str(row.name)) if whole else "")
        table.add_row(name, "all" if whole else str(row.head), *cells, style="bold" if whole else "")

    def say(line: Text | str) -> None:
        console.print(line, soft_wrap=in_a_file)

    say(Text(printable(title), style="bold"))
    console.print(table)
    say(
        "Spectral norm of the derivative, mean over samples, and the largest; its relative residual; the printed bound"
        " for the ball."
    )
    for name, reason in found.skipped.items():
        say(
            Text(printable(f"not measured: {reason}" if reason.startswith(name) else f"not measured: {name}: {reason}"))
        )
    say(f"{seconds:.1f} s" + ("" if out is None else f"; written to {printable(str(out))}"))


def _number(x: float) -> str:
    if x != x:
        return "-"
    return f"{x:.3g}" if abs(x) < 1e-2 or abs(x) >= 1e4 else f"{x:.4g}"
