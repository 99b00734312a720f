"""Settings, models and batches that the regularisers refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn.training.regularisers.curvature import CurvatureRegulariser
from geoattn.training.regularisers.entropy import RowEntropy
from geoattn.training.regularisers.variance import VarianceRegulariser
from tests.training.small_models import BATCH, bert


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VarianceRegulariser("up"), "direction must be 'increase' or 'decrease'; got 'up'"),
        (lambda: VarianceRegulariser("decrease", b=0), r"log\(a x \+ b\) is undefined at variance x = 0 for b = 0"),
        (lambda: VarianceRegulariser("decrease", b=-1.0), "b must be above 0"),
        (lambda: VarianceRegulariser("increase", a=0), "a must be a finite number above 0; got 0"),
        (lambda: VarianceRegulariser("increase", a=-2.0), "a must be a finite number above 0"),
        (lambda: VarianceRegulariser("increase", b=math.nan), "b must be a finite number; got nan"),
        (lambda: VarianceRegulariser("increase", b=500), "overflows"),
        (lambda: VarianceRegulariser("increase", gamma=0), "gamma must be a finite number above 0; got 0"),
        (lambda: VarianceRegulariser("increase", gamma=-0.1), "gamma must be a finite number above 0; got -0.1"),
        (lambda: VarianceRegulariser("increase", gamma="1"), "gamma must be a finite number above 0; got '1'"),
        (lambda: RowEntropy("sideways"), "direction"),
        (lambda: RowEntropy(gamma=0), "gamma"),
        (lambda: CurvatureRegulariser("flat"), "'increase', 'decrease' or 'to_one'"),
        (lambda: CurvatureRegulariser(gamma=0), "gamma"),
        (lambda: CurvatureRegulariser(maps=0), "maps must be 'all' or a whole number"),
        (lambda: CurvatureRegulariser(edges=0), "edges"),
        (lambda: CurvatureRegulariser(convention="nonsense"), "nonsense"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(GeoattnError, match=message):
        make()


@pytest.mark.parametrize("regulariser", [VarianceRegulariser(), RowEntropy(), CurvatureRegulariser()])
def test_a_model_without_attention(regulariser: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with regulariser.attach(model) as handle:
        with pytest.raises(GeoattnError, match="no forward pass"):
            handle.penalty()
        model(torch.rand(2, 4))
        with pytest.raises(GeoattnError, match="no attention ran"):
            handle.penalty()


def test_a_batch_of_nothing_but_padding() -> None:
    model = bert("sdpa")
    batch = {"input_ids": BATCH["input_ids"], "attention_mask": torch.zeros(2, 6, dtype=torch.long)}
    with VarianceRegulariser().attach(model) as handle:
        model(**batch)
        with pytest.raises(GeoattnError, match="padding"):
            handle.penalty()
