"""Features: one row a sample, the numbers of the maps, the same whatever the batches."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import geoattn as ga


@pytest.fixture(scope="module")
def model() -> Any:
    return ga.load_model("lvit-digits")


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return ga.load_data("digits", split="test", limit=70).pixels()


def test_the_numbers_are_those_of_the_maps(model: Any, pixels: torch.Tensor) -> None:
    table = ga.features(model, [pixels[:2]], edges=1000)
    with ga.capture(model) as record, torch.no_grad():
        model.eval()(pixels[:2])
    attention = record[3].attention()[1, 0].double()
    values = ga.ollivier_ricci(attention).values()
    row = table.iloc[1]
    assert row["L03.H0.curvature.distance_to_one"] == pytest.approx(1 - values.mean(), abs=1e-6)
    assert row["L03.H0.curvature.q25"] == pytest.approx(np.quantile(values, 0.25), abs=1e-6)
    assert row["L03.H0.sinks.first_token"] == pytest.approx(float(attention[:, 0].mean()), abs=1e-6)
    assert row["L03.H0.weights.row_entropy"] == pytest.approx(
        float(torch.special.entr(attention).sum(-1).mean()), abs=1e-5
    )
    diagonal = attention.mean(0) - attention.diagonal()
    assert row["L03.H0.laplacian.eigenvalue0"] == pytest.approx(float(diagonal.max()), abs=1e-6)
    assert row["tokens"] == 17


def test_causal_eigenvalues_are_those_of_the_laplacian() -> None:
    from geoattn.profiles.feature_table import _LaplacianOfSample
    from tests.profiles.test_sinks import Fixed

    maps = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).tril()
    maps = maps / maps.sum(-1, keepdim=True)
    table = ga.features(Fixed(maps), [torch.ones(1, 6, 2, dtype=torch.float64)], eigenvalues=3)
    degree = maps[0].sum(0) / torch.arange(6, 0, -1)
    expected = np.sort(np.linalg.eigvals((torch.diag(degree) - maps[0]).numpy()).real)[::-1]
    found = [float(table.iloc[0][f"L00.H0.laplacian.eigenvalue{k}"]) for k in range(3)]
    assert found == pytest.approx(expected[:3].tolist(), abs=1e-6)
    assert _LaplacianOfSample(2).name == "laplacian"


def test_batches_do_not_matter_and_names_are_stable(model: Any, pixels: torch.Tensor) -> None:
    one, many = ga.features(model, [pixels], edges=8), ga.features(model, list(pixels.split(9)), edges=8)
    assert list(one.columns) == list(many.columns)
    assert one.shape == (70, 8 * (7 + 3 + 2 + 4 + 5) + 1)
    assert (one.dtypes == np.float32).all()
    np.testing.assert_allclose(one, many, atol=2e-5)


def test_a_pipeline_predicts(model: Any, pixels: torch.Tensor) -> None:
    labels = ga.load_data("digits", split="test", limit=70).labels % 2
    geometry = ga.AttentionGeometry(model, edges=8)
    pipeline = make_pipeline(geometry, StandardScaler(), LogisticRegression(max_iter=500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence on so few samples is not the point
        scores = cross_val_score(pipeline, pixels.numpy(), labels, cv=3, scoring="roc_auc")
    assert scores.mean() > 0.6  # chance is 0.5
    fitted = geometry.fit(pixels)
    assert len(fitted.get_feature_names_out()) == fitted.transform(pixels[:4]).shape[1]
    assert clone(geometry).get_params()["edges"] == 8


def test_bad_input(model: Any, pixels: torch.Tensor) -> None:
    with pytest.raises(ga.GeoattnError, match=r"torch\.nn\.Module"):
        ga.features("bert", [pixels])
    with pytest.raises(ga.GeoattnError, match="batches were empty"):
        ga.features(model, [])
    with pytest.raises(ga.GeoattnError, match="edges must be"):
        ga.features(model, [pixels], edges=0)
    with pytest.raises(ga.GeoattnError, match="needs a model"):
        ga.AttentionGeometry().fit(pixels)
