"""Pairs of models: equal accuracy, the order of curvature, and what a pair shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from geoattn.runs.store import Store
from geoattn.studies.engine.curvature_order import HIGHER, LOWER
from geoattn.studies.engine.output import check_output
from geoattn.studies.engine.study import Pairs
from geoattn.studies.ricci.image_robustness import STUDY, equal_steps
from geoattn.studies.ricci.model_pair import ModelPair, packed, unpacked
from geoattn.studies.run import run_study

_PERTURBATIONS = ("swap", "other")
PAIR = ModelPair("one", "two", _PERTURBATIONS, "texts")
CONVENTIONS = ("markov", "hop", "grc-0.6", "grc-0.5")


def result(clean: list[int], perturbed: list[int], curvature: float) -> dict[str, Any]:
    a, b = float(np.mean(clean)), float(np.mean(perturbed))
    drop = {"clean": a, "perturbed": b, "rho": a - b, "relative_drop": (a - b) / a}
    return {
        "test_accuracy": a, "perturbed": dict.fromkeys(_PERTURBATIONS, drop),
        "right": {"clean": packed(clean), **dict.fromkeys(_PERTURBATIONS, packed(perturbed))},
        "curvature": dict.fromkeys(CONVENTIONS, curvature),
    }  # fmt: skip


def pairs(curvature: float = 0.5) -> Pairs:
    """Model two is right on more rows, keeps fewer of those that both know, and has the curvature given."""
    rng = np.random.default_rng(0)
    found: Pairs = []
    for data in ("a", "b"):
        for seed in range(4):
            config = {"data": data, "seed": seed}
            shift = 0.001 * rng.normal()
            lost = [1, 1, 1, 0] if seed % 2 else [1, 1, 0, 0]
            found.append(({**config, "model": "one"}, result([1] * 4 + [0] * 4, [1] * 4 + [0] * 4, 0.3 + shift)))
            found.append(({**config, "model": "two"}, result([1] * 8, lost + [1] * 4, curvature)))
    return found


def row(found: list[Any], **wanted: Any) -> Any:
    (one,) = [f for f in found if all(getattr(f, k) == v for k, v in wanted.items())]
    return one


def test_bits_are_kept() -> None:
    right = np.random.default_rng(0).random(37) < 0.5
    assert (unpacked(packed(right))[:37] == right).all()
    assert not unpacked(packed(right))[37:].any()


def test_equal_counts_the_rows_that_both_get_right() -> None:
    whole = {(c["model"], c["data"], c["seed"]): r for c, r in PAIR.with_equal(pairs())}
    assert whole["one", "a", 0]["equal"]["swap"] == 1.0
    assert whole["two", "a", 0]["equal"]["swap"] == 0.5  # of the first four rows, though six of eight are right
    alone = PAIR.with_equal(pairs()[:1])
    assert np.isnan(alone[0][1]["equal"]["swap"])


@pytest.mark.parametrize(("curvature", "sign"), [(0.5, -1), (0.1, 1)])
def test_models_are_called_by_their_curvature(curvature: float, sign: int) -> None:
    """Model one is the more robust: that agrees with its curvature only where it has the higher one."""
    found = PAIR.findings(pairs(curvature))
    one = row(found, number="equal_section_5", more=HIGHER, data="pooled", convention="markov")
    assert np.sign(one.difference) == sign
    drop = row(found, number="relative_drop_section_5", more=LOWER, data="a", convention="grc-0.5")
    assert np.sign(drop.difference) == sign
    plain = row(found, number="equal_section_5", more="one", data="a", convention=None)
    assert plain.low > 0


def test_without_an_order_of_curvature_there_is_no_such_finding() -> None:
    found = PAIR.findings(pairs(0.3))
    assert not [f for f in found if f.more in (HIGHER, LOWER)]
    assert [f for f in found if f.more == "one"]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ((0.5, 0.7, 0.8), (0.69, 0.805, 0.9), (2, 1)),  # both 0.69/0.7 and 0.8/0.805 are equal: the better ones
        ((0.5, 0.6), (0.8, 0.9), (1, 0)),  # nothing is equal: the nearest
        ((0.5,), (0.51,), (0, 0)),
    ],
)
def test_steps_of_equal_accuracy(first: tuple[float, ...], second: tuple[float, ...], wanted: tuple[int, int]) -> None:
    steps = ([{"validation_accuracy": a} for a in part] for part in (first, second))
    assert equal_steps(*steps) == wanted


def test_image_pair_at_smoke_size(tmp_path: Path) -> None:
    run_study(STUDY, "smoke", tmp_path)
    table = pd.read_csv(tmp_path / "image-robustness.csv")
    assert set(table["model"]) == {"random-dinov2", "lvit"}
    assert table["clean"].between(0, 1).all()
    store = Store(tmp_path, STUDY.name, STUDY.version)
    assert check_output(STUDY, "smoke", store) == []
    for config in STUDY.configs("smoke"):
        for step in store.read(config)["steps"]:
            assert set(step["right"]) == {"clean", "flip + blur + rotation 0.4", "elastic + perspective"}
            assert set(step["curvature"]) == set(CONVENTIONS)


def test_an_unfinished_image_pair_is_left_out() -> None:
    configs = STUDY.configs("paper")
    step = {"at": 1, "validation_accuracy": 0.8, "curvature": dict.fromkeys(CONVENTIONS, 0.5)}
    right = dict.fromkeys(("clean", "flip + blur + rotation 0.4", "elastic + perspective"), packed([1, 0, 1, 1]))
    half = [(config, {"rows": 4, "steps": [{**step, "right": right}]}) for config in configs[:3]]
    assert {c["model"] for c, _ in half[:2]} == {"lvit", "dinov2-small"}
    assert len(STUDY.table(half)) == 2
    assert STUDY.table(half[:1]).empty
    assert STUDY.verdict(half[:1]) == []
