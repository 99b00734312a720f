"""Results by hand for the trials of the studies at the paper's size, from the configuration alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.ricci.model_pair import packed

__all__ = ["made_up"]

_CONVENTIONS = ("markov", "hop", "grc-0.6", "grc-0.5")
_NAMES = ("flip + blur + rotation 0.4", "elastic + perspective", "word swap 0.4", "characters + words 0.2")
_TEXTS = ("sst2", "imdb", "headlines")
_ACCURACIES = ("train_accuracy", "running_accuracy", "test_accuracy", "gap", "running_gap")


_SHIFTS = {"increase": 0.1, "decrease": -0.1}  # of the curvature, so that the arms have an order


def made_up(config: dict[str, Any]) -> dict[str, Any]:
    """Every number that a study of full size looks at; noise by seed, and curvature by model."""
    rng = np.random.default_rng(config["seed" if "seed" in config else "sample"])
    mean = 0.5 + _SHIFTS.get(str(config.get("direction")), 0.0) + 0.01 * rng.random()
    shape = {c: {"quantiles": np.sort(rng.random(51)).tolist(), "mean": mean, "low": 0.1, "dip": rng.random(),
                 "missing": 0.0} for c in _CONVENTIONS}  # fmt: skip
    drops = {"clean": 0.9, "perturbed": 0.5, "rho": 0.4, "relative_drop": rng.random()}
    bits = {name: packed(rng.random(40) < 0.7) for name in ("clean", *_NAMES)}
    curvature = dict.fromkeys(_CONVENTIONS, len(str(config.get("model", ""))) + 0.01 * rng.random())
    names = ("distance_to_one", "q05", "mean")
    if "lengths" in config:  # local constants that grow with n
        rows = [{"layer": layer, "n": n, "value": n ** (0.25 + 0.01 * rng.random()), "bound": 2.0 * n, "radius": 1.0}
                for layer in config["layers"] for n in config["lengths"]]  # fmt: skip
        return {"rows": rows}
    return {
        **dict.fromkeys(_ACCURACIES, rng.random()),
        "history": [{"epoch": 1, "loss": rng.random(), "variance": rng.random()}], "area": rng.random(),
        "lost": 0.1, "before": {"accuracy": 0.8, "variance": 0.1, "curvature": shape},
        "distribution": {"end": shape} if config.get("data") in _TEXTS else {"start": shape, "end": shape},
        "perturbed": dict.fromkeys(_NAMES, drops), "right": bits, "curvature": curvature, "rows": 40,
        "steps": [{"at": 1, "validation_accuracy": 0.8, "right": bits, "curvature": curvature}],
        "samples": {c: {n: {"first": rng.random(4).tolist(), "last": rng.random(4).tolist()} for n in names}
                    for c in shape},
        "layers": {c: {n: [0.5, 0.4] for n in names} for c in shape},
    }  # fmt: skip
