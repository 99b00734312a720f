"""The trials of the studies at the paper's size, in the order in which they are done.

Seeds go round: all data sets and directions of seed 0 come before seed 1, so that what is done is balanced at any time.
``draw`` gives each seed its own perturbed test rows, so that intervals over seeds hold for more than one draw of them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["DIRECTIONS", "PLANS", "strengths"]

DIRECTIONS = ("decrease", "none", "increase")
_SEEDS = {"fashion-mnist": 6, "mnist": 5, "cifar10": 5}
_EPOCHS = {"fashion-mnist": 20, "mnist": 20, "cifar10": 40}
_BERT_RATES = {"learns": 1e-4, "paper": 5e-6}

Configs = list[dict[str, Any]]


@cache
def strengths() -> dict[str, Any]:
    """What the pilot fixed; see strengths.toml."""
    return tomllib.loads(files("geoattn.studies.ricci").joinpath("strengths.toml").read_text(encoding="utf-8"))


def _pushed(base: dict[str, Any], direction: str, strength: float) -> dict[str, Any]:
    return {**base, "direction": direction, **({} if direction == "none" else {"strength": strength})}


def strength_pilot() -> Configs:
    """Four strengths in both directions on 12,800 rows of Fashion-MNIST, 3 epochs, one seed that no other study has."""
    base = {"data": "fashion-mnist", "seed": 100, "epochs": 3, "limit": 12800}
    pushed = [(s, d) for s in (0.1, 0.3, 1.0, 0.03) for d in ("decrease", "increase")]
    return [_pushed(base, "none", 0.0), *(_pushed(base, d, s) for s, d in pushed)]


def adjusted_lvit() -> Configs:
    """Table 1, Figures 4 and 5: three data sets, three directions. CIFAR-10 comes after two seeds of the others.

    >>> len(adjusted_lvit()), adjusted_lvit()[0]["data"]
    (48, 'fashion-mnist')
    """
    order = sorted(
        (seed + 1.5 if data == "cifar10" else float(seed), place, data, seed)
        for place, data in enumerate(_SEEDS)
        for seed in range(_SEEDS[data])
    )
    return [
        _pushed({"data": data, "seed": seed, "epochs": _EPOCHS[data]}, direction, strengths()["main"])
        for _, _, data, seed in order
        for direction in DIRECTIONS
    ]


def adjusted_headlines() -> Configs:
    """Table 1, Figures 9 and 10 for Headlines: 3 seeds at a rate that learns, and one run at the paper's rate."""
    base = {"data": "headlines", "length": 128}
    learning = [
        _pushed({**base, "epochs": 10, "seed": seed, "rate": _BERT_RATES["learns"]}, direction, strengths()["main"])
        for seed in range(3)
        for direction in DIRECTIONS
    ]
    return [*learning, {**base, "epochs": 20, "seed": 0, "rate": _BERT_RATES["paper"], "direction": "none"}]


def masked_lvit() -> Configs:
    """Figures 13 and 14: edges masked while training at four rates, stopped at the paper's validation accuracy."""
    base = {"data": "fashion-mnist", "epochs": 20, "direction": "none", "early_stopping": True}
    return [{**base, "seed": seed, "draw": seed, "mask": mask} for seed in range(4) for mask in (0.0, 0.2, 0.5, 0.8)]


def curvature_lvit() -> Configs:
    """Lemma 4.2 without a proxy: the exact curvature pushed up and down, a quarter of the epochs."""
    base = {"data": "fashion-mnist", "epochs": 5, "regulariser": "curvature"}
    return [
        _pushed({**base, "seed": seed, "draw": seed}, direction, strengths()["main"])
        for seed in range(4)
        for direction in DIRECTIONS
    ]


def forgetting_lvit() -> Configs:
    """Figures 7 and 11: Fashion-MNIST with the variance pushed, then MNIST without; 5 epochs each."""
    base = {"first": "fashion-mnist", "second": "mnist", "epochs": 5}
    return [
        _pushed({**base, "seed": seed}, direction, strengths()["main"]) for seed in range(3) for direction in DIRECTIONS
    ]


def dose_response() -> Configs:
    """Four strengths in both directions on Fashion-MNIST, a third of the epochs; `none` is the dose 0."""
    base = {"data": "fashion-mnist", "epochs": 7}
    return [
        config
        for seed in range(3)
        for config in (
            _pushed({**base, "seed": seed, "draw": seed}, "none", 0.0),
            *(
                _pushed({**base, "seed": seed, "draw": seed}, direction, strength)
                for strength in strengths()["doses"]
                for direction in ("decrease", "increase")
            ),
        )
    ]


#: Name of the study, version of its trial, trial and configurations; in the order in which they are done.
PLANS: dict[str, tuple[int, str, Any]] = {
    "strength-pilot": (1, "geoattn.studies.ricci.adjusted_lvit:trial", strength_pilot),
    "adjusted-lvit": (1, "geoattn.studies.ricci.adjusted_lvit:trial", adjusted_lvit),
    "adjusted-headlines": (1, "geoattn.studies.ricci.adjusted_bert:trial", adjusted_headlines),
    "masked-lvit": (1, "geoattn.studies.ricci.adjusted_lvit:trial", masked_lvit),
    "curvature-lvit": (1, "geoattn.studies.ricci.adjusted_lvit:trial", curvature_lvit),
    "forgetting-lvit": (1, "geoattn.studies.ricci.forgetting_lvit:trial", forgetting_lvit),
    "dose-response": (1, "geoattn.studies.ricci.adjusted_lvit:trial", dose_response),
}
