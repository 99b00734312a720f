"""``geoattn report``: defaults, reuse, bad input, Ctrl-C."""

from __future__ import annotations

import json
import sys

import pytest
import typer
from transformers import ViTConfig, ViTModel
from typer.testing import CliRunner

import geoattn as ga
from geoattn.cli.report import report
from tests.cli.test_interrupt import interrupted
from tests.profiles.test_spread import PlainRay

MODULE = """
import torch
import geoattn as ga

def image():
    return ga.load_model("lvit-digits")

def nothing():
    return 3

def broken():
    model = image()
    model.mlp_head = torch.nn.Linear(3, 3)
    return model
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The verb alone, in a folder of its own."""
    from geoattn.cli.app import _Boundary

    monkeypatch.chdir(tmp_path)
    app = typer.Typer(cls=_Boundary, pretty_exceptions_enable=False)
    app.command()(report)
    app.callback()(lambda: None)
    return lambda *args: CliRunner().invoke(app, ["report", *map(str, args)], prog_name="geoattn")


def test_no_argument_is_the_embedded_model_and_a_second_run_reuses_its_profile(run, tmp_path):
    first = run("--samples", 12)
    assert first.exit_code == 0, first.stderr
    assert "lvit-digits on digits (test)" in first.stdout
    assert "solved exactly in" in first.stdout
    assert "The last layer is closer to 1" in first.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for name in ("markov", "hop", "grc-0.6", "grc-0.5"):
        assert name in page
    assert sorted(p.name for p in tmp_path.iterdir()) == [".geoattn", "report.html"]
    second = run("--samples", 12)
    assert "profile reused from .geoattn" in second.stdout
    assert "solved exactly in" not in second.stdout
    assert "profile reused" not in run("--samples", 12, "--fresh").stdout
    assert len(list((tmp_path / ".geoattn").iterdir())) == 1
    assert "profile reused" not in run("--samples", 13, "--conventions", "hop").stdout
    assert len(list((tmp_path / ".geoattn").iterdir())) == 2


def test_a_damaged_profile_is_made_anew(run, tmp_path):
    options = ("--samples", 4, "--conventions", "hop", "--json")
    assert json.loads(run(*options).stdout)["models"][0]["reused"] is False
    (kept,) = (tmp_path / ".geoattn").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert json.loads(run(*options).stdout)["models"][0]["reused"] is False
    assert json.loads(run(*options).stdout)["models"][0]["reused"] is True


def test_json_holds_the_numbers(run, tmp_path):
    result = run("--samples", 6, "--conventions", "grc-0.6,hop", "--json", "--out", "a/b.html", "--edges", 20)
    assert result.exit_code == 0, (result.stderr, result.exception)
    answer = json.loads(result.stdout)
    assert answer["report"] == "a/b.html"
    assert answer["bytes"] == (tmp_path / "a" / "b.html").stat().st_size < 8_000_000
    (model,) = answer["models"]
    assert (model["samples"], model["graphs"], model["values"]) == (6, 48, 48 * 20 * 2)
    assert list(model["conventions"]) == ["grc-0.6", "hop"]
    hop = model["conventions"]["hop"]["distance_to_one"]
    assert hop["lower"] <= hop["value"] <= hop["upper"]


def test_a_function_gives_the_model_and_two_models_are_compared(run, tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    result = run("lvit-digits", "mine:image", "--data", "digits", "--samples", 5, "--conventions", "hop")
    assert result.exit_code == 0, result.stderr
    assert "mine:image on digits (test)" in result.stdout
    assert "The two models" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--conventions", "nonsense"], "unknown convention 'nonsense'"),
        (["--convention", "Markov"], "Did you mean 'markov'?"),
        (["lvit-digit"], "unknown model 'lvit-digit'. Did you mean 'lvit-digits'?"),
        (["--conventions", "hop,hop"], "--convention: each once"),
        (["--edges", "0"], "--edges must be auto, all, or a positive number"),
        (["--samples", "0"], "--samples must be a positive number; got 0"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--threads", "0"], "--threads must be a number from 1"),
        (["--tokens", "some"], "--tokens must be all or content; got 'some'"),
        (["--split", "dev"], "--split must be test or train; got 'dev'"),
        (["--out", "."], "--out must be a file; . is a folder"),
        (["bert-tiny"], "--data is needed for bert-tiny"),
        (["lvit-digits", "--data", "no.txt"], "cannot read no.txt"),
        (["lvit-digits", "--data", "lines.txt"], "takes images, but the data are texts"),
        (["no_module:f", "--data", "digits"], "cannot import no_module"),
        (["mine:absent", "--data", "digits"], "mine has no function absent"),
        (["mine:nothing", "--data", "digits"], "must return a torch.nn.Module"),
        (["mine:image", "--data", "lines.txt"], "must return (model, tokenizer)"),
        (["nonsense", "--data", "digits"], "unknown model 'nonsense'"),
        (["mine:broken", "--data", "digits", "--samples", "2"], "the model raised RuntimeError in its forward pass"),
        (["--backend", "moon"], "--backend must be local or ray; got 'moon'"),
        (["--workers", "2"], "--workers and --address are for --backend ray"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, arguments, message):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    sys.modules.pop("mine", None)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_a_cluster_gives_the_same_report(run, monkeypatch):
    ray = PlainRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    options = ("--samples", 40, "--edges", 5, "--conventions", "hop", "--json", "--fresh")
    here, there = (json.loads(run(*options, *more).stdout) for more in ((), ("--backend", "ray", "--workers", 2)))
    assert ray.tasks == 2
    assert there["models"][0]["conventions"] == here["models"][0]["conventions"]


def test_texts_come_from_lines(tmp_path):
    from geoattn.cli.sources import read_data

    path = tmp_path / "lines.txt"
    path.write_bytes(b"one two\r\n\n<b>\n")
    data = read_data(str(path), "model", "test", None, 0)
    assert data.texts == ("one two", "<b>")  # a blank line is no text
    assert len(read_data(str(path), "model", "test", 1, 0)) == 1
    path.write_text("\n \n\t\n")
    with pytest.raises(ga.GeoattnError, match=r"lines\.txt holds no sample"):
        read_data(str(path), "model", "test", None, 0)


def test_a_model_of_another_kind_is_said_in_words(run, tmp_path):
    """The folder of an image model has no tokenizer, and one of llama2.c no configuration."""
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    images, other = tmp_path / "images", tmp_path / "other"
    config = ViTConfig(image_size=16, patch_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    ViTModel(config).save_pretrained(images)
    other.mkdir()
    for name in ("model.bin", "tokenizer.bin"):
        (other / name).write_bytes(b"0")
    for folder, words in ((images, "images takes images, but the data are texts"), (other, "ga.models.load_llama2c(")):
        result = run(folder, "--data", "lines.txt")
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert words in result.stderr


def test_ctrl_c_leaves_no_file(tmp_path):
    command = [sys.executable, "-m", "geoattn", "report", "--data", "digits", "--split", "train"]
    code, out, err, _ = interrupted(command, 8.0, cwd=tmp_path)
    assert (code, out, err) == (130, "", "geoattn: interrupted\n")
    assert not (tmp_path / "report.html").exists()
    assert not list(tmp_path.rglob("*.npz")) + list(tmp_path.rglob("*.part"))
