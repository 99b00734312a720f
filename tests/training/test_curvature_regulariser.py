"""The curvature regulariser: its value, its sample of maps and edges, padding, cross-attention."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.attention import capture
from geoattn.curvature.loss import curvature_loss
from geoattn.training.regularisers.curvature import CurvatureRegulariser
from tests.training.small_models import BATCH, bert, gradients, lvit


@pytest.mark.parametrize("direction", ["increase", "decrease", "to_one"])
def test_curvature_of_all_edges_is_the_curvature_loss(direction: str) -> None:
    model, x = lvit().double(), torch.rand(2, 1, 8, 8, dtype=torch.float64)
    with capture(model) as record:
        model(x)
    maps = torch.cat([call.attention().flatten(0, 1) for call in record])
    if direction == "to_one":
        from geoattn.curvature.loss import edge_curvature

        expected = 0.7 * (1 - edge_curvature(maps)).square().mean()
    else:
        expected = (0.7 if direction == "decrease" else -0.7) * curvature_loss(maps)
    wanted = gradients(model, expected)
    with CurvatureRegulariser(direction, 0.7, maps="all", edges="all").attach(model) as handle:
        model(x)
        penalty = handle.penalty()
        torch.testing.assert_close(penalty, expected)
        for a, b in zip(gradients(model, penalty), wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_the_sample_depends_on_seed_and_step_alone() -> None:
    model, x = lvit(), torch.rand(6, 1, 8, 8)

    def penalties(seed: int) -> list[float]:
        torch.manual_seed(seed + 7)  # must not matter
        with CurvatureRegulariser("increase", maps=4, edges=5, seed=seed).attach(model) as handle:
            values = []
            for _ in range(3):
                model(x)
                values.append(float(handle.penalty().detach()))
        return values

    assert penalties(0) == penalties(0)
    assert len({*penalties(0), *penalties(1)}) == 6


def test_padding_takes_no_part_in_curvature() -> None:
    model = bert("sdpa")
    batch = {k: v for k, v in BATCH.items() if k != "labels"}
    with CurvatureRegulariser("increase", maps="all", edges="all").attach(model) as handle:
        model(**batch)
        edges = handle.figures()["edges"]
    assert edges == 2 * 2 * (6 * 5 // 2 + 4 * 3 // 2)  # layers, heads, pairs of 6 and of 4 real tokens


def test_curvature_needs_self_attention() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    with CurvatureRegulariser().attach(layer) as handle:
        layer(torch.rand(1, 3, 8), *(2 * [torch.rand(1, 5, 8)]))
        with pytest.raises(GeoattnError, match="curvature needs self-attention"):
            handle.penalty()
