"""The samples that a profile keeps: of long maps a few edges are solved, however the weights are spread."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import geoattn as ga
from geoattn.profiles.lenses import curvature


class OneLayer(torch.nn.Module):
    """Attention of two heads over tokens; ``sharpness`` 0 makes all weights equal."""

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.sharpness = sharpness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, -1)).transpose(1, 2)
        scores = self.sharpness * heads @ heads.transpose(-1, -2)
        return scores.softmax(-1) @ heads


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edges each call of the lens solves, those of the example included."""
    counts: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        found = ga.ollivier_ricci(*args, **options)
        counts.append(len(found.values()))
        return found

    monkeypatch.setattr(curvature, "ollivier_ricci", counted)
    return counts


@pytest.mark.parametrize("sharpness", [1.0, 0.0])
def test_a_kept_sample_of_a_long_map_costs_sixteen_edges_a_head(solved: list[int], sharpness: float) -> None:
    """A profile that asks for few edges is not made slow by the sample that it keeps by default."""
    x = torch.randn(1, 90, 8, generator=torch.Generator().manual_seed(0))
    profile = ga.profile(OneLayer(sharpness), [x], edges=16)
    assert 2 * 16 < sum(solved) <= 2 * (16 + 16)  # 16 drawn edges and 16 strong ones of a head, some of them the same
    assert profile.settings["values"] == 2 * 16
    assert len(profile.examples) == 1


def test_a_small_map_is_kept_with_all_its_edges(solved: list[int]) -> None:
    ga.profile(OneLayer(1.0), [torch.randn(1, 12, 8)])
    assert solved == [2 * 12 * 11 // 2]
