from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import geoattn as ga
from geoattn.datasets.sample import load_sample


def strict_json(text: str):
    def refuse(word: str):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_embedded_sample_has_a_table_the_convention_and_the_time(run):
    result = run("curvature")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "embedded sample: 4 layers, 6 samples, 4 heads, 17 tokens" in result.stdout
    for word in ("mean", "min", "max", "negative", "distance to 1", "edges", "max gap"):
        assert word in result.stdout
    assert "convention markov: S = (A + A^T) / 2; edge length -log S; measure the attention row" in result.stdout
    assert " s on " in result.stdout


def test_json_holds_what_python_computes(run):
    result = run("curvature", "--json", "--convention", "hop")
    assert result.exit_code == 0
    answer = strict_json(result.stdout)
    assert answer["convention"]["length"] == "hop"
    for k, layer in enumerate(answer["layers"]):
        expected = ga.ollivier_ricci(load_sample()[k], "hop")
        for name in ("mean", "min", "max", "negative_share", "distance_to_one", "edges"):
            assert layer[name] == pytest.approx(expected.summary()[name], abs=1e-12)
        for h, head in enumerate(layer["heads"]):
            assert head["mean"] == pytest.approx(np.nanmean(expected.kappa[:, h]), abs=1e-12)
            assert head["edges"] == 6 * 17 * 16 // 2


def test_every_part_of_a_convention_is_an_option(run):
    parts = {
        "heads": "mean", "direction": "max", "length": "1/w", "measure": "uniform", "alpha": "limit",
        "denominator": "length", "exponent": 3.0, "floor": 1e-9,
    }  # fmt: skip
    options = [word for name, value in parts.items() for word in (f"--{name}", str(value))]
    result = run("curvature", "--json", *options)
    assert result.exit_code == 0, result.stderr
    answer = strict_json(result.stdout)
    assert {name: answer["convention"][name] for name in parts} == parts
    assert set(answer["convention"]) == {*parts, "name"}  # a new part needs an option
    assert answer["layers"][0]["heads"] == []


def test_a_length_that_begins_with_a_dash_is_a_value(run):
    result = run("curvature", "--json", "--convention", "hop", "--length", "-log w")
    assert json.loads(result.stdout)["convention"]["length"] == "-log w"


@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.5", "grc-0.6"])
def test_presets_are_described_in_words(run, preset):
    result = run("curvature", "--convention", preset, "--edges", "5")
    assert f"convention {preset}: S = " in result.stdout


def test_several_conventions(run, tmp_path):
    """Each is what it is alone: a table each, a list in JSON, a folder each."""
    options = ("--convention", "markov,hop", "--edges", 5)
    assert [line for line in run("curvature", *options).stdout.splitlines() if line.startswith("convention ")][
        1
    ].startswith("convention hop: S = ")
    both = json.loads(run("curvature", *options, "--json", "--out", tmp_path / "out").stdout)
    alone = [
        json.loads(run("curvature", "--convention", name, "--edges", 5, "--json").stdout) for name in ("markov", "hop")
    ]
    assert [one["layers"] for one in both] == [one["layers"] for one in alone]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["hop", "markov"]
    assert (tmp_path / "out" / "hop" / "curvature.parquet").exists()
    assert run("curvature", "--convention", "hop,hop").exit_code == 2


def test_sampling_is_seeded_and_says_how_many(run):
    one, same, other = (run("curvature", "--json", "--edges", 7, "--seed", s) for s in (1, 1, 2))
    layers = [json.loads(r.stdout)["layers"] for r in (one, same, other)]
    assert layers[0] == layers[1] != layers[2]
    assert layers[0][0]["values"] == 6 * 4 * 7
    assert layers[0][0]["edges"] == 6 * 4 * 136
    assert "168 of 3,264" in run("curvature", "--edges", 7).stdout


def test_a_tolerance_says_how_many_values_are_exact_and_how_near_the_others_are(run, attention, tmp_path):
    """Values with gaps of 0.1 were called exact."""
    np.save(tmp_path / "a.npy", attention(2, 30, 30, dtype=np.float64))
    command = ("curvature", tmp_path / "a.npy", "--edges", "60")
    layer = json.loads(run(*command, "--tolerance", "0.2", "--json").stdout)["layers"][0]
    assert 0 < layer["bounded"] < layer["values"] == 120
    exact = layer["values"] - layer["bounded"]
    said = run(*command, "--tolerance", "0.2").stdout
    assert f"120 values: {exact} exact, {layer['bounded']} within ±0.1 (--tolerance 0.2)." in said
    assert "120 values, exact: largest relative duality gap" in run(*command).stdout


def test_threads_do_not_move_values(run):
    one, two = (json.loads(run("curvature", "--json", "--threads", t).stdout) for t in (1, 2))
    assert one["layers"] == two["layers"]
    assert one["settings"]["threads"] == 1


