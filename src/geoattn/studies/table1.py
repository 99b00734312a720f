"""Table 1 of the Ricci paper: accuracies and their gap when the variance of attention is pushed up or down."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.study import Finding, Study, interval, judge

__all__ = ["STUDY", "trial"]

_NUMBERS = ("train_accuracy", "test_accuracy", "gap")
_DIRECTIONS = ("decrease", "increase")
_PAPER = ("mnist", "fashion-mnist", "cifar10", "sst2", "imdb", "headlines")


def trial(config: dict[str, Any]) -> dict[str, float]:
    """Train once by a recipe; accuracies in evaluation mode on all training and test rows, and the last losses."""
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    settings = dict(config)
    direction, gamma = settings.pop("direction"), settings.pop("gamma")
    done = train(Recipe(**settings, regularisers=(("variance", {"direction": direction, "gamma": gamma}),)))
    last = done.history[-1]
    return {
        "train_accuracy": done.train_accuracy, "test_accuracy": done.test_accuracy,
        "gap": done.train_accuracy - done.test_accuracy, "loss": last["loss"], "variance": last["variance"],
    }  # fmt: skip


def _sizes(size: str) -> list[dict[str, Any]]:
    """Trials of a size: the paper has 30 per data set and direction."""
    if size == "smoke":
        shape = {"depth": 1, "dim": 16, "dim_head": 16}
        plan = [("digits", 2, {"epochs": 1, "limit": 64, "test_limit": 40, "changes": shape})]
    elif size == "small":
        images = {"epochs": 5, "limit": 2000, "test_limit": 1000}
        texts = {"epochs": 4, "limit": 2000, "length": 32, "rate": 5e-4}  # at 5e-6 so few rows teach nothing
        plan = [("digits", 30, {}), *((data, 5, images) for data in _PAPER[:3]), ("sst2", 5, texts)]
    else:
        plan = [(data, 30, {}) for data in _PAPER]
    return [
        {"data": data, "seed": seed, "direction": direction, "gamma": 1.0, **settings}
        for data, seeds, settings in plan
        for seed in range(seeds)
        for direction in _DIRECTIONS
    ]


def _values(pairs: list[tuple[dict[str, Any], Any]], data: str, direction: str, number: str) -> Any:
    """One number per seed, in the order of seeds: both directions have the same ones."""
    chosen = [(c["seed"], r[number]) for c, r in pairs if c["data"] == data and c["direction"] == direction]
    return np.array([value for _, value in sorted(chosen)])


def _data(pairs: list[tuple[dict[str, Any], Any]]) -> list[str]:
    return list(dict.fromkeys(c["data"] for c, _ in pairs))


def _table(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    import pandas as pd

    rows = []
    for data in _data(pairs):
        for direction in _DIRECTIONS:
            row: dict[str, Any] = {"data": data, "direction": direction}
            for number in _NUMBERS:
                values = _values(pairs, data, direction, number)
                mean, low, _ = interval(values)
                row.update({"trials": len(values), number: mean, f"{number}_half_width": mean - low})
            rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: list[tuple[dict[str, Any], Any]]) -> list[Finding]:
    """Pairs of runs that differ in the direction alone: same weights at the start, same order of rows."""
    findings = []
    for data in _data(pairs):
        for claim, number, first, second in (
            ("decreasing variance gives the higher test accuracy", "test_accuracy", "decrease", "increase"),
            ("increasing variance gives the smaller gap", "gap", "decrease", "increase"),
            ("decreasing variance gives the higher training accuracy", "train_accuracy", "decrease", "increase"),
        ):
            differences = _values(pairs, data, first, number) - _values(pairs, data, second, number)
            findings.append(judge(claim, data, differences))
    return findings


def _figure(pairs: list[tuple[dict[str, Any], Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(_NUMBERS))
    names = _data(pairs)
    for ax, number in zip(axes, _NUMBERS, strict=True):
        for shift, direction in zip((-0.12, 0.12), _DIRECTIONS, strict=True):
            means = [interval(_values(pairs, data, direction, number)) for data in names]
            halves = [mean - low if np.isfinite(low) else 0.0 for mean, low, _ in means]
            places = np.arange(len(names)) + shift
            ax.errorbar(places, [mean for mean, _, _ in means], halves, fmt="o", capsize=3, label=direction)
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
        ax.set_title(number.replace("_", " "))
    axes[0].legend(title="variance")
    return figure


STUDY = Study("table1", 1, "geoattn.studies.table1:trial", _sizes, _table, _figure, _verdict)
