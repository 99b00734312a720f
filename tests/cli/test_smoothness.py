"""``geoattn smoothness``: table, JSON, files, bad input."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import geoattn as ga
from geoattn.cli.smoothness import smoothness

MODULE = """
import torch
from torch import nn
from transformers import BertConfig, BertModel

def rolled():
    class Rolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)
        def forward(self, x):
            q = self.q(x[:, 0])
            k = q.roll(1, dims=1)
            return nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], q[:, None])
    return Rolled()
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    from geoattn.cli.app import _Boundary

    monkeypatch.chdir(tmp_path)
    app = typer.Typer(cls=_Boundary, pretty_exceptions_enable=False)
    app.command()(smoothness)
    app.callback()(lambda: None)
    return lambda *args: CliRunner().invoke(app, ["smoothness", *map(str, args)], prog_name="geoattn")


def test_the_embedded_model(run, tmp_path):
    done = run("--samples", 2, "--out", "found")
    assert done.exit_code == 0, done.stderr
    assert "lvit-digits on digits (test), 2 samples" in done.stdout
    assert done.stdout.count("converged") == 16
    assert "written to found" in done.stdout
    table = pd.read_parquet(tmp_path / "found" / "smoothness.parquet")
    content = json.loads((tmp_path / "found" / "smoothness.json").read_text())
    rows = [row for row in content["rows"] if row["layer"] == 0]
    assert [row["head"] for row in rows] == [None, 0]
    mine = table[(table["layer"] == 0) & (table["head"] == 0)]
    assert rows[1]["value"] == pytest.approx(mine["value"].mean())
    assert rows[1]["ratio"] < 1


def test_json_is_what_python_gives(run):
    done = run("--samples", 2, "--layers", "transformer.layers.3", "--json")
    content = json.loads(done.stdout)
    digits = ga.load_data("digits", split="test", limit=2)
    expected = ga.model_smoothness(ga.load_model("lvit-digits"), digits, layers="transformer.layers.3").summary()
    assert [row["value"] for row in content["rows"]] == pytest.approx(list(expected["value"]))
    assert run("--samples", 2, "--layers", "transformer.layers.3", "--no-heads").stdout.count("converged") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--samples", 0), "--samples must be a positive number"),
        (("--seed", -1), "--seed must not be negative"),
        (("--starts", 0), "--starts must be a positive number"),
        (("--tolerance", "nan"), "--tolerance must be a positive number"),
        (("--split", "all"), "--split must be test or train"),
        (("no-such-model",), "--data is needed for no-such-model"),
        (("--layers", "nothing"), "nothing"),
        (("own:rolled", "--data", "digits", "--samples", 1), "mix tokens"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, arguments, words):
    (tmp_path / "own.py").write_text(MODULE)
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
