"""Errors predicted from the geometry of attention: scores, AUROC, the control for length, and the study itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study
from geoattn.studies.prediction.error_scores import auroc, held_out_scores, length_groups, resampled_counts
from geoattn.studies.prediction.predict_errors import SETS
from geoattn.studies.run import run_study


def test_auroc_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores, wrong = rng.integers(0, 9, 200) / 9, rng.random(200) < 0.3  # with ties
    assert auroc(scores, wrong) == pytest.approx(roc_auc_score(wrong, scores))
    assert np.isnan(auroc([0.1, 0.2], [False, False]))


def test_at_equal_length_a_score_of_length_says_nothing() -> None:
    rng = np.random.default_rng(1)
    tokens = rng.integers(4, 128, 2000)
    wrong = rng.random(2000) < tokens / 128
    other, group = rng.standard_normal(2000) + wrong, length_groups(tokens, 25)
    assert auroc(tokens, wrong) > 0.75
    assert auroc(tokens, wrong, group=group) == pytest.approx(0.5, abs=0.05)
    assert auroc(other, wrong, group=group) == pytest.approx(auroc(other, wrong), abs=0.03)
    parts = [(auroc(other[k], wrong[k]), wrong[k].sum() * (~wrong[k]).sum()) for k in (group == g for g in range(25))]
    values, pairs = zip(*[part for part in parts if part[1]], strict=True)
    assert auroc(other, wrong, group=group) == pytest.approx(np.average(values, weights=pairs))


def test_resampled_rows_are_rows_that_come_several_times() -> None:
    rng = np.random.default_rng(4)
    scores, wrong, group = rng.standard_normal(60).round(1), rng.random(60) < 0.4, rng.integers(0, 3, 60)
    counts = resampled_counts(60, resamples=5)
    assert (counts.sum(axis=1) == 60).all()
    for one, many in ((None, None), (group, group)):
        found = auroc(scores, wrong, group=one, counts=counts)
        for value, count in zip(found, counts, strict=True):
            rows = np.repeat(np.arange(60), count)
            assert value == pytest.approx(auroc(scores[rows], wrong[rows], group=None if many is None else many[rows]))


def test_scores_are_of_samples_that_were_not_seen() -> None:
    """Noise of many columns predicts nothing, a telling column does, and noise beside it does not drown it."""
    rng = np.random.default_rng(2)
    wrong = rng.random(240) < 0.3
    noise, telling = rng.standard_normal((240, 300)), (wrong + rng.standard_normal(240))[:, None]
    assert auroc(held_out_scores([noise], wrong, repeats=1), wrong) == pytest.approx(0.5, abs=0.12)
    alone = auroc(held_out_scores([telling], wrong, repeats=1), wrong)
    assert alone == pytest.approx(auroc(telling[:, 0], wrong), abs=0.05)
    assert auroc(held_out_scores([telling, noise], wrong, repeats=1), wrong) > alone - 0.1


def test_the_interval_covers() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(40):
        wrong = rng.random(150) < 0.4
        scores = rng.standard_normal(150) + wrong  # AUROC = Phi(1 / sqrt(2))
        low, high = np.quantile(auroc(scores, wrong, counts=resampled_counts(150, resamples=200)), [0.025, 0.975])
        covered += low <= 0.7602 <= high
    assert covered >= 34


@pytest.mark.slow
def test_smoke(tmp_path: Path) -> None:
    if not os.environ.get("GEOATTN_DATA"):
        pytest.skip("needs SST-2 in GEOATTN_DATA")
    study = find_study("predict-errors")
    findings = run_study(study, "smoke", tmp_path)
    assert len(findings) == 5
    table = pd.read_csv(tmp_path / "predict-errors.csv")
    assert list(table["set"]) == list(SETS)
    assert ((table["low"] <= table["auroc"]) & (table["auroc"] <= table["high"])).all()
    (config,) = study.configs("smoke")
    result = Store(tmp_path, study.name, study.version).read(config)
    assert len(result["wrong"]) == len(result["tokens"]) == len(result["scores"]["geometry"]) == 60
    assert 1 - np.mean(result["wrong"]) == pytest.approx(result["test_accuracy"], abs=1e-4)
    first = table.iloc[SETS.index("confidence")]
    assert first["auroc"] == pytest.approx(auroc(result["scores"]["confidence"], result["wrong"]), abs=1e-6)
