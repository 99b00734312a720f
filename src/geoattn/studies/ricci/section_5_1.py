"""Section 5.1 of the Ricci paper: does more variance bring a second mode of curvature, and a smaller gap with it?"""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError
from geoattn.studies.engine.cells import Pairs, by, judge_association, matched, mean_and_half, values
from geoattn.studies.engine.distribution_panel import panels_by_data
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described

__all__ = ["STUDY", "trial"]

_DIRECTIONS = ("decrease", "increase")
_COLOURS = {"decrease": "tab:blue", "increase": "tab:red"}
_LEVEL = 0.05  # of the test of one mode


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train with the variance of attention pushed one way; gap and curvature, with the upper of its two modes."""
    from geoattn.datasets.feed import feed
    from geoattn.studies.engine.layer_curvature import layer_curvature
    from geoattn.studies.engine.tasks import load_task
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    settings = dict(config)
    samples = settings.pop("samples")
    push = {name: settings.pop(name) for name in ("direction", "gamma", "a")}
    done = train(Recipe(**settings, regularisers=(("variance", push),)))
    test = load_task(config["data"], "test", config["test_limit"])
    found = layer_curvature(done.model, feed(test.subset(range(min(samples, len(test)))), done.model))
    for preset in PRESETS:
        found["last"][preset]["high_mode"] = _high_mode(found["last"][preset]["histogram"])
    accuracies = {"train_accuracy": done.train_accuracy, "test_accuracy": done.test_accuracy}
    return {**accuracies, "gap": done.train_accuracy - done.test_accuracy, "curvature": found}


def _high_mode(histogram: list[int]) -> float | None:
    """The upper of the two most stubborn modes, to the width of a bin; None when there are no two."""
    from geoattn.statistics.modes import two_modes
    from geoattn.studies.engine.layer_curvature import BINS

    spread = np.repeat((BINS[1:] + BINS[:-1]) / 2, histogram)
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, len(spread)) * (BINS[1] - BINS[0])
    try:
        return two_modes(spread + noise).high
    except GeoattnError:
        return None


def _sizes(size: str) -> list[dict[str, Any]]:
    """Images, as L-ViT takes them; the paper has 30 trials."""
    push = {"gamma": 1.0, "a": 100.0}
    if size == "smoke":
        shape = {"depth": 1, "dim": 16, "dim_head": 16}
        plan = [("digits", 2, {"epochs": 1, "limit": 64, "test_limit": 24, "changes": shape, "samples": 4})]
    elif size == "small":
        shape = {"changes": {"depth": 2, "dim": 32, "dim_head": 32, "mlp_dim": 64}, "samples": 32, "rate": 2e-3}
        plan = [("digits", 10, {**shape, "epochs": 12, "limit": 700, "test_limit": 240}),
                ("fashion-mnist", 3, {**shape, "epochs": 6, "limit": 1000, "test_limit": 240})]  # fmt: skip
    else:
        plan = [(d, 30, {"samples": 1024, "test_limit": None}) for d in ("mnist", "fashion-mnist", "cifar10")]
    return [
        {"data": data, "seed": seed, "direction": direction, **push, **settings}
        for data, seeds, settings in plan
        for seed in range(seeds)
        for direction in _DIRECTIONS
    ]


def _number(convention: str, name: str) -> Any:
    """Of the last layer; what is missing, because all values are equal, is 0."""
    return lambda result: result["curvature"]["last"][convention][name] or 0.0


def _rejected(cell: Pairs, convention: str) -> int:
    tests = [result["curvature"]["last"][convention]["dip_p"] for _, result in cell]
    return sum(p is not None and p < _LEVEL for p in tests)


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (data, direction), cell in by(pairs, "data", "direction").items():
        for convention in PRESETS:
            row: dict[str, Any] = {"data": data, "direction": direction, "convention": convention, "trials": len(cell)}
            row["gap"], row["gap_half_width"] = mean_and_half(values(cell, lambda r: r["gap"]))
            for name in ("dip", "mean", "q95", "trimmed_q95", "zero_share", "outlier_share"):
                row[name] = mean_and_half(values(cell, _number(convention, name)))[0]
            row["one_mode_rejected"] = _rejected(cell, convention)
            rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for (data,), cell in by(pairs, "data").items():
        sides = by(cell, "direction")
        less, more = sides[("decrease",)], sides[("increase",)]
        where = described(cell[0][0])
        for convention in PRESETS:
            counts = f"{_rejected(more, convention)} and {_rejected(less, convention)} of {len(more)}"
            findings.append(
                judge(
                    "increasing variance introduces a second mode of curvature",
                    where,
                    matched(less, more, _number(convention, "dip")),
                    convention=convention,
                    measure=f"Hartigans' dip, increase minus decrease; one mode is rejected in {counts} runs",
                )
            )
            both = [r for _, r in more if r["curvature"]["last"][convention]["high_mode"] is not None]
            place = [r["curvature"]["last"][convention]["high_mode"] for r in both]
            middle = float(np.mean(values(less, _number(convention, "mean"))))
            if len(place) > 1:
                findings.append(
                    judge(
                        "the second mode is one of highly positive curvature",
                        where,
                        np.array(place) - middle,
                        convention=convention,
                        measure="upper mode with increased variance minus mean curvature with decreased variance",
                    )
                )
            findings.append(
                judge_association(
                    "a second mode goes with a smaller gap between training and test accuracy",
                    where,
                    [_number(convention, "dip")(r) for _, r in cell],
                    [-r["gap"] for _, r in cell],
                    [data] * len(cell),
                    seeds=[config["seed"] for config, _ in cell],
                    convention=convention,
                    measure="rank correlation of dip and minus the gap over runs",
                )
            )
    return findings


def _figure(pairs: Pairs) -> Any:
    note = "last layer, variance decreased (blue) and increased (red)"
    return panels_by_data(pairs, "direction", lambda direction: (direction, _COLOURS[direction]), note)


STUDY = Study(
    "section-5-1",
    1,
    "geoattn.studies.ricci.section_5_1:trial",
    _sizes,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Section 5.1",
    how="L-ViT trained with the variance of attention increased or decreased; test of one mode (Hartigans' dip, for the"
    " number of independent values that the samples are worth), place of the upper mode, gap; seed by seed.",
)
