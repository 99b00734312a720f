"""How files become layers: the three formats, their axes, and files that are not what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

import geoattn as ga
from geoattn.datasets.attention_files import open_attention
from geoattn.datasets.sample import SAMPLE_PATH


def means(result) -> dict[str, float]:
    assert result.exit_code == 0, result.stderr
    return {layer["name"]: layer["mean"] for layer in json.loads(result.stdout)["layers"]}


@pytest.mark.parametrize(
    ("shape", "layers", "samples", "heads"),
    [((5, 5), 1, 1, 1), ((3, 5, 5), 1, 1, 3), ((2, 3, 5, 5), 1, 2, 3), ((2, 4, 3, 5, 5), 2, 4, 3)],
)
def test_npy_holds_all_layers(run, attention, tmp_path, shape, layers, samples, heads):
    array = attention(*shape)
    np.save(tmp_path / "a.npy", array)
    opened = open_attention(tmp_path / "a.npy")
    assert [(layer.samples, layer.heads) for layer in opened] == [(samples, heads)] * layers
    found = means(run("curvature", tmp_path / "a.npy", "--json"))
    full = array.reshape(layers, samples, heads, 5, 5)
    assert found == {str(k): pytest.approx(ga.ollivier_ricci(full[k]).values().mean()) for k in range(layers)}


def test_npz_has_one_layer_per_array(run, attention, tmp_path):
    arrays = {"block.0": attention(4, 3, 5, 5), "block.1": attention(4, 3, 7, 7, seed=1)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = means(run("curvature", tmp_path / "a.npz", "--json"))
    assert found == {k: pytest.approx(ga.ollivier_ricci(a).values().mean()) for k, a in arrays.items()}
    assert list(means(run("curvature", tmp_path / "a.npz", "--json", "--key", "block.1"))) == ["block.1"]
    assert "2 layers of different sizes" in run("curvature", tmp_path / "a.npz").stdout


def test_axes_can_be_named(run, attention, tmp_path):
    array = attention(4, 3, 5, 5)
    np.save(tmp_path / "a.npy", array)
    one = means(run("curvature", tmp_path / "a.npy", "--axes", "layer,head", "--json"))
    assert one == {str(k): pytest.approx(ga.ollivier_ricci(array[k]).values().mean()) for k in range(4)}
    turned = open_attention(tmp_path / "a.npy", axes=["head", "layer"])
    assert [layer.name for layer in turned] == ["0", "1", "2"]
    assert np.array_equal(turned[1].maps(), array[None, :, 1])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_safetensors_in_every_float(run, attention, tmp_path, dtype):
    import torch
    from safetensors.torch import save_file

    tensor = torch.from_numpy(attention(2, 3, 9, 9, dtype=np.float64)).to(getattr(torch, dtype))
    save_file({"attn": tensor, "bias": torch.zeros(9), "embed": torch.zeros(4, 9)}, tmp_path / "a.safetensors")
    found = means(run("curvature", tmp_path / "a.safetensors", "--json"))
    assert found == {"attn": pytest.approx(ga.ollivier_ricci(tensor).values().mean(), abs=1e-12)}


def test_other_byte_orders_and_suffixes_in_capitals(run, attention, tmp_path):
    np.save(tmp_path / "a.npy", attention(5, 5).astype(">f4"))
    (tmp_path / "a.npy").rename(tmp_path / "a.NPY")
    assert run("curvature", tmp_path / "a.NPY").exit_code == 0


def damaged(path, content: bytes, keep: float) -> None:
    path.write_bytes(content[: int(len(content) * keep)])


def make_bad(kind: str, folder, attention):
    """A file, and words that its error must hold."""
    array = attention(2, 3, 9, 9)
    name, _, problem = kind.partition(" ")
    path = folder / f"a.{name}"
    if problem == "missing":
        return path, "no such file"
    if problem == "directory":
        path.mkdir()
        return path, "is a directory"
    if problem == "text":
        path.write_text("layer,head,weight\n0,0,0.5\n" * 20)
        return path, "is not a" if name != "safetensors" else "damaged, truncated, or not a .safetensors file"
    if problem == "nothing":
        path.write_bytes(b"")
        return path, "empty file" if name != "safetensors" else "damaged, truncated"
    if problem == "objects":
        with open(path, "wb") as file:
            objects = np.array([{"a": 1}, None], dtype=object)
            np.save(file, objects) if name == "npy" else np.savez(file, x=objects)
        return path, "holds Python objects, which geoattn does not load"
    if name == "safetensors":
        from safetensors.numpy import save

        whole = save({"attn": array})
    else:
        from io import BytesIO

        file = BytesIO()
        np.save(file, array) if name == "npy" else np.savez_compressed(file, attn=array)
        whole = file.getvalue()
    if problem == "truncated":
        damaged(path, whole, 0.6)
    if problem == "header":
        damaged(path, whole, 0.02)
    if problem == "flipped":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes(b ^ 0xFF for b in whole[middle : middle + 50]) + whole[middle + 50 :])
    return path, "damaged, truncated, or not a"


BAD_FILES = [
    *(
        f"{name} {problem}"
        for name in ("npy", "npz", "safetensors")
        for problem in ("missing", "directory", "text", "nothing", "truncated", "header")
    ),
    "npz flipped",
    "npy objects",
    "npz objects",
]


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_not_what_it_says(run, attention, tmp_path, kind):
    path, words = make_bad(kind, tmp_path, attention)
    result = run("curvature", path, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.exception
    assert result.stdout == ""
    assert result.stderr.startswith("geoattn: error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert str(path) in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("write", "options", "words"),
    [
        ("a.pt", [], "expected a file whose name ends in .npy, .npz, .safetensors; got '.pt'"),
        ("a.npz", ["--key", "b"], "has no array 'b'; it has x"),
        ("a.npy", ["--key", "b"], "holds one array without a name"),
        ("a.npy", ["--axes", "layer"], "axes must name each of the 2 axes"),
        ("a.npy", ["--axes", "head,head"], "axes must name each of the 2 axes"),
        ("a.npy", ["--axes", "batch,head"], "each one of layer, sample, head; got batch, head"),
        ("a.npy", ["--mask", "nowhere.npy"], "--mask: no such file: nowhere.npy"),
        ("a.npy", ["--mask", str(SAMPLE_PATH)], "mask"),
    ],
)
def test_options_that_do_not_fit_the_file(run, attention, tmp_path, write, options, words):
    with open(tmp_path / write, "wb") as file:
        np.savez(file, x=attention(2, 3, 5, 5)) if write == "a.npz" else np.save(file, attention(2, 3, 5, 5))
    result = run("curvature", tmp_path / write, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_a_file_without_attention(run, tmp_path):
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros((3, 4), np.float32)}, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz")
    assert "no tensor has shape (..., n, n); got weight (3, 4)" in run("curvature", tmp_path / "a.safetensors").stderr
    assert "holds no array" in run("curvature", tmp_path / "a.npz").stderr
