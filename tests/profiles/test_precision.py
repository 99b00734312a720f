"""A profile to a precision: intervals for the edges of the given data, no wider than asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import geoattn as ga
from geoattn.profiles.precision import EdgeError, Precision, draw_edges, edges_needed, more_edges, possible_edges


class Heads(nn.Module):
    """Attention with the given logits, one layer, so that all edges can be solved beside it."""

    def __init__(self, heads: int, n: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.scale = nn.Parameter(torch.linspace(0.5, 3.0, heads)[:, None, None])
        self.query = nn.Parameter(torch.randn(heads, n, 6, generator=generator))
        self.key = nn.Parameter(torch.randn(heads, n, 6, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = (self.query * self.scale) * x[:, None, None, None]
        key = self.key.expand(len(x), -1, -1, -1)
        return functional.scaled_dot_product_attention(query, key, key)


def distance(profile: Any, head: int) -> Any:
    t = profile.table
    return t[(t["statistic"] == "distance_to_one") & (t["head"] == head) & (t["lens"] == "curvature")].iloc[0]


def test_small_maps_are_exact() -> None:
    model = ga.load_model("lvit-digits")
    digits = ga.load_data("digits", split="test", limit=3)
    profile = ga.profile(model, digits, lenses=())
    assert profile.settings["precision"] == {"asked": 0.05, "reached": 0.0}
    assert (profile.table["half_width"] == 0).all()


@pytest.mark.parametrize("samples", [1, 3])
def test_the_half_width_is_as_asked_and_holds(samples: int) -> None:
    model = Heads(3, 70)
    x = torch.linspace(0.8, 1.2, samples)
    exact = ga.profile(model, [x], lenses=(), edges="all", examples=0)
    drawn = ga.profile(model, [x], lenses=(), precision=0.01, examples=0)
    assert drawn.settings["precision"]["reached"] <= 0.01
    assert drawn.settings["values"] < exact.settings["values"] / 2
    for head in range(3):
        one, all_edges = distance(drawn, head), distance(exact, head)
        assert 0 < one["half_width"] <= 0.01
        assert abs(one["value"] - all_edges["value"]) < 2.5 * one["half_width"]
        assert one["count"] == all_edges["count"]  # a map counts as all its edges


def test_spread_quantiles_and_counts_are_those_of_all_edges() -> None:
    """Heads with more drawn edges weigh no more than others, and a drawn edge stands for those that were not drawn."""
    model, x = Heads(3, 70), [torch.tensor([0.9, 1.1])]
    exact = ga.profile(model, x, lenses=(), edges="all", examples=0)
    drawn = ga.profile(model, x, lenses=(), precision=0.004, examples=0)
    assert drawn.settings["edges_in_all"] == exact.settings["edges_in_all"] == 2 * 3 * 70 * 69 // 2
    assert sum(drawn.settings["statuses"].values()) == drawn.settings["values"] < exact.settings["values"]
    for statistic in ("std", "q05", "q50", "q95"):
        for head in (None, 0, 2):
            one, other = (p.value(statistic, layer=0, head=head)[0] for p in (drawn, exact))
            assert one == pytest.approx(other, abs=0.02), (statistic, head)


def test_one_sample_needs_one_forward_pass() -> None:
    model, calls = Heads(3, 70), []
    model.register_forward_hook(lambda *_: calls.append(1))
    profile = ga.profile(model, [torch.ones(1)], lenses=(), precision=0.01)
    assert profile.settings["precision"]["reached"] <= 0.01
    assert len(calls) == 1


def test_an_example_shows_edges_that_the_profile_has_solved() -> None:
    model = Heads(3, 70)
    profile = ga.profile(model, [torch.ones(2)], lenses=(), precision=0.02, examples=1)
    alone = ga.profile(model, [torch.ones(2)], lenses=(), precision=0.02, examples=0)
    assert profile.table.equals(alone.table)  # what is shown is not drawn, and counts nowhere
    assert profile.settings["values"] == alone.settings["values"]
    example = profile.examples[0]
    with ga.capture(model) as record:
        model(torch.ones(1))
    (call,) = record
    exact = ga.ollivier_ricci(call).kappa[0]
    place = tuple(example.edges[0].T)
    np.testing.assert_allclose(example.kappa[0], exact[place], atol=1e-9)
    weights = call.attention()[0].double().detach().numpy()
    weights = (weights + weights.swapaxes(-1, -2)) / 2
    for head in range(3):
        strongest = np.argsort(-np.triu(weights[head], 1), axis=None)[:16]
        kept = example.edges[0][example.edges[0][:, 0] == head]
        assert set(strongest.tolist()) <= set((kept[:, 1] * 70 + kept[:, 2]).tolist())


def test_a_stream_is_seen_once() -> None:
    def stream() -> Iterator[torch.Tensor]:
        yield torch.ones(1)

    profile = ga.profile(Heads(1, 70), stream(), lenses=(), precision=0.02, examples=0)
    assert profile.settings["precision"]["asked"] == 0.02
    assert profile.settings["samples"] == 1


def test_time_over_leaves_a_pilot_and_says_so() -> None:
    profile = ga.profile(Heads(2, 70), [torch.ones(1)], lenses=(), precision=1e-4, minutes=1e-9, examples=0)
    assert profile.settings["values"] == 2 * 32
    assert profile.settings["precision"]["reached"] > 1e-4


def test_maps_of_unequal_size_weigh_as_their_edges() -> None:
    """Two maps, one with four times the edges: the mean over all edges, not over the drawn ones."""
    error = EdgeError.none(1)
    error.add(slice(0, 1), np.array([[400.0], [100.0]]), np.array([[10.0], [10.0]]), np.array([[4.0], [1.0]]))
    variance = 400**2 * 4 / 10 * (1 - 10 / 400) + 100**2 * 1 / 10 * (1 - 10 / 100)
    assert error.variance[0] == pytest.approx(variance)
    assert error.population[0] == 500
    everything = EdgeError.none(1)
    everything.add(slice(0, 1), np.array([[40.0]]), np.array([[40.0]]), np.array([[4.0]]))
    assert everything.half_width(slice(0, 1), 0.95) == 0


def test_more_edges_begin_with_the_same() -> None:
    possible = np.triu(np.ones((30, 30), dtype=bool), 1)
    a, b = draw_edges(possible, [3, 1]), draw_edges(possible, [3, 1])
    assert np.array_equal(a, b)
    assert len(set(a.tolist())) == 435
    precision = Precision(0.05, samples=2)
    few, many = (edges_needed(precision, np.array([v]), np.ones(1))[0] for v in (0.0, 1.0))
    assert few == precision.pilot == 24 < many


@pytest.mark.filterwarnings("ignore::geoattn.DegenerateCurvatureWarning")  # three tokens
@pytest.mark.parametrize("preset", ["markov", "hop", "grc-0.6", "grc-0.5"])
def test_possible_edges_are_those_of_the_graph(preset: str) -> None:
    attention = np.array([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]])
    rule = ga.Convention.of(preset)
    possible = possible_edges(attention, np.ones((1, 3), dtype=bool), rule)
    assert possible.sum() == np.isfinite(ga.ollivier_ricci(attention, rule).kappa).sum() / 2
    directed = rule.but(direction="directed")
    assert possible_edges(attention, np.ones((1, 3), dtype=bool), directed).sum() == 3


@pytest.mark.slow
def test_the_interval_holds_the_exact_value_as_often_as_it_says() -> None:
    heads, draws, n = 50, 200, 70
    model = Heads(heads, n, seed=5)
    exact = ga.profile(model, [torch.ones(1)], lenses=(), edges="all", examples=0)
    truth = np.array([distance(exact, head)["value"] for head in range(heads)])
    held = np.zeros(heads)
    for seed in range(draws):
        profile = ga.profile(model, [torch.ones(1)], lenses=(), seed=seed, precision=0.02, examples=0)
        rows = [distance(profile, head) for head in range(heads)]
        width = np.array([row["half_width"] for row in rows])
        assert (width <= 0.02).all()
        held += np.abs(np.array([row["value"] for row in rows]) - truth) <= width
    assert held.mean() / draws >= 0.93


@pytest.mark.parametrize("wrong", [{"precision": 0}, {"precision": "fine"}, {"minutes": -1}])
def test_bad_input(wrong: dict[str, Any]) -> None:
    with pytest.raises(ga.GeoattnError, match=next(iter(wrong))):
        ga.profile(Heads(1, 70), [torch.ones(1)], **wrong)


def test_draws_claim_no_more_than_they_can_tell() -> None:
    """A head with all its mass on one token: drawn values are tiny, and rare larger ones are seldom met."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(8000) < 0.01, 3e-5, 1e-7)
    held = 0
    for _ in range(200):
        drawn = rng.choice(values, 24, replace=False)
        error = EdgeError.none(1)
        error.add(slice(0, 1), np.array([[8000.0]]), np.array([[24.0]]), np.array([[drawn.var(ddof=1)]]))
        width = error.half_width(slice(0, 1), 0.95)
        assert 0 < width <= 1e-4
        held += abs(drawn.mean() - values.mean()) <= width
    assert held >= 190
    fine = more_edges(Precision(1e-6), *(np.array([v]) for v in (24.0, 1e-14, 8000.0, 24, 1.0)))
    assert fine.tolist() == [8000]  # only all edges tell that much
