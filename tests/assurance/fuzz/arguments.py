"""The command line with arguments by seed: an answer, or one line and exit code 2, never a traceback."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

_NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1e309",
    "nan",
    "inf",
    "-inf",
    "1e-320",
    "99999999999999999999",
    "0x1",
    "1_0",
    "٣",
    "",
)
_WORDS = (
    "all", "auto", "markov", "hop", "grc-0.5", "markov,hop", ",", "limit", "directed", "mean", "-log w", "1/w", "w",
    "stationary", "D", "-D", "1,2,3", "layer,head", "head", "nonsense", "\x1b[31m", "[/red]", "../..", "/", "/dev/null",
    "{0}%s", "\u202e", "a" * 5000, "--", "-", "--help", "=",
)  # fmt: skip
#: Verbs that end at once with what is drawn here; those that train or measure are given what they must refuse.
_VERBS = (
    "curvature",
    "curvature",
    "curvature",
    "simulate",
    "cite",
    "report",
    "smoothness",
    "train",
    "study",
    "nothing",
    "",
)
#: Without these a drawn command could work for minutes.
_BOUNDS = {
    "curvature": ("--threads", "1"),
    "simulate": ("--n", "3", "--until", "0.1"),
    "report": ("nowhere/nothing",),
    "smoothness": ("nowhere/nothing",),
    "train": ("nothing",),
    "study": ("nothing",),
}  # fmt: skip


@cache
def options(verb: str) -> tuple[str, ...]:
    """The options of a verb, as its help names them."""
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    text = CliRunner(env={"COLUMNS": "200"}).invoke(app, [verb, "--help"]).stdout if verb else ""
    return tuple(sorted(set(re.findall(r"--[a-zA-Z][a-zA-Z-]*", text)))) or ("--version",)


def files(folder: Path) -> list[str]:
    """Small files, good and bad, that a drawn command may name."""
    maps = np.random.default_rng(0).dirichlet(np.ones(4), (2, 4))
    np.save(folder / "a.npy", maps)
    np.savez(folder / "a.npz", a=maps, b=maps)
    np.save(folder / "tokens.npy", np.eye(3))
    np.save(folder / "mask.npy", np.ones(4, bool))
    (folder / "a.edgelist").write_text("1 2\n2 3\n")
    (folder / "bad.npz").write_bytes(b"PK\5\6" + bytes(18))
    (folder / "folder").mkdir(exist_ok=True)
    return [str(path) for path in sorted(folder.iterdir())]


def made(number: int, paths: list[str]) -> list[str]:
    """The arguments of a number."""
    random = Random(number)
    verb = random.choice(_VERBS)
    known = options(verb if verb not in ("nothing", "") else "curvature")
    words: list[str] = [verb] if verb else []
    if verb in ("curvature",) and random.random() < 0.8:
        words.append(random.choice(paths))
    for _ in range(random.randrange(5)):
        option = random.choice(known) if random.random() < 0.9 else random.choice(_WORDS)
        value = random.choice((*_NUMBERS, *_WORDS, *paths))
        words += [[option], [option, value], [f"{option}={value}"], [value]][random.choice((0, 1, 1, 1, 2, 3))]
    return [*words, *_BOUNDS.get(verb, ())]


def fuzz(numbers: Iterable[int]) -> list[tuple[int, list[str], str]]:
    """(number, arguments, what is wrong) of the commands that are not answered well."""
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    wrong: list[tuple[int, list[str], str]] = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            paths = files(Path(folder))
            for number in numbers:
                words = made(number, paths)
                done = CliRunner().invoke(app, words, prog_name="geoattn")
                if said := _wrong(done):
                    wrong.append((number, words, said))
        finally:
            os.chdir(before)
    return wrong


def _wrong(done: Any) -> str | None:
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "".join(traceback.format_exception(done.exception))
    if done.exit_code not in (0, 1, 2):
        return f"exit code {done.exit_code}"
    if done.exit_code == 2 and not done.stdout and done.stderr.count("\n") != 1:
        return f"not one line: {done.stderr[:500]!r}"
    bad = [c for c in done.stdout + done.stderr if not c.isprintable() and c != "\n"]
    return f"control characters {bad[:5]} on the terminal" if bad else None