def test_a_degenerate_distribution_has_a_warning_line(run, attention, tmp_path):
    np.save(tmp_path / "a.npy", np.full((2, 9, 9), 1 / 9))
    result = run("curvature", tmp_path / "a.npy")
    assert result.exit_code == 0
    assert "warning: layer 0: 98% of the values lie within" in result.stdout
    assert "all rows of attention are nearly equal" in result.stdout
    assert json.loads(run("curvature", tmp_path / "a.npy", "--json").stdout)["layers"][0]["degenerate"]


def test_a_mask_takes_tokens_out(run, attention, tmp_path):
    real = attention(3, 2, 6, 6, dtype=np.float64)
    padded = np.zeros((3, 2, 8, 8))
    padded[..., :6, :6] = real
    mask = np.array([True] * 6 + [False] * 2)
    np.savez(tmp_path / "padded.npz", block=padded)
    np.savez(tmp_path / "real.npz", block=real)
    np.save(tmp_path / "one.npy", mask)
    np.save(tmp_path / "each.npy", np.tile(mask, (3, 1)))
    expected = json.loads(run("curvature", tmp_path / "real.npz", "--json").stdout)["layers"][0]["mean"]
    for name in ("one", "each"):
        masked = run("curvature", tmp_path / "padded.npz", "--mask", tmp_path / f"{name}.npy", "--json")
        assert json.loads(masked.stdout)["layers"][0]["mean"] == pytest.approx(expected, abs=1e-12)


def test_edges_without_a_value_are_counted_with_the_reason(run, tmp_path):
    # causal: nothing leads from token 0 to token 1, so m_2 cannot become m_1
    np.savez(tmp_path / "a.npz", causal=np.array([[1, 0, 0], [0.5, 0.5, 0], [0.9, 0.05, 0.05]]))
    result = run("curvature", tmp_path / "a.npz", "--direction", "directed")
    assert result.exit_code == 0
    assert "1 edge: no path takes one measure to the other." in result.stdout
    assert strict_json(run("curvature", tmp_path / "a.npz", "--direction", "directed", "--json").stdout)


def test_nothing_solved_gives_null_not_nan(run, tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4))
    answer = strict_json(run("curvature", tmp_path / "a.npy", "--json").stdout)
    assert answer["layers"][0]["mean"] is None
    assert " - " in run("curvature", tmp_path / "a.npy").stdout


def test_out_holds_all_edges_and_a_histogram_per_layer(run, tmp_path):
    out = tmp_path / "new" / "folder"
    result = run("curvature", "--out", out)
    assert result.exit_code == 0, result.stderr
    names = sorted(path.name for path in out.iterdir())
    assert names == ["curvature.parquet", *(f"histogram-0{k}-{k}.png" for k in range(4))]
    table = pd.read_parquet(out / "curvature.parquet")
    assert list(table.columns) == [
        "layer",
        "sample",
        "head",
        "i",
        "j",
        "kappa",
        "w1",
        "distance",
        "gap",
        "status",
    ]
    assert len(table) == 4 * 6 * 4 * 136
    expected = ga.ollivier_ricci(load_sample())
    row = table[(table.layer == "2") & (table["sample"] == 3) & (table["head"] == 1) & (table.i == 4) & (table.j == 9)]
    assert row.kappa.item() == pytest.approx(expected.kappa[2, 3, 1, 4, 9], abs=1e-12)
    assert set(table.status) == {"solved"}
    assert (out / names[1]).read_bytes().startswith(b"\x89PNG")


def test_out_of_a_sample_and_of_averaged_heads(run, tmp_path):
    import pyarrow.parquet as pq

    assert run("curvature", "--out", tmp_path, "--edges", 5, "--heads", "mean").exit_code == 0
    table = pd.read_parquet(tmp_path / "curvature.parquet")
    assert list(table.columns[:4]) == ["layer", "sample", "i", "j"]
    assert len(table) == 4 * 6 * 5
    about = json.loads(pq.read_schema(tmp_path / "curvature.parquet").metadata[b"geoattn"])
    assert about["convention"]["heads"] == "mean"
    assert about["settings"]["edges"] == 5


def test_names_from_a_file_become_neither_paths_nor_markup(run, attention, tmp_path):
    from safetensors.numpy import save_file

    names = ["../../escape", "[bold]x[/bold]", "a\x1b[31mb", "$\\alpha$"]
    save_file({name: attention(2, 5, 5, seed=k) for k, name in enumerate(names)}, tmp_path / "a.safetensors")
    result = run("curvature", tmp_path / "a.safetensors", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "[bold]x[/bold]" in result.stdout
    assert len(list((tmp_path / "out").iterdir())) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "out"]
