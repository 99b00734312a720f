"""Features: one row a sample, the numbers of the maps, the same whatever the batches."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import geoattn as ga
from tests.datasets.test_forms import TEXTS, text_folder

__all__ = ["text_folder"]  # a fixture


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


@pytest.mark.parametrize("form", ["list", "objects", "column of an array", "Series", "DataFrame"])
def test_a_step_of_scikit_learn_takes_texts_as_features_does(form: str, text_folder: Path) -> None:
    forms: dict[str, Any] = {
        "list": TEXTS, "objects": np.array(TEXTS, dtype=object), "column of an array": np.array(TEXTS)[:, None],
        "Series": pd.Series(TEXTS, index=range(3, 7)), "DataFrame": pd.DataFrame({"text": TEXTS, "n": range(4)}),
    }  # fmt: skip
    bare = ga.load_model(text_folder)
    found = ga.AttentionGeometry(bare, edges=8).fit_transform(forms[form])
    np.testing.assert_allclose(found, ga.features(bare, TEXTS, edges=8).fillna(0.0), atol=1e-6)


def test_a_step_of_scikit_learn_takes_the_column_that_is_named(text_folder: Path) -> None:
    model, frame = ga.load_model(text_folder), pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    found = ga.AttentionGeometry(model, edges=8, column="b").fit_transform(frame)
    np.testing.assert_allclose(found, ga.features(model, frame, column="b", edges=8).fillna(0.0), atol=1e-6)
    for given, words in (
        (frame, "which column holds the texts"), (TEXTS[0], "cannot use the text 'the film is good'"),
        (None, "at least one sample; got NoneType"), (["good", 3], "row 1: expected a text; got int"),
    ):  # fmt: skip
        with pytest.raises(ga.GeoattnError, match=words):
            ga.AttentionGeometry(model).fit(given)
    model.config._name_or_path = ""
    with pytest.raises(ga.GeoattnError, match="no tokenizer lies beside the model"):
        ga.AttentionGeometry(model).fit(TEXTS)


def test_a_step_of_scikit_learn_takes_numbers_with_columns(model: Any, text_folder: Path) -> None:
    ids = pd.DataFrame([[2, 5, 6, 3], [2, 8, 6, 3]])
    bare = ga.load_model(text_folder)
    found = ga.AttentionGeometry(bare, edges=8).fit_transform(ids)
    np.testing.assert_allclose(found, ga.features(bare, [torch.tensor(ids.to_numpy())], edges=8), atol=1e-6)


def test_bad_input(model: Any, pixels: torch.Tensor) -> None:
    with pytest.raises(ga.GeoattnError, match=r"torch\.nn\.Module"):
        ga.features("bert", [pixels])
    with pytest.raises(ga.GeoattnError, match="batches were empty"):
        ga.features(model, [])
    with pytest.raises(ga.GeoattnError, match="edges must be"):
        ga.features(model, [pixels], edges=0)
    with pytest.raises(ga.GeoattnError, match="needs a model"):
        ga.AttentionGeometry().fit(pixels)
