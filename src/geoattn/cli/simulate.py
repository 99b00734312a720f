"""``geoattn simulate``: tokens as particles; experiments with known outcomes, or a run of one's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from geoattn._core.errors import GeoattnError
from geoattn.cli.interrupt import prompt_interrupt
from geoattn.cli.progress import LateProgress

__all__ = ["simulate"]

_PANEL = "A run of one's own"
_KEPT_NUMBERS = 20_000_000  # of a trajectory in memory


def simulate(
    preset: Annotated[
        str | None,
        typer.Argument(
            help="An experiment: fig1 to fig7, phase-diagram, staircase, ...; see --list.", show_default=False
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Print the experiments and end.")] = False,
    size: Annotated[
        str | None, typer.Option(help="Of an experiment: paper (default, as published) or small.", show_default=False)
    ] = None,
    n: Annotated[int | None, typer.Option(help="Tokens. Default: 100.", rich_help_panel=_PANEL)] = None,
    d: Annotated[int | None, typer.Option(help="Dimension. Default: 3.", rich_help_panel=_PANEL)] = None,
    runs: Annotated[int | None, typer.Option(help="Runs side by side.", rich_help_panel=_PANEL)] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="Start at a .npy file (..., n, d) instead.", rich_help_panel=_PANEL)
    ] = None,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Divide the tokens of the file by their norms.", rich_help_panel=_PANEL)
    ] = False,
    beta: Annotated[float | None, typer.Option(help="Inverse temperature. Default: 1.", rich_help_panel=_PANEL)] = None,
    flow: Annotated[
        str | None,
        typer.Option(
            help="sa (softmax, default), usa, sinkhorn, hardmax, sigmoid, l2 or linear.", rich_help_panel=_PANEL
        ),
    ] = None,
    D: Annotated[
        str | None,
        typer.Option(
            "--D", help="Logits beta <x, D y>: a number, a diagonal 1,3,4, or a .npy file.", rich_help_panel=_PANEL
        ),
    ] = None,
    V: Annotated[
        str | None,
        typer.Option("--V", help="Values: as --D, or D (attraction) or -D (repulsion).", rich_help_panel=_PANEL),
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Causal mask.", rich_help_panel=_PANEL)] = False,
    method: Annotated[
        str | None, typer.Option(help="rk4 (default), adaptive, euler or layer.", rich_help_panel=_PANEL)
    ] = None,
    until: Annotated[str | None, typer.Option(help="A time, or stationary.", rich_help_panel=_PANEL)] = None,
    step: Annotated[float | None, typer.Option(help="Of the fixed methods.", rich_help_panel=_PANEL)] = None,
    norm: Annotated[str | None, typer.Option(help="post (default), pre or none.", rich_help_panel=_PANEL)] = None,
    noise: Annotated[float | None, typer.Option(help="sigma of Brownian motion.", rich_help_panel=_PANEL)] = None,
    gif: Annotated[
        Path | None, typer.Option(help="Write a film: .gif, or .mp4 with ffmpeg.", rich_help_panel=_PANEL)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of start and noise. Default: 0, 42 for an experiment.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the tokens to a .npz file.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Tokens as particles on the sphere that attend to each other.

    With PRESET: an experiment with a known outcome; exit code 1 when it does not come out as expected. Without: a run.
    """
    own = {
        "--n": n, "--d": d, "--runs": runs, "--tokens": tokens, "--normalise": normalise or None, "--beta": beta,
        "--flow": flow, "--D": D, "--V": V, "--causal": causal or None, "--method": method, "--until": until,
        "--step": step, "--norm": norm, "--noise": noise, "--gif": gif,
    }  # fmt: skip
    if preset is not None:
        used = [name for name, value in own.items() if value is not None]
        if used:
            raise GeoattnError(
                f"{used[0]} belongs to a run of one's own; leave out {preset!r}, or leave out {used[0]}."
            )
    elif size is not None:
        raise GeoattnError("--size belongs to an experiment; name one, see --list.")
    if out is not None:
        _check_npz(out)
    if show:
        _list(as_json)
    elif preset is not None:
        _experiment(preset, size or "paper", 42 if seed is None else seed, out, as_json)
    else:
        _run(own, 0 if seed is None else seed, out, as_json)


def _list(as_json: bool) -> None:
    from geoattn.dynamics.experiments import FIGURES, experiment_titles

    figures = {name: figure for figure, name in FIGURES.items()}
    if as_json:
        rows = [{"name": k, "figure": figures.get(k), "title": v} for k, v in experiment_titles().items()]
        print(json.dumps(rows, indent=2))
        return
    for name, title in experiment_titles().items():
        print(f"{name:14} {figures.get(name, ''):6} {title}")


