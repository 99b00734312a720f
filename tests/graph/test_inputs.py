"""What comes in: arrays, tensors, networkx graphs, masks. What is refused is in tests/test_bad_input.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn import Convention
from geoattn.graph.inputs import read_weights
from tests.graphs import draw

pytestmark = pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")

MARKOV, GRC = Convention.of("markov"), Convention.of("grc-0.6")


def rows_of(attention: object, convention: Convention = MARKOV, mask: object = None) -> np.ndarray:
    weights = read_weights(attention, convention, mask)
    return weights.chunk(0, len(weights.flat))


# ---- forms of the same numbers


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_rows_are_a_copy_in_c_order(kind: Callable[[np.ndarray], Any]):
    """A loss keeps them until its backward, and the caller may write to the attention before that."""
    a = draw("softmax-1", 6, 2)
    for form in (kind(a), kind(a.swapaxes(-1, -2))):
        rows = rows_of(form, GRC)
        assert rows.flags.c_contiguous
        assert not np.shares_memory(rows, np.asarray(form))


def test_every_form_gives_the_same_numbers():
    a = draw("softmax-1", 6, 1)[0]
    wide = np.zeros((6, 12))
    wide[:, ::2] = a
    forms = {
        "list": a.tolist(),
        "Fortran order": np.asfortranarray(a),
        "strided": wide[:, ::2],
        "transposed twice": a.T.copy().T,
        "big-endian": a.astype(">f8"),
        "long double": a.astype(np.longdouble),
        "read-only": np.frombuffer(a.tobytes()).reshape(6, 6),
        "torch": torch.from_numpy(a.copy()),
        "torch, strided": torch.from_numpy(wide)[:, ::2],
        "torch, part of a graph": torch.from_numpy(a.copy()).requires_grad_() * 1,
        "torch parameter": torch.nn.Parameter(torch.from_numpy(a.copy())),
    }
    expected = ga.ollivier_ricci(a).kappa
    for name, form in forms.items():
        np.testing.assert_array_equal(ga.ollivier_ricci(form).kappa, expected, err_msg=name)


@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "float16"), (np.float32, "float32"), (np.float64, "float64")])
def test_rows_are_renormalised_in_float64(dtype, name):
    a = draw("softmax-1", 7, 2).astype(dtype)
    weights = read_weights(a, MARKOV)
    assert weights.dtype == name
    rows = weights.chunk(0, 2)
    assert rows.dtype == np.float64
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=0, atol=4e-16)
    np.testing.assert_allclose(rows, a.astype(float) / a.astype(float).sum(-1, keepdims=True), rtol=1e-15)


def test_general_weights_are_taken_as_they_are():
    a = draw("softmax-1", 7, 1).astype(np.float16)
    np.testing.assert_array_equal(rows_of(a, GRC), a.astype(np.float64))
    np.testing.assert_array_equal(rows_of(5 * a, Convention(length="w", measure="uniform")), (5 * a).astype(np.float64))


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(torch.float16, 8 * 2.0**-10), (torch.bfloat16, 8 * 2.0**-7), (torch.float32, 1e-5), (torch.float64, 1e-6)],
)
def test_how_far_a_row_may_be_from_one(dtype, limit):
    """Rounding of the dtype is forgiven, more is not."""
    for factor, good in (
        (1 + 0.5 * limit, True),
        (1 - 0.5 * limit, True),
        (1 + 1.5 * limit, False),
        (1 - 1.5 * limit, False),
    ):
        a = torch.zeros(2, 2, dtype=dtype)
        a[0, 0], a[1] = factor, 0.5
        if good:
            assert float(rows_of(a)[0, 0, 0]) == 1
        else:
            with pytest.raises(ga.GeoattnError, match="row 0 of the graph sums to"):
                rows_of(a)


def test_rows_under_the_mask_need_not_sum_to_one():
    a = draw("softmax-1", 5, 1)[0]
    a[3:] = 7.0
    a[:3, 3:] = 0
    a[:3] /= a[:3].sum(-1, keepdims=True)
    rows = rows_of(a, mask=[True, True, True, False, False])[0]
    assert (rows[3:] == 0).all()
    assert (rows[:, 3:] == 0).all()
    np.testing.assert_allclose(rows[:3].sum(-1), 1)


def test_attention_to_padding_is_an_error():
    """Mass on a masked token: its row no longer sums to one."""
    with pytest.raises(ga.GeoattnError, match=r"row 0 of the graph sums to 0\.75"):
        rows_of(np.full((4, 4), 0.25), mask=[True, True, True, False])
    assert np.isfinite(
        ga.ollivier_ricci(np.full((4, 4), 0.25), "grc-0.6", mask=[True, True, True, False]).values()
    ).all()


# ---- heads


def test_heads_are_averaged_before_the_graph_is_built():
    a = draw("softmax-1", 5, 6).reshape(2, 3, 5, 5)
    weights = read_weights(a, Convention(heads="mean"))
    assert weights.shape == (2,)
    np.testing.assert_allclose(weights.chunk(0, 6), a.mean(1), rtol=1e-14)
    with pytest.raises(ga.GeoattnError, match="needs an axis of heads"):
        read_weights(a[0, 0], Convention(heads="mean"))


def test_heads_must_have_the_same_tokens_to_be_averaged():
    a = draw("softmax-1", 5, 2)
    mask = np.ones((2, 5), bool)
    read_weights(a, Convention(heads="mean"), mask)
    mask[1, 4] = False
    with pytest.raises(ga.GeoattnError, match="differs between heads"):
        read_weights(a, Convention(heads="mean"), mask)


# ---- masks


@pytest.mark.parametrize(
    "kind", [list, np.asarray, torch.tensor, lambda m: np.asarray(m, np.int64), lambda m: torch.tensor(m).int()]
)
def test_forms_of_a_mask(kind):
    a = draw("block_diagonal", 6, 1)[0]
    mask = [True, True, True, False, False, False]
    np.testing.assert_array_equal(read_weights(a, MARKOV, kind(mask)).valid, [mask])


def test_masks_spread_over_the_axes_they_lack():
    a = draw("softmax-1", 4, 6).reshape(2, 3, 4, 4)
    per_sample = np.array([[True] * 4, [True, True, False, False]])
    np.testing.assert_array_equal(read_weights(a, GRC, per_sample).valid, np.repeat(per_sample, 3, axis=0))
    np.testing.assert_array_equal(read_weights(a, GRC, per_sample[1]).valid, np.repeat(per_sample[1:], 6, axis=0))
    per_map = np.random.default_rng(0).random((2, 3, 4)) < 0.5
    np.testing.assert_array_equal(read_weights(a, GRC, per_map).valid, per_map.reshape(6, 4))
    keep_dims = per_sample[:, None]
    np.testing.assert_array_equal(read_weights(a, GRC, keep_dims).valid, np.repeat(per_sample, 3, axis=0))


@pytest.mark.parametrize("mask", [[False] * 5, [True] + [False] * 4])
def test_nothing_or_one_token_left(mask):
    """No edges: an empty result, not an error."""
    a = draw("softmax-1", 5, 1)[0]
    for edges in ("all", 3):
        result = ga.ollivier_ricci(a, "grc-0.6", mask=mask, edges=edges)
        assert len(result.values()) == 0
        assert result.edges == 0
        assert result.max_gap == 0
        assert np.isnan(result.summary()["mean"])
        assert len(result.to_pandas()) == 0
        assert not result.degenerate


# ---- networkx


def test_networkx_weights_and_order():
    graph = nx.Graph()
    graph.add_nodes_from("dcab")
    graph.add_edge("a", "b", weight=0.25)
    graph.add_edge("c", "d")  # no weight: 1
    graph.add_edge("a", "a", weight=9.0)  # a self loop is not an edge
    result = ga.ollivier_ricci(graph, "grc-0.6")
    table = result.to_pandas().set_index(["source", "target"])
    assert table.distance.to_dict() == {("a", "b"): 0.25, ("d", "c"): 1.0}
    assert result.edges == 2


def test_networkx_directed():
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    convention = Convention(direction="directed", length="hop", measure="uniform")
    result = ga.ollivier_ricci(graph, convention)
    assert result.edges == 3
    assert result.to_dict() == {(0, 1): 0.0, (1, 2): 0.0, (2, 0): 0.0}


@pytest.mark.parametrize("weight", ["heavy", None, [1.0], 1j])
def test_networkx_weights_must_be_numbers(weight):
    graph = nx.path_graph(3)
    graph[0][1]["weight"] = weight
    with pytest.raises(ga.GeoattnError, match=r"weight|finite"):  # networkx makes NaN of None
        ga.ollivier_ricci(graph, "grc-0.6")


def test_networkx_rows_for_markov():
    """The weights of a graph are divided by their row sums: its random walk."""
    graph = nx.cycle_graph(5)
    walk = nx.to_numpy_array(graph) / 2
    found, expected = ga.ollivier_ricci(graph, "markov"), ga.ollivier_ricci(walk, "markov")
    np.testing.assert_allclose(found.kappa, expected.column("kappa"), atol=1e-14)
    assert found.settings["rows"] == "divided by their sums"
    nx.set_edge_attributes(graph, 0.5, "weight")
    np.testing.assert_allclose(ga.ollivier_ricci(graph, "hop").values(), 0, atol=1e-15)


# ---- what is no dense array of numbers


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        (np.ma.masked_array(np.eye(3), mask=np.eye(3)), "masked array"),
        (torch.empty(3, 3, device="meta"), "meta"),
        ("attention.npy", "Read the file first"),
        ({"a": 1}, "floating dtype"),
    ],
)
def test_other_containers_are_refused(attention, words):
    with pytest.raises(ga.GeoattnError, match=words):
        ga.ollivier_ricci(attention)


# ---- lengths


def test_weights_that_overflow_a_length():
    weights = np.full((3, 3), 1e-310)
    with pytest.raises(ga.GeoattnError, match="1/w"):
        ga.ollivier_ricci(weights, Convention(length="1/w", measure="uniform"))


def test_weights_above_one_by_rounding_are_forgiven():
    """A normalised weight may be 1 + 1e-16: distance 0, not a negative length."""
    one = 1 + 2.0**-52
    weights = np.array([[0, one, 0.5], [one, 0, 0.5], [0.5, 0.5, 0]])
    for length in ("-log w", "1-w"):
        result = ga.ollivier_ricci(weights, Convention(length=length, measure="uniform"))
        assert result.distance[0, 1] == 0
        assert np.isfinite(result.kappa[0, 2])
        with pytest.raises(ga.GeoattnError, match="at most 1"):
            ga.ollivier_ricci(weights * 1.001, Convention(length=length, measure="uniform"))


def test_an_edge_is_a_positive_weight():
    """0 is no edge; -0.0 is no edge either; the smallest normal number is one."""
    tiny = np.finfo(float).tiny
    weights = np.array([[0, tiny, -0.0], [tiny, 0, 0.5], [-0.0, 0.5, 0]])
    result = ga.ollivier_ricci(weights, Convention(length="-log w", measure="uniform"))
    assert result.edges == 2
    assert result.distance[0, 1] == pytest.approx(-np.log(tiny))
    assert result.status[0, 2] == ga.curvature.Status.NO_EDGE
