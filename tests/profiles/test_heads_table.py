"""One row a head against the maps, by hand; ranks under each convention; edges with the texts of their tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import geoattn as ga
from tests.report.conftest import Words, texts

NAMES = ["markov", "hop", "grc-0.6", "grc-0.5"]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    made = ga.load_model("bert-tiny", weights="random", vocab_size=64, num_hidden_layers=2)
    made.encoder.layer[1].attention.self.query.weight.data *= 40.0
    return made


@pytest.fixture(scope="module")
def profile(model: Any) -> Any:
    return ga.profile(model, texts("a b c d e f", "g h a b"), tokenizer=Words(), convention=NAMES, resamplings=20)


@pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")
def test_each_number_is_that_of_the_maps(model: Any, profile: Any) -> None:
    table = profile.heads()
    assert table[["layer", "head"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    batch = Words()(["a b c d e f", "g h a b"])
    with ga.capture(model) as record, torch.no_grad():
        model(**batch)
    for row in table.itertuples():
        call = record[row.layer]
        maps = call.attention(head=row.head)[:, 0]
        kappa = ga.ollivier_ricci(maps, mask=call.valid).values()
        assert row.mean == pytest.approx(kappa.mean(), abs=1e-5)
        assert row.negative_share == pytest.approx((kappa < 0).mean(), abs=1e-9)
        depth = -kappa[kappa < 0].mean() if (kappa < 0).any() else 0.0
        assert row.negative_depth == pytest.approx(depth, abs=1e-5)
        sinks = [float(m[v][:, v].mean(0).max()) for m, v in zip(maps, call.valid, strict=True)]
        assert row.heaviest_token == pytest.approx(np.mean(sinks), abs=1e-5)
        assert row.min == pytest.approx(kappa.min(), abs=1e-5)


def test_ranks_are_those_of_each_convention(profile: Any) -> None:
    table = profile.heads()
    columns = []
    for name in NAMES:
        places = [(row.layer, row.head) for row in table.itertuples()]
        values = [profile.value("distance_to_one", layer=k, head=h, convention=name)[0] for k, h in places]
        expected = 1 + np.argsort(np.argsort(-np.array(values)))
        assert table[f"rank_{name}"].tolist() == expected.tolist()
        columns.append(expected)
    assert table.rank_spread.tolist() == np.ptp(columns, axis=0).tolist()
    assert profile.heads("hop").distance_to_one.tolist() != table.distance_to_one.tolist()
    assert "rank_spread" in profile.heads().style.to_html()
    with pytest.raises(ga.GeoattnError, match="this profile has the conventions markov"):
        profile.heads("nonsense")


def test_edges_have_the_texts_of_their_tokens(profile: Any) -> None:
    edges = profile.edges(0, 1, 1, tokens=True)
    assert len(edges) == 8 * 7 // 2
    assert edges.weight.is_monotonic_decreasing
    words = ["[CLS]", *"abcdef", "[SEP]"]
    assert all(words[e.i] == e.token_i and words[e.j] == e.token_j for e in edges.itertuples())
    assert list(profile.edges(0, 0, 0).columns) == ["i", "j", "weight", "kappa"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ((3, 0, 0), r"sample 3 were not kept \(kept: 0\); profile with examples=4"),
        ((0, 2, 0), "layers 0 to 1"),
        ((0, 0, 2), "heads 0 to 1"),
    ],
)
def test_places_that_are_not_there(profile: Any, where: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ga.GeoattnError, match=words):
        profile.edges(*where)
