"""A call of a record goes into every function of maps as it is, with its mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, T5Config, T5Model

import geoattn as ga


@pytest.fixture(scope="module")
def record() -> ga.attention.Record:
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
        )
    ).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 3, 0, 0]])
    with ga.capture(model) as record, torch.no_grad():
        model(input_ids=ids, attention_mask=(ids != 0).long())
    return record


def test_a_call_is_its_maps_with_its_mask(record: ga.attention.Record) -> None:
    found = ga.ollivier_ricci(record[1])
    expected = ga.ollivier_ricci(record[1].attention(), mask=record[1].valid)
    assert np.array_equal(found.kappa, expected.kappa, equal_nan=True)
    assert len(found.values()) == 2 * (10 + 3)
    assert list(found.to_pandas().columns[:4]) == ["sample", "head", "i", "j"]


def test_a_record_and_cross_attention_are_refused_in_words(record: ga.attention.Record) -> None:
    with pytest.raises(ga.GeoattnError, match=r"give one of its calls: record\[0\] is 'encoder\.layer\.0"):
        ga.ollivier_ricci(record)
    config = T5Config(vocab_size=30, d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=16)
    model = T5Model(config).eval()
    with ga.capture(model) as crossed, torch.no_grad():
        model(input_ids=torch.ones(1, 4, dtype=torch.long), decoder_input_ids=torch.ones(1, 3, dtype=torch.long))
    cross = next(call for call in crossed if call.kind == "cross")
    with pytest.raises(ga.GeoattnError, match="cross-attention of 3 queries on 4 keys"):
        ga.ollivier_ricci(cross)


FUNCTIONS = {
    "spectrum": lambda maps, **mask: ga.spectrum(maps, **mask).second,
    "forman": lambda maps, **mask: ga.forman_ricci(maps, **mask).kappa,
    "bounds": lambda maps, **mask: ga.curvature_bounds(maps, **mask).lower,
    "sinkhorn": lambda maps, **mask: ga.sinkhorn_ricci(maps, **mask).kappa,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_maps_takes_a_call(record: ga.attention.Record, name: str) -> None:
    function, call = FUNCTIONS[name], record[1]
    expected = function(call.attention(), mask=call.valid)
    assert np.array_equal(np.asarray(function(call)), np.asarray(expected), equal_nan=True)


def test_the_loss_of_a_call_has_its_gradient() -> None:
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    with ga.capture(model) as record:
        model(x, x, x, need_weights=False)
    ga.curvature_loss(record[0]).backward()
    assert model.in_proj_weight.grad.abs().max() > 0


def test_what_takes_one_map_says_how_to_get_it(record: ga.attention.Record) -> None:
    with pytest.raises(ga.GeoattnError, match="one map at a time: give call"):
        ga.spectral.spectral_links(record[0])


def test_a_table_of_edges_is_told_from_a_matrix() -> None:
    import pandas as pd

    with pytest.raises(ga.GeoattnError, match="from_pandas_edgelist"):
        ga.ollivier_ricci(pd.DataFrame({"source": ["a"], "target": ["b"]}))
    matrix = pd.DataFrame([[0.5, 0.5], [0.5, 0.5]])
    assert ga.ollivier_ricci(matrix).values().tolist() == [1.0]


@pytest.mark.parametrize("pairs", [[("a", "b")], [("a", "b"), ("b", "c")], [["a", "b", 0.5]], [(0, 1), (1, 2), (2, 0)]])
def test_a_list_of_pairs_is_answered_with_the_way_to_make_a_graph_of_it(pairs: list) -> None:
    """It was attention without a floating dtype."""
    with pytest.raises(ga.GeoattnError, match=rf"got a list of {len(pairs)} pairs.*networkx\.Graph\(pairs\)"):
        ga.ollivier_ricci(pairs, "hop")


def test_the_name_of_a_file_is_answered_with_the_ways_to_read_it(tmp_path: Path) -> None:
    for name in ("e.csv", tmp_path / "e.csv"):
        with pytest.raises(ga.GeoattnError, match=r"or a graph; got the text .*e\.csv.*geoattn curvature FILE"):
            ga.ollivier_ricci(name, "hop")


def test_lists_of_numbers_are_a_matrix_still() -> None:
    assert ga.ollivier_ricci([[0.5, 0.5], [0.5, 0.5]], "hop").values().tolist() == [1.0]
