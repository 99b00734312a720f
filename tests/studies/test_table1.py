"""Table 1 at its smallest, and the verdict on numbers whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geoattn.errors import GeoattnError
from geoattn.runs.store import Store
from geoattn.studies.study import find_study, judge, run_study
from geoattn.studies.table1 import STUDY


def test_smoke_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    findings = run_study(STUDY, "smoke", tmp_path / "one")
    run_study(STUDY, "smoke", tmp_path / "two")
    for name in ("table1.csv", "table1.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    table = pd.read_csv(tmp_path / "one/table1.csv")
    assert table[["data", "direction", "trials"]].values.tolist() == [
        ["digits", "decrease", 2],
        ["digits", "increase", 2],
    ]
    np.testing.assert_allclose(table["gap"], table["train_accuracy"] - table["test_accuracy"])
    assert (tmp_path / "one/table1.png").read_bytes()[:4] == b"\x89PNG"
    assert len(findings) == len(json.loads((tmp_path / "one/table1.json").read_text())["findings"]) == 3
    assert Store(tmp_path / "one", "table1", 1).status(STUDY.configs("smoke")).done == 4


def test_sizes() -> None:
    small, paper = STUDY.configs("small"), STUDY.configs("paper")
    count = {data: sum(c["data"] == data for c in small) for data in {c["data"] for c in small}}
    assert count == {"digits": 60, "mnist": 10, "fashion-mnist": 10, "cifar10": 10, "sst2": 10}
    assert len(paper) == 6 * 30 * 2
    keys = {json.dumps(c, sort_keys=True) for c in small}
    assert len(keys) == len(small)


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
