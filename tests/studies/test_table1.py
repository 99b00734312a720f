"""Table 1 at its smallest, and the verdict on numbers whose answer is known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from geoattn._core.errors import GeoattnError
from geoattn.runs.store import Store
from geoattn.studies.catalogue import find_study
from geoattn.studies.engine.finding import judge
from geoattn.studies.ricci.adjusted_training import CONVENTIONS, IMAGES, LEVELS, TEXTS, trial
from geoattn.studies.ricci.table1 import STUDY
from geoattn.studies.run import run_study


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table 1 at its smallest."""
    folder = tmp_path_factory.mktemp("studies") / "table1"
    run_study(STUDY, "smoke", folder)
    return folder


def test_smoke(store: Path) -> None:
    table = pd.read_csv(store / "table1.csv")
    assert table[["data", "direction", "trials"]].values.tolist() == [
        ["digits", "decrease", 2],
        ["digits", "none", 2],
        ["digits", "increase", 2],
    ]
    np.testing.assert_allclose(table["gap"], table["train_accuracy"] - table["test_accuracy"])
    assert (store / "table1.png").read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads((store / "table1.json").read_text())["findings"]) == 5
    assert Store(store, "table1", STUDY.version).status(STUDY.configs("smoke")).done == 6


def test_a_trial_is_a_pure_function(store: Path) -> None:
    config = STUDY.configs("smoke")[-1]
    again = json.loads(json.dumps(trial(config)))
    assert Store(store, "table1", STUDY.version).read(config) == again
    history = again["history"]
    assert [row["epoch"] for row in history] == [0, 1, 2]
    assert all(set(row["curvature"]) == set(CONVENTIONS) for row in history)
    assert "loss" not in history[0]
    for name in CONVENTIONS:
        quantiles = again["distribution"]["end"][name]["quantiles"]
        assert len(quantiles) == len(LEVELS)
        assert sorted(quantiles) == quantiles
        assert quantiles[0] <= history[-1]["curvature"][name] <= quantiles[-1] <= 1


