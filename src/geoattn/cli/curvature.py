"""``geoattn curvature``: exact Ollivier-Ricci curvature of attention in a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.arguments import read_number
from geoattn._core.errors import GeoattnError
from geoattn.cli.conventions import build_convention, read_conventions
from geoattn.cli.interrupt import prompt_interrupt
from geoattn.cli.progress import LateProgress
from geoattn.graph.graph_files import is_graph_file

__all__ = ["curvature"]

_MOST_THREADS = 1024
_PARTS = "Parts of the convention (default: those of the preset)"


def _part(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=_PARTS, show_default=False)


def curvature(
    file: Annotated[
        Path | None,
        typer.Argument(
            help=".npy, .npz or .safetensors: an array is a layer, (n, n), (head, n, n) or (sample, head, n, n); or"
            " several layers, (layer, sample, head, n, n). .graphml, .gml, .mtx, edge lists and SciPy's sparse .npz: a"
            " graph. Without FILE: the embedded sample.",
            metavar="[FILE]",
            show_default=False,
        ),
    ] = None,
    convention: Annotated[
        str,
        typer.Option(
            "--convention",
            "--conventions",
            help="markov, hop, grc-0.5 or grc-0.6; several with commas, each on its own.",
        ),
    ] = "markov",
    edges: Annotated[str, typer.Option(help="all, or how many edges to draw from each map.", metavar="all|N")] = "all",
    tolerance: Annotated[
        float,
        typer.Option(
            help="Certified bounds of kappa no further apart than this; 0: exact values. Those of a graph are always"
            " exact."
        ),
    ] = 0.0,
    key: Annotated[list[str] | None, typer.Option(help="Array to read from FILE; may be repeated.")] = None,
    axes: Annotated[
        str | None,
        typer.Option(help="Meaning of the axes before the tokens, such as layer,head.", show_default=False),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help=".npy, true for a real token: (n,), (sample, n) or (sample, head, n).", show_default=False),
    ] = None,
    heads: Annotated[str | None, _part("each or mean.")] = None,
    direction: Annotated[str | None, _part("mean, max, min, product or directed.")] = None,
    length: Annotated[
        str | None, _part("w, 1/w, '-log w', 1-w or hop. With a leading dash: --length='-log w'.")
    ] = None,
    measure: Annotated[str | None, _part("markov, exponential or uniform.")] = None,
    alpha: Annotated[str | None, _part("Mass kept on the token, 0 <= alpha < 1; or limit (Lin-Lu-Yau).")] = None,
    denominator: Annotated[str | None, _part("distance or length.")] = None,
    exponent: Annotated[float | None, _part("Of the exponential measure.")] = None,
    floor: Annotated[float | None, _part("Curvature is 0 where the denominator is below it.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Default: all that the process may use.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draw of edges.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for curvature.parquet and a histogram per layer.", show_default=False),
    ] = None,
) -> None:
    """Exact Ollivier-Ricci curvature of each edge of each attention map, with a certificate.

    Prints mean, extremes, share of negative edges and distance to one by layer.
    """
    parts = {
        "heads": heads, "direction": direction, "length": length, "measure": measure, "alpha": alpha,
        "denominator": denominator, "exponent": exponent, "floor": floor,
    }  # fmt: skip
    conventions = [build_convention(name, parts) for name in read_conventions(convention)]
    wanted = _read_edges(edges)
    if seed < 0:
        raise GeoattnError(f"--seed must not be negative; got {seed}.")
    read_number("--tolerance", tolerance, least=0.0)
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        raise GeoattnError(f"--threads must be a number from 1 to {_MOST_THREADS}; got {threads}.")

    if file is not None and is_graph_file(file):
        from geoattn.cli.graph_curvature import graph_curvature

        if tolerance:
            print(
                "geoattn: note: --tolerance has no effect here: values of sparse graphs are always exact.",
                file=sys.stderr,
            )
        with prompt_interrupt():
            found = [
                graph_curvature(
                    file,
                    rules,
                    edges=wanted,
                    threads=threads,
                    seed=seed,
                    quiet=as_json,
                    out=_folder(out, rules, conventions),
                )
                for rules in conventions
            ]
        if as_json:
            _print_json(found)
        return

    # Heavy imports wait until the options are known to be good, and --help never pays for them.
    from geoattn.cli.folder import check_folder, result_files, write_folder
    from geoattn.cli.table import as_json as summary_of
    from geoattn.cli.table import print_table
    from geoattn.datasets.attention_files import open_attention
    from geoattn.datasets.sample import SAMPLE_PATH
    from geoattn.profiles.map_layers import check_layers, edge_total, solve_layers

    for rules in conventions if out is not None else ():
        check_folder(_folder(out, rules, conventions))
    if file is None and not key:
        key = ["attention"]
    names = [name.strip() for name in axes.split(",")] if axes is not None else None
    source = "embedded sample" if file is None else str(file)
    with prompt_interrupt():
        layers = open_attention(file or SAMPLE_PATH, keys=key or (), axes=names)
        tokens = _read_mask(mask)
    summaries = []
    for rules in conventions:
        folder = _folder(out, rules, conventions)
        with prompt_interrupt():
            started = time.perf_counter()
            try:
                check_layers(layers, rules, tokens)
                with LateProgress(edge_total(layers, rules, wanted), "curvature") as bar:
                    solved = solve_layers(
                        layers, rules, edges=wanted, mask=tokens, tolerance=tolerance, threads=threads, seed=seed,
                        keep_edges=out is not None, progress=bar.update,
                    )  # fmt: skip
            except GeoattnError as error:
                raise GeoattnError(f"{source}: {error}") from None
            seconds = time.perf_counter() - started
            summary = summary_of(solved, rules, source, seconds, None if folder is None else str(folder))
            files = {} if folder is None else result_files(solved, summary)
        written = None
        if folder is not None:
            write_folder(folder, files)
            written = f"written to {folder}: {', '.join(files)}"
        summaries.append(summary)
        if not as_json:
            print_table(solved, rules, _title(source, layers), seconds, written)
    if as_json:
        _print_json(summaries)


def _folder(out: Path | None, rules: Any, conventions: list[Any]) -> Any:
    """``out`` itself; with several conventions a folder for each in it."""
    return out if out is None or len(conventions) == 1 else out / rules.name


def _print_json(found: list[Any]) -> None:
    """One object, or with several conventions a list of them."""
    print(json.dumps(found[0] if len(found) == 1 else found, indent=2, allow_nan=False))


def _read_edges(edges: str) -> Any:
    if edges == "all":
        return edges
    try:
        count = int(edges)
    except ValueError:
        count = 0
    if count < 1:
        raise GeoattnError(f"--edges must be all or a positive number of edges per map; got {edges!r}.")
    return count


def _read_mask(path: Path | None) -> Any:
    if path is None:
        return None
    from geoattn._core.numpy_files import read_npy

    try:
        return read_npy(path)
    except FileNotFoundError:
        raise GeoattnError(f"--mask: no such file: {path}.") from None
    except Exception as error:
        raise GeoattnError(f"--mask: {path} is not a .npy file of booleans ({error}).") from None


def _title(source: str, layers: Any) -> str:
    sizes = {(layer.samples, layer.heads, layer.n) for layer in layers}
    if len(sizes) > 1:
        return f"{source}: {len(layers)} layers of different sizes"
    samples, heads, n = sizes.pop()
    counts = [(len(layers), "layer"), (samples, "sample"), (heads, "head"), (n, "token")]
    return f"{source}: " + ", ".join(f"{count} {noun}{'s' if count != 1 else ''}" for count, noun in counts)
