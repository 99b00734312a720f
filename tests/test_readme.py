"""The README: its Python runs, its links lead somewhere, its commands and tables are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from geoattn.graph.convention import PRESETS, Convention

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_start_runs(tmp_path: Path):
    printed = run(EXAMPLES[0], tmp_path)
    assert "(64, 1, 17, 17)" in printed
    assert "first layer" in printed


@pytest.mark.parametrize("code", EXAMPLES[1:], ids=lambda code: re.findall(r"ga\.[\w.]+", code)[0])
def test_the_other_examples_run(code: str, tmp_path: Path):
    run(code, tmp_path)


def test_commands_parse(run_help):
    for line in re.findall(r"^    geoattn (.*?)(?:\s{2,}#.*)?$", README, flags=re.M):
        verb, *options = line.split()
        for option in (word for word in options if word.startswith("--")):
            assert option in run_help(verb), f"geoattn {verb} has no {option}"


@pytest.fixture
def run_help():
    from typer.testing import CliRunner

    from geoattn.cli.app import app

    return lambda verb: CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).stdout


def test_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake (report|test|bench|[a-z-]+)\b", " ".join(re.findall(r"`make [a-z-]+`", README))):
        assert re.search(rf"^{target}:", makefile, flags=re.M)


def test_the_tables_of_conventions_are_complete():
    for preset in PRESETS:
        assert f"| `{preset}`" in README
    for part in Convention().as_dict():
        if part != "name":
            assert f"`{part}`" in README


@pytest.mark.parametrize(
    "name",
    [
        "pip install geoattn", "ga.plots", "ga.models.load_llama2c", "ga.training.TensorBoard", "ga.training.WandB",
        "ga.trainer_callback", "ga.lightning_callback", "networkx", "ga.ricci_flow", "GEOATTN_DATA", "ga.simulate",
        "ga.local_lipschitz", "docs/notebooks/index.md", "docs/install.md",
    ],
)  # fmt: skip
def test_what_people_look_for_is_named(name: str):
    assert name in README


def test_the_picture_comes_first():
    assert re.match(r"# geoattn\n\n!\[", README)