@pytest.mark.parametrize(("name", "findings"), [("fig4", 17), ("fig5", 6), ("fig10", 6)])
def test_figures_take_over_the_trials_of_the_table(store: Path, tmp_path: Path, name: str, findings: int) -> None:
    def never(config: Any) -> Any:
        raise AssertionError(f"done again: {config}")

    study = find_study(name)
    if name == "fig10":  # texts; its smallest size is digits all the same, as data sets of texts are not at hand
        assert {c["data"] for c in study.configs("paper")} == {"sst2", "imdb", "headlines"}
        study = dataclasses.replace(study, sizes=STUDY.sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geoattn.studies.ricci.adjusted_training.trial", never)
        found = run_study(study, "smoke", tmp_path / name, reuse=[store])
    assert len(found) == findings
    assert (tmp_path / name / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert len(pd.read_csv(tmp_path / name / f"{name}.csv")) == (12 if name == "fig4" else 6)


def test_only_the_same_trials_are_taken_over(store: Path, tmp_path: Path) -> None:
    with pytest.raises(GeoattnError, match="holds no study to take results from"):
        run_study(STUDY, "smoke", tmp_path / "a", reuse=[tmp_path])
    with pytest.raises(GeoattnError, match="whose trials are not those of curvature-training"):
        run_study(find_study("curvature-training"), "smoke", tmp_path / "b", reuse=[store])


def test_sizes() -> None:
    small, paper = STUDY.configs("small"), STUDY.configs("paper")
    count = {data: sum(c["data"] == data for c in small) for data in {c["data"] for c in small}}
    assert count == {"digits": 2 * 30 + 10, **dict.fromkeys((*IMAGES, "sst2"), 15)}
    assert len(paper) == 6 * 30 * 3
    assert {(c["data"], c.get("epochs"), c.get("limit")) for c in paper} == {(d, None, None) for d in IMAGES + TEXTS}
    keys = {json.dumps(c, sort_keys=True) for c in small}
    assert len(keys) == len(small)
    for name in ("fig4", "fig5"):  # the figures show runs of the table, and no others
        assert {json.dumps(c, sort_keys=True) for c in find_study(name).configs("small")} <= keys
    texts = find_study("fig9").configs("small")
    assert texts == find_study("fig10").configs("small")
    assert {c["data"] for c in texts if json.dumps(c, sort_keys=True) not in keys} == {"imdb", "headlines"}


def fake(data: str, seed: int, direction: str, losses: list[float], curvature: float) -> Any:
    """A trial with known numbers."""
    shape = {"quantiles": np.linspace(curvature - 0.1, curvature + 0.1, 51).tolist(), "missing": 0.0, "dip": 0.01}
    ends = dict.fromkeys(CONVENTIONS, shape)
    rows = [{"epoch": 0, "curvature": dict.fromkeys(CONVENTIONS, 0.5), "variance": 0.0}]
    for k, loss in enumerate(losses):
        row = {"epoch": k + 1, "loss": loss, "curvature": dict.fromkeys(CONVENTIONS, curvature), "variance": -curvature}
        rows.append(row)
    config = {"data": data, "seed": seed, "direction": direction}
    return config, {"history": rows, "distribution": {"start": ends, "end": ends}}


def test_verdicts_on_known_numbers() -> None:
    """Increase: lower curvature, faster loss, by the same amount for each seed up to a little noise."""
    pairs = []
    for seed in range(4):
        noise = 0.01 * seed
        pairs += [
            fake("digits", seed, "decrease", [2.0 + noise, 1.5, 1.0], 0.8),
            fake("digits", seed, "none", [2.0, 1.5, 1.0 + noise], 0.7),
            fake("digits", seed, "increase", [1.5, 1.0, 0.5], 0.6 + noise),
        ]
    losses = {(f.claim, f.measure): f for f in find_study("fig5").verdict(pairs)}
    faster = next(
        f for (_, measure), f in losses.items() if measure.startswith("mean loss") and "decrease minus" in measure
    )
    assert faster.verdict == "replicated"
    assert faster.difference == pytest.approx(0.5 + 0.015 / 3)
    sooner = next(f for (_, measure), f in losses.items() if "epochs to" in measure and "decrease minus" in measure)
    assert sooner.difference == pytest.approx(1.0)  # 1.0 is reached in epoch 3, and in epoch 2
    curved = find_study("fig4").verdict(pairs)
    means = [f for f in curved if f.measure.startswith("mean curvature")]
    assert [f.convention for f in means] == list(CONVENTIONS)
    assert all(f.verdict == "replicated" and f.difference == pytest.approx(0.185) for f in means)
    highs = [f for f in curved if f.measure.startswith("95 %")]
    assert all(f.verdict == "contradicted" for f in highs)


def test_exact_curvature_in_the_loss(tmp_path: Path) -> None:
    study = find_study("curvature-training")
    findings = run_study(study, "smoke", tmp_path)
    assert {f.convention for f in findings[:8]} == set(CONVENTIONS)
    table = pd.read_csv(tmp_path / "curvature-training.csv")
    assert {"curvature markov", "mean loss", "test accuracy", "rho flip 0.4"} <= set(table["measure"])
    none = table[table["direction"] == "none"]
    assert (none["change"] == 0).all()
    assert len({c["seed"] for c in study.configs("small")}) == 10


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.1, 0.11, 0.09, 0.1], "replicated"),
        ([-0.1, -0.11, -0.09], "contradicted"),
        ([0.1, -0.1, 0.05], "not replicated"),
        ([0.5], "not replicated"),
    ],
)
def test_verdict(differences: list[float], verdict: str) -> None:
    assert judge("it grows", "digits", differences).verdict == verdict


def test_bad_names() -> None:
    with pytest.raises(GeoattnError, match="unknown study"):
        find_study("table9")
    with pytest.raises(GeoattnError, match="size must be one of smoke, small, paper"):
        STUDY.configs("huge")
