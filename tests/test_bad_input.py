"""Bad input at the Python level: a GeoattnError that says what came, where, and what to do."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import geoattn as ga

PRESETS = ["markov", "hop", "grc-0.5", "grc-0.6"]


def attention(*shape: int) -> np.ndarray:
    weights = np.exp(2.0 * np.random.default_rng(0).standard_normal(shape))
    return weights / weights.sum(axis=-1, keepdims=True)


def spoilt(value: float, shape: tuple[int, ...] = (2, 3, 6, 6)) -> np.ndarray:
    """Attention whose last map has one wrong entry, in row 3 and column 4."""
    array = attention(*shape)
    array[*(k - 1 for k in shape[:-2]), 3, 4] = value
    return array


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


# --- values: the place is named

PLACES = {
    (6, 6): "the graph",
    (3, 6, 6): "graph 2",
    (2, 3, 6, 6): "sample 1, head 2",
    (2, 4, 3, 6, 6): "layer 1, sample 3, head 2",
    (2, 2, 2, 3, 6, 6): "graph (1, 1, 1, 2)",
}


@pytest.mark.parametrize("convention", PRESETS)
@pytest.mark.parametrize("shape", PLACES, ids=str)
@pytest.mark.parametrize(("value", "words"), [(np.nan, "got nan"), (np.inf, "got inf"), (-0.5, "got -0.5")])
def test_bad_entries(convention, shape, value, words):
    with pytest.raises(ga.GeoattnError) as error:
        ga.ollivier_ricci(spoilt(value, shape), convention)
    assert f"{words} at row 3, column 4 of {PLACES[shape]}" in one_line(error)


@pytest.mark.parametrize("kind", ["numpy", "torch", "sampled", "loss", "float16", "bfloat16"])
def test_the_place_is_the_same_on_every_way_in(kind):
    array = spoilt(np.nan)
    tensor = torch.from_numpy(array)
    ways: dict[str, Any] = {
        "numpy": lambda: ga.ollivier_ricci(array),
        "torch": lambda: ga.ollivier_ricci(tensor),
        "sampled": lambda: ga.ollivier_ricci(array, edges=1),
        "loss": lambda: ga.curvature_loss(tensor),
        "float16": lambda: ga.ollivier_ricci(array.astype(np.float16)),
        "bfloat16": lambda: ga.ollivier_ricci(tensor.bfloat16()),
    }
    with pytest.raises(ga.GeoattnError, match="row 3, column 4 of sample 1, head 2"):
        ways[kind]()


def test_the_place_is_right_beyond_the_first_chunk(monkeypatch):
    monkeypatch.setattr("geoattn.curvature.ollivier._CHUNK_BYTES", 6 * 6 * 8)
    with pytest.raises(ga.GeoattnError, match="row 3, column 4 of sample 1, head 2"):
        ga.ollivier_ricci(spoilt(np.nan))


@pytest.mark.parametrize("convention", ["markov", "hop"])
@pytest.mark.parametrize("factor", [1.001, 0.5, 0.0])
def test_rows_that_do_not_sum_to_one(convention, factor):
    array = attention(2, 3, 6, 6)
    array[1, 2, 4] *= factor
    with pytest.raises(ga.GeoattnError) as error:
        ga.ollivier_ricci(array, convention)
    text = one_line(error)
    assert f"row 4 of sample 1, head 2 (index (1, 2)) sums to {factor:.9g}" in text
    assert "attention / attention.sum(-1, keepdims=True)" in text
    # and the advice is good
    normal = array / np.where(array.sum(-1, keepdims=True) > 0, array.sum(-1, keepdims=True), 1.0)
    if factor:
        assert np.isfinite(ga.ollivier_ricci(normal, convention).kappa[1, 2, 4, 0])


def test_rows_are_judged_in_their_own_precision():
    array = attention(2, 3, 40, 40)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        rounded = torch.from_numpy(array).to(dtype)
        assert len(ga.ollivier_ricci(rounded).values()) == 6 * 780
        with pytest.raises(ga.GeoattnError, match=f"{str(dtype)[6:]}.* sums to 1\\.2"):
            ga.ollivier_ricci(rounded * 1.2)


def test_general_weights_need_no_rows():
    weights = attention(2, 3, 6, 6) * 5
    assert np.isfinite(ga.ollivier_ricci(weights, "grc-0.6").values()).all()


def test_logits_are_recognised():
    with pytest.raises(ga.GeoattnError, match="Pass attention after the softmax, not logits"):
        ga.ollivier_ricci(np.log(attention(4, 4)))


def test_weights_too_large_for_the_length():
    rules = ga.Convention(measure="uniform")
    with pytest.raises(ga.GeoattnError, match="needs weights of at most 1; the largest is 2"):
        ga.ollivier_ricci(np.full((4, 4), 2.0), rules)


# --- shapes and dtypes


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 3, 6, 4)), "must have shape (..., n, n); got (2, 3, 6, 4)"),
        (np.zeros(6), "must have shape (..., n, n); got (6,)"),
        (np.float64(0.5), "must have shape (..., n, n); got ()"),
        (np.zeros((0, 4, 4)), "is empty: shape (0, 4, 4) holds no graph"),
        (np.zeros((2, 0, 4, 4)), "is empty"),
        (np.zeros((0, 0)), "at least two tokens; got shape (0, 0)"),
        (np.ones((3, 1, 1)), "at least two tokens; got shape (3, 1, 1)"),
        (np.eye(4, dtype=np.int64), "floating dtype; got int64. Convert with .astype(float)"),
        (np.eye(4, dtype=bool), "floating dtype; got bool"),
        (np.eye(4, dtype=np.complex128), "floating dtype; got complex128"),
        (np.array([["a", "b"], ["c", "d"]]), "floating dtype; got <U1"),
        (np.array([[None, None], [None, None]]), "floating dtype; got object"),
        (None, "floating dtype; got object"),
        ([[1.0, 0.0], [1.0]], "shape (..., n, n)"),
        (torch.eye(4, dtype=torch.int32), "floating-point tensor; got torch.int32. Convert with .float()"),
        (torch.eye(4, dtype=torch.complex64), "floating-point tensor; got torch.complex64"),
        (torch.zeros(2, 3), "must have shape (..., n, n); got (2, 3)"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
@pytest.mark.parametrize("convention", ["markov", "grc-0.6"])
def test_shapes_and_dtypes(array, words, convention):
    with pytest.raises(ga.GeoattnError) as error:
        ga.ollivier_ricci(array, convention)
    assert words in one_line(error)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones(5, bool), "mask must have shape (..., 6)"),
        (np.ones((3, 6), bool), "mask of shape (3, 6) does not fit attention of shape (2, 3, 6, 6)"),
        (np.ones((1, 2, 3, 6), bool), "mask must have shape (..., 6)"),
        (np.ones(6), "mask must be boolean (True = a real token) or 0/1 integers; got dtype float64"),
        (np.full(6, 2), "mask must be boolean"),
    ],
)
def test_masks(mask, words):
    with pytest.raises(ga.GeoattnError, match=re.escape(words)):
        ga.ollivier_ricci(attention(2, 3, 6, 6), mask=mask)


def test_bad_entries_under_the_mask_do_not_matter():
    array = np.full((2, 3, 6, 6), np.nan)
    array[..., :4, :4] = attention(2, 3, 4, 4)
    masked = ga.ollivier_ricci(array, mask=np.arange(6) < 4)
    assert np.array_equal(masked.values(), ga.ollivier_ricci(array[..., :4, :4]).values())


# --- settings


@pytest.mark.parametrize("name", ["ollivier", "", "Markov", "grc"])
def test_unknown_conventions(name):
    with pytest.raises(
        ga.GeoattnError, match=r"unknown convention .*: expected one of markov, hop, grc-0\.6, grc-0\.5"
    ):
        ga.ollivier_ricci(attention(4, 4), name)


@pytest.mark.parametrize("edges", [0, -1, True])
def test_edges(edges):
    for function, array in (
        (ga.ollivier_ricci, attention(4, 4)),
        (ga.curvature_loss, torch.from_numpy(attention(4, 4))),
    ):
        with pytest.raises(ga.GeoattnError, match="edges must be 'all' or"):
            function(array, edges=edges)


@pytest.mark.parametrize("threads", [0, -1, True])
def test_threads(threads):
    with pytest.raises(ga.GeoattnError, match="threads must be"):
        ga.ollivier_ricci(attention(4, 4), threads=threads)


@pytest.mark.parametrize(
    "parts",
    [
        {"alpha": 1.0},
        {"alpha": -0.1},
        {"alpha": float("nan")},
        {"exponent": 0.0},
        {"floor": -1.0},
        {"colour": 1},
    ],
)
def test_parts_of_a_convention(parts):
    with pytest.raises(ga.GeoattnError, match="Convention"):
        ga.Convention().but(**parts)


def test_the_loss_needs_an_edge():
    with pytest.raises(ga.GeoattnError, match="no edge has a value"):
        ga.curvature_loss(torch.eye(4))


# --- graphs


def weighted(weight: float) -> nx.Graph:
    graph = nx.path_graph(4)
    graph[1][2]["weight"] = weight
    return graph


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.MultiGraph([(0, 1), (0, 1)]), "must not be a multigraph"),
        (nx.DiGraph([(0, 1), (1, 2)]), "graph is directed: use a convention that keeps direction, such as"),
        (nx.Graph(), "at least two nodes"),
        (weighted(float("nan")), "edge (1, 2) has nan"),
        (weighted(-2.0), "edge (1, 2) has -2 (negative)"),
    ],
)
def test_networkx(graph, words):
    with pytest.raises(ga.GeoattnError, match=re.escape(words)):
        ga.ollivier_ricci(graph, "grc-0.6")


# --- files


def test_saving_to_a_full_or_forbidden_place_leaves_nothing(tmp_path, monkeypatch):
    result = ga.ollivier_ricci(attention(4, 4))
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ga.GeoattnError, match="cannot write"):
        result.save(tmp_path / "file" / "a.npz")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ga.GeoattnError, match=r"No space left on device\. Nothing was left behind"):
        result.save(tmp_path / "a.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_loading_what_is_no_result(tmp_path):
    with pytest.raises(ga.GeoattnError, match="no such file"):
        ga.curvature.Curvature.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("not a result")
    with pytest.raises(ga.GeoattnError, match="is not a curvature file"):
        ga.curvature.Curvature.load(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", meta=np.array([{}], dtype=object))
    with pytest.raises(ga.GeoattnError, match="is not a curvature file"):
        ga.curvature.Curvature.load(tmp_path / "objects.npz")


# numpy leaves the file of a broken archive to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_loading_a_truncated_result(tmp_path):
    ga.ollivier_ricci(attention(4, 4)).save(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    for share in (0.1, 0.5, 0.95):
        (tmp_path / "cut.npz").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ga.GeoattnError, match="is not a curvature file"):
            ga.curvature.Curvature.load(tmp_path / "cut.npz")
