"""Names from files on the terminal and in file names: no escape codes, no markup, no paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

NAMES = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "a\rb", "[bold]a[/bold]", "[/nothing]", "\u202eleft",
    "../../up", "a\nb", "%s%n{0}", ":smile:", "\x00",
)  # fmt: skip


def run(*arguments: Any) -> Any:
    from geoattn.cli.app import app

    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="geoattn")


def check(done: Any) -> None:
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    for text in (done.stdout, done.stderr):
        assert not [c for c in text if not c.isprintable() and c != "\n"], text


@pytest.mark.parametrize("name", NAMES)
def test_names_of_layers(tmp_path: Path, name: str) -> None:
    from safetensors.numpy import save_file

    attention = np.random.default_rng(0).dirichlet(np.ones(5), 5)
    save_file({name: attention, f"{name}2": attention}, tmp_path / "a.safetensors")
    done = run("curvature", tmp_path / "a.safetensors", "--out", tmp_path / "out")
    check(done)
    assert done.exit_code == 0
    if "[" in name and "\x1b" not in name:
        assert name in done.stdout  # shown as it is, not read as markup
    files = sorted(p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("*"))
    assert len(files) == 3
    assert all(len(file.parts) == 1 and file.name.isascii() and file.name.isprintable() for file in files)


@pytest.mark.parametrize("name", [n for n in NAMES if "/" not in n and "\x00" not in n])
def test_names_of_files(tmp_path: Path, name: str) -> None:
    for suffix, content in ((".edgelist", "1 2\n2 3\n3 1\n"), (".edges", "1 2 x\n\x1b[31m"), (".npz", "nothing")):
        path = tmp_path / f"{name}{suffix}"
        path.write_text(content)
        done = run("curvature", path)
        check(done)
        assert done.exit_code == (0 if suffix == ".edgelist" else 2)


def test_names_of_nodes_and_of_graphs_that_close_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "[" / ""
    folder.mkdir()
    path = folder / "x].edgelist"
    path.write_text("[red] [/blue]\n[/blue] \x1b[31mc\n\x1b[31mc [red]\n")
    check(run("curvature", path))


@pytest.mark.parametrize("name", [n for n in NAMES if "/" not in n and "\x00" not in n])
def test_names_of_runs(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    done = run("train", "--data", "digits", "--epochs", 1, "--limit", 16, "--out", out)
    check(done)
    assert (out / "checkpoint.safetensors").is_file() == (done.exit_code == 0)


def test_a_note_of_failure_from_a_stranger(tmp_path: Path) -> None:
    from geoattn.runs.store import Store
    from geoattn.studies.catalogue import find_study

    study = find_study("mean-field")
    configs = study.configs("smoke")
    store = Store(tmp_path, study.name, study.version)
    store.plan("smoke", configs)
    store.fail(configs[0], "\x1b[31mred\x1b[0m \x9b2J")
    done = run("study", study.name, "status", "--out", tmp_path)
    check(done)
    assert "failed" in done.stdout
