"""All links between curvature and spectrum of a map, and of every head of a captured model."""

import numpy as np
import pytest
import torch

import geoattn as ga
from geoattn._core.errors import GeoattnError
from geoattn.spectral.links import spectral_links, spectral_table


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [0.3, 2.0, 6.0])
def test_no_theorem_fails(seed, scale):
    rng = np.random.default_rng(seed)
    links = spectral_links(softmax(scale * rng.normal(size=(7, 7))))
    assert all(link.holds for link in links if link.theorem)
    assert len({link.name for link in links}) == len(links) == 2 + 8 + 4


def test_what_is_assumed_fails_for_two_groups():
    """Two groups that hardly look at each other: gap near 0, yet no edge has a low curvature under the grc presets."""
    n = 12
    a = softmax(np.where(np.arange(n)[:, None] // 6 == np.arange(n) // 6, 4.0, 0.0))
    links = {link.name: link for link in spectral_links(a)}
    for name in ("assumed under grc-0.5", "assumed under grc-0.6"):
        assert not links[name].holds
        assert not links[name].theorem
    assert links["assumed under hop"].theorem
    assert links["assumed under hop"].holds


def test_choices():
    a = softmax(np.random.default_rng(0).normal(size=(5, 5)))
    names = [link.name for link in spectral_links(a, metrics=["hop"], steps=[2], conventions=["hop"])]
    assert names == [
        "contraction, hop distance", "Bauer-Jost-Liu t=2, lower", "Bauer-Jost-Liu t=2, upper", "assumed under hop",
    ]  # fmt: skip


def test_table_of_a_captured_model_leaves_out_padding():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, padding = torch.randn(2, 6, 8), torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    with ga.capture(model) as record, torch.no_grad():
        model(x, src_key_padding_mask=padding)
    table = spectral_table(record, samples=2, conventions=["markov"])
    assert set(table.layer) == {0, 1}
    assert set(table["head"]) == {0, 1}
    assert set(table["sample"]) == {0, 1}
    assert table[table.theorem].holds.all()
    alone = record[0].attention(sample=1, head=0)[0, 0, :4, :4].double().numpy()
    expected = spectral_links(alone / alone.sum(1, keepdims=True), conventions=["markov"])
    mine = table[(table.layer == 0) & (table["head"] == 0) & (table["sample"] == 1)]
    np.testing.assert_allclose(mine.slack, [link.slack for link in expected])


def test_bad_input():
    with ga.capture(torch.nn.Identity()) as record:
        pass
    with pytest.raises(GeoattnError, match="no attention ran"):
        spectral_table(record)
    with pytest.raises(GeoattnError, match="samples must be at least 1"):
        spectral_table(record, samples=0)
    with pytest.raises(GeoattnError, match="rows"):
        spectral_links(np.ones((3, 3)))
    with pytest.raises(GeoattnError, match="metric must be"):
        spectral_links(np.full((3, 3), 1 / 3), metrics=["manhattan"])
