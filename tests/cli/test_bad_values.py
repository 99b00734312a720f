"""Bad attention at the command line: one line that names the place, code 2, and nothing written."""

from __future__ import annotations

import numpy as np
import pytest


def spoil(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[1, 2, 3, 4] = value
    return array


# what to write, words of the line
BAD = {
    "nan": (lambda a: spoil(a, np.nan), "attention must be finite; got nan at row 3, column 4 of layer 1"),
    "inf": (lambda a: spoil(a, np.inf), "attention must be finite; got inf at row 3, column 4 of layer 1"),
    "negative": (lambda a: spoil(a, -0.25), "must not be negative; got -0.25 at row 3, column 4 of layer 1"),
    "rows": (lambda a: spoil(a, 0.9), "Normalise with attention / attention.sum(-1, keepdims=True)"),
    "logits": (lambda a: np.log(a), "Pass attention after the softmax, not logits"),
    "not square": (lambda a: a[..., :4], "attention must have shape (..., n, n); got (2, 3, 6, 4)"),
    "vector": (lambda a: a[0, 0, 0], "attention must have shape (..., n, n); got (6,)"),
    "number": (lambda a: np.float32(0.5), "attention must have shape (..., n, n); got ()"),
    "no graph": (lambda a: a[:0], "the array is empty"),
    "no token": (lambda a: a[..., :0, :0], "the array is empty"),
    "one token": (lambda a: np.ones((2, 3, 1, 1)), "at least two tokens; got shape (2, 3, 1, 1)"),
    "integers": (lambda a: (a > 0.1).astype(np.int64), "floating dtype; got int64"),
    "booleans": (lambda a: a > 0.1, "floating dtype; got bool"),
    "complex": (lambda a: a.astype(np.complex64), "floating dtype; got complex64"),
    "strings": (lambda a: np.array([["a", "b"], ["c", "d"]]), "floating dtype; got str"),
    "six axes": (lambda a: a[None, None], "at most three axes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_bad_attention(run, attention, tmp_path, kind, suffix):
    change, words = BAD[kind]
    with open(tmp_path / f"a.{suffix}", "wb") as file:
        array = change(attention(2, 3, 6, 6, dtype=np.float64))
        np.save(file, array) if suffix == "npy" else np.savez(file, first=attention(6, 6), second=array)
    axes = ["--axes", "layer,head"] if array.ndim == 4 and kind != "one token" else []
    if axes and suffix == "npz":  # every array of the file has these axes
        with open(tmp_path / "a.npz", "wb") as file:
            np.savez(file, second=array)
    result = run("curvature", tmp_path / f"a.{suffix}", "--out", tmp_path / "out", *axes)
    assert result.exit_code == 2, result.exception
    assert result.stdout == ""
    assert result.stderr.startswith(f"geoattn: error: {tmp_path}/a.{suffix}")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_place_is_named_by_layer_sample_and_head(run, attention, tmp_path):
    second = attention(2, 3, 6, 6)
    second[1, 2, 0] *= 1.5
    np.savez(tmp_path / "a.npz", **{"blocks.0": attention(2, 3, 6, 6), "blocks.1": second})
    result = run("curvature", tmp_path / "a.npz")
    assert "row 0 of layer blocks.1, sample 1, head 2 sums to 1.5" in result.stderr
    assert "index" not in result.stderr


def test_all_layers_are_checked_before_any_is_solved(run, attention, tmp_path, monkeypatch):
    solved = []
    monkeypatch.setattr("geoattn.profiles.map_layers.ollivier_ricci", lambda *args, **_: solved.append(args))
    bad = attention(6, 6)
    bad[0, 0] = np.nan
    np.savez(tmp_path / "a.npz", first=attention(6, 6), second=bad)
    assert run("curvature", tmp_path / "a.npz").exit_code == 2
    assert solved == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--convention", "ollivier"],
            "unknown convention 'ollivier': expected one of markov, hop, grc-0.6, grc-0.5",
        ),
        (["--alpha", "1"], "Convention: alpha must be a number with 0 <= alpha < 1"),
        (["--alpha", "half"], "--alpha must be a number with 0 <= alpha < 1, or limit; got 'half'"),
        (["--exponent", "-1"], "Convention: exponent must be a number with exponent > 0"),
        (["--floor", "nan"], "Convention: floor"),
        (["--edges", "0"], "--edges must be all or a positive number of edges per map; got '0'"),
        (["--edges", "-3"], "--edges must be all"),
        (["--edges", "some"], "--edges must be all"),
        (["--edges", "2.5"], "--edges must be all"),
        (["--threads", "0"], "--threads must be a number from 1 to 1024; got 0"),
        (["--threads", "9" * 12], "--threads must be a number from 1 to 1024"),
        (["--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_bad_options(run, options, words):
    result = run("curvature", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_bad_choices(process):
    # in a process of its own: here the type checker of the tests would speak first
    done = process("curvature", "--length", "w^2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "geoattn: error: Convention: length must be one of w, 1/w, -log w, 1-w, hop; got 'w^2'.\n"


def test_a_mask_that_does_not_fit(run, attention, tmp_path):
    np.save(tmp_path / "a.npy", attention(3, 6, 6))
    np.save(tmp_path / "mask.npy", np.ones(5, bool))
    result = run("curvature", tmp_path / "a.npy", "--mask", tmp_path / "mask.npy")
    assert result.exit_code == 2
    assert "mask must have shape (..., 6)" in result.stderr


def test_averaging_needs_heads(run, attention, tmp_path):
    np.save(tmp_path / "a.npy", attention(6, 6))
    assert "no axis of heads" in run("curvature", tmp_path / "a.npy", "--heads", "mean").stderr
