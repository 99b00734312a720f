"""Attention sinks: the lens, and rows that sum to less than one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import geoattn as ga


class Fixed(nn.Module):
    """Attention with given maps (h, n, n), times values."""

    def __init__(self, maps: torch.Tensor, *, sink: bool = False) -> None:
        super().__init__()
        self.logits = nn.Parameter(maps.log())
        self.sink = sink

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.logits.expand(len(x), -1, -1, -1)
        if self.sink:  # as gpt-oss does: one more logit, whose weight is dropped after the softmax
            logits = torch.cat([logits, torch.zeros_like(logits[..., :1])], -1)
            weights = torch.softmax(logits, -1)[..., :-1]
        else:
            weights = torch.softmax(logits, -1)
        return weights @ x[:, None].expand(-1, weights.shape[1], -1, -1)


def random_maps(heads: int, n: int) -> torch.Tensor:
    return torch.rand(heads, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)


def of(profile: Any, statistic: str, head: int, lens: str = "sinks") -> float:
    return profile.value(statistic, layer=0, head=head, lens=lens)[0]


def test_a_sink_explains_a_head() -> None:
    """Head 1 is head 0 with four fifths of each row on token 2: without that token they are alike."""
    maps = random_maps(1, 8).repeat(2, 1, 1)
    maps[1] *= 0.2
    maps[1, :, 2] += 0.8
    profile = ga.profile(Fixed(maps), [torch.ones(1, 8, 4, dtype=torch.float64)], lenses=["sinks"], examples=0)
    assert of(profile, "heaviest_token", 1) > 0.8 > 0.3 > of(profile, "heaviest_token", 0)
    assert of(profile, "first_token", 1) == pytest.approx(float(maps[1, :, 0].mean()))
    assert of(profile, "distance_to_one_with_sink", 1) < 0.5 * of(profile, "distance_to_one_with_sink", 0)
    changed = maps[1].clone()
    keep = [i for i in range(8) if i != int(maps[1].mean(0).argmax())]
    changed = changed[keep][:, keep]
    changed = changed / changed.sum(-1, keepdim=True)
    exact = ga.ollivier_ricci(changed.numpy()).values()
    assert exact.min() <= 1 - of(profile, "distance_to_one_without_sink", 1) <= exact.max()


@pytest.mark.filterwarnings("ignore::geoattn.CaptureWarning")
def test_the_sink_as_a_node_and_divided_out() -> None:
    maps = random_maps(2, 6)
    model, x = Fixed(maps, sink=True), torch.ones(1, 6, 4, dtype=torch.float64)
    with ga.capture(model) as record:
        model(x)
    rows = record[0].attention()[0].detach()
    assert (rows.sum(-1) < 0.99).all()
    full = torch.zeros(2, 7, 7, dtype=torch.float64)
    full[:, :6, :6], full[:, :6, 6], full[:, 6, 6] = rows, 1 - rows.sum(-1), 1
    divided = rows / rows.sum(-1, keepdim=True)
    for sink, expected in (("node", full), ("renormalise", divided)):
        profile = ga.profile(model, [x], sink=sink, lenses=(), examples=0)
        assert profile.settings["sink"] == sink
        for head in range(2):
            mean = ga.ollivier_ricci(expected[head]).values().mean()
            assert of(profile, "mean", head, "curvature") == pytest.approx(mean, abs=1e-9)


@pytest.mark.filterwarnings("ignore::geoattn.CaptureWarning")
def test_the_sink_is_refused_in_words_and_what_it_says_works() -> None:
    model, x = Fixed(random_maps(1, 5), sink=True), torch.ones(1, 5, 4, dtype=torch.float64)
    with pytest.raises(ga.GeoattnError, match="sink="):
        ga.profile(model, [x])
    with pytest.raises(ga.GeoattnError, match="sink must be one of"):
        ga.profile(model, [x], sink="drain")  # pyright: ignore[reportArgumentType]


def test_rows_that_sum_to_one_are_left_alone() -> None:
    model, x = Fixed(random_maps(1, 5)), torch.ones(1, 5, 4, dtype=torch.float64)
    plain, node = (ga.profile(model, [x], sink=sink, lenses=()) for sink in ("refuse", "node"))
    assert plain.value("mean") == pytest.approx(node.value("mean"), nan_ok=True)