def _experiment(name: str, size: str, seed: int, out: Path | None, as_json: bool) -> None:
    from geoattn.cli.flow_table import experiment_json, print_experiment
    from geoattn.dynamics.experiments import run_experiment

    with prompt_interrupt(), _bar(name, as_json) as tell:
        done = run_experiment(name, size=size, seed=seed, progress=tell)
    if out is not None:
        done.save(out)
    if as_json:
        print(json.dumps(experiment_json(done, size, out), indent=2, allow_nan=False))
    else:
        print_experiment(done, size, out)
    if not done.passed:
        raise typer.Exit(1)


def _run(own: dict[str, Any], seed: int, out: Path | None, as_json: bool) -> None:
    from geoattn.cli.flow_table import print_run, run_json
    from geoattn.dynamics.animation import animate, check_film
    from geoattn.dynamics.simulation import simulate as solve

    if own["--gif"] is not None:
        check_film(own["--gif"])
    x = _start(own, seed)
    D = _read_matrix("--D", own["--D"])
    V = own["--V"]
    if V in ("D", "-D"):
        V = (1.0 if D is None else D) * (1.0 if V == "D" else -1.0)
    else:
        V = _read_matrix("--V", V)
    until: Any = own["--until"] or "stationary"
    if until != "stationary":
        until = _number("--until", until)
    frames = int(min(101, max(2, _KEPT_NUMBERS / x.numel())))
    given = {
        "beta": own["--beta"], "flow": own["--flow"],
        "method": own["--method"], "step": own["--step"], "norm": own["--norm"], "noise": own["--noise"],
    }  # fmt: skip
    with prompt_interrupt(), _bar("simulate", as_json) as tell:
        done = solve(
            x, D=D, V=V, until=until, causal=bool(own["--causal"]), normalise=bool(own["--normalise"]), seed=seed,
            save=frames, progress=tell,
            **{name: value for name, value in given.items() if value is not None},
        )  # fmt: skip
    if out is not None:
        done.save(out)
    if own["--gif"] is not None:
        animate(done, own["--gif"])
    files = [path for path in (out, own["--gif"]) if path is not None]
    if as_json:
        print(json.dumps(run_json(done, files), indent=2, allow_nan=False))
    else:
        print_run(done, files)


@contextmanager
def _bar(label: str, as_json: bool) -> Iterator[Callable[[float, float], object] | None]:
    """How far it is, from (done, total); None with --json, which prints nothing else."""
    if as_json:
        yield None
        return
    with LateProgress(1000, label, unit="per mille") as bar:
        yield lambda done, total: bar.update(1000 * done / total if total else 1000)


def _start(own: dict[str, Any], seed: int) -> Any:
    """The tokens at time 0."""
    import torch

    from geoattn.dynamics.starts import uniform_tokens

    if own["--tokens"] is not None:
        for name in ("--n", "--d", "--runs"):
            if own[name] is not None:
                raise GeoattnError(f"{name} does not go with --tokens: the file says how many there are.")
        return torch.from_numpy(_read_npy("--tokens", own["--tokens"]))
    if own["--normalise"]:
        raise GeoattnError("--normalise goes with --tokens; other starts lie on the sphere.")
    d = own["--d"]
    if d is None:  # a diagonal says it
        sizes = [len(own[k].split(",")) for k in ("--D", "--V") if own[k] is not None and "," in own[k]]
        d = sizes[0] if sizes else 3
    runs = () if own["--runs"] is None else own["--runs"]
    return uniform_tokens(100 if own["--n"] is None else own["--n"], d, runs=runs, seed=seed)


def _read_matrix(option: str, text: str | None) -> Any:
    """A number, a diagonal matrix, or what a .npy file holds."""
    import numpy as np

    if text is None:
        return None
    if text.endswith(".npy"):
        return _read_npy(option, Path(text))
    values = [_number(option, part) for part in text.split(",")]
    return values[0] if len(values) == 1 else np.diag(values)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        kind = "a time or stationary" if option == "--until" else "a number, numbers with commas, or a .npy file"
        raise GeoattnError(f"{option} must be {kind}; got {text!r}.") from None


def _read_npy(option: str, path: Path) -> Any:
    from geoattn._core.numpy_files import read_npy

    try:
        array = read_npy(path)
    except FileNotFoundError:
        raise GeoattnError(f"{option}: no such file: {path}.") from None
    except Exception as error:
        raise GeoattnError(f"{option}: {path} is not a .npy file of numbers ({error}).") from None
    if array.dtype.kind not in "fiu":
        raise GeoattnError(f"{option}: {path} must hold real numbers; got {array.dtype}.")
    return array if array.dtype.kind == "f" else array.astype(float)


def _check_npz(out: Path) -> None:
    """Fail before the work, not after it."""
    if out.suffix != ".npz":
        raise GeoattnError(f"--out must be a .npz file; got {out}.")
    parent = out.absolute().parent
    if out.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise GeoattnError(f"cannot write {out}: {parent} is not a folder that can be written.")
