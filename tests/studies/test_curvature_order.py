"""Arms called by their measured curvature: by data set and convention, never by what they were meant to do."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from geoattn.studies import find_study
from geoattn.studies.engine.contrasts import Number, Runs
from geoattn.studies.engine.curvature_order import HIGHER, LOWER, by_curvature
from tests.studies.made_up import made_up

SIGNS = {("a", "markov"): 1, ("a", "grc-0.5"): -1, ("b", "markov"): 1, ("b", "grc-0.5"): 0}


def runs() -> Runs:
    """Pushed up, the curvature rises under markov and falls under grc-0.5 on a; the drop is smaller by 0.1 + seed."""
    pairs: list[tuple[dict[str, Any], Any]] = []
    for data in ("a", "b"):
        for seed in range(4):
            for arm, up in (("decrease", 0), ("none", 0), ("increase", 1)):
                curvature = {c: 0.5 + 0.1 * SIGNS.get((data, c), 0) * up + 0.01 * (-1) ** (seed + up)
                             for c in ("markov", "hop", "grc-0.6", "grc-0.5")}  # fmt: skip
                drop = 0.3 - (0.1 + 0.01 * seed) * up
                pairs.append(({"data": data, "seed": seed, "arm": arm}, {"curvature": curvature, "drop": drop}))
    return Runs(pairs, lambda config: str(config["arm"]))


def test_the_sign_follows_the_measured_order() -> None:
    number = {"drop": Number("drop", lambda r: r["drop"])}
    found = by_curvature(
        runs(), ("decrease", "increase"), lambda r, c: r["curvature"][c], number, {"drop": (LOWER, HIGHER)}
    )
    assert {(f.more, f.less) for f in found} == {(LOWER, HIGHER)}
    effects = {(f.data, f.convention): f.difference for f in found}
    assert effects["a", "markov"] == pytest.approx(0.115)  # the higher one loses less
    assert effects["a", "grc-0.5"] == pytest.approx(-0.115)  # the same runs, called the other way round
    assert effects["pooled", "markov"] == pytest.approx(0.115)
    assert effects["pooled", "grc-0.5"] == effects["a", "grc-0.5"]  # b shows no order there
    assert not any(convention in ("hop", "grc-0.6") for _, convention in effects)


def test_robustness_is_judged_by_the_curvature_of_the_convention() -> None:
    """R24: with the order turned under grc-0.5 alone, the effect of the same drops turns under grc-0.5 alone."""
    study = find_study("adjusted-lvit")
    pairs = []
    for config in study.configs("paper"):
        result = copy.deepcopy(made_up(config))
        if config["direction"] == "increase":
            result["distribution"]["end"]["grc-0.5"]["mean"] -= 0.5
        for drop in result["perturbed"].values():
            drop["relative_drop"] = {"decrease": 0.4, "none": 0.3, "increase": 0.2}[config["direction"]]
        pairs.append((config, result))
    found = {f.convention: f.difference for f in study.verdict(pairs)
             if (f.number, f.more, f.data) == ("relative_drop_section_5", LOWER, "pooled")}  # fmt: skip
    assert found["markov"] == pytest.approx(0.2)
    assert found["grc-0.5"] == pytest.approx(-0.2)


def test_the_dip_of_values_that_are_all_alike_is_zero() -> None:
    study = find_study("adjusted-lvit")
    config = study.configs("paper")[0]
    dips = []
    for width in (0.04, 0.06):
        result = copy.deepcopy(made_up(config))
        shape = result["distribution"]["end"]["markov"]
        shape["quantiles"], shape["dip"] = [0.5] + [0.5 + width * k / 48 for k in range(49)] + [0.9], 0.02
        dips.append(float(study.table([(config, result)])["curvature_dip markov"][0]))
    assert dips == [0.0, 0.02]
