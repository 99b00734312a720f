"""Training with the local Lipschitz constant in the loss: does it fall, and what becomes of accuracy and robustness?"""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, interval, judge
from geoattn.studies.engine.study import Pairs, Study

__all__ = ["STUDY", "trial"]

_PERTURBATIONS = ("flip 0.4", "blur 0.4", "rotation 0.4", "perspective 0.5")
_ATTACKS = (0.002, 0.01)  # steps of the gradient sign, in pixels in [0, 1]
_COLOURS = ("#555555", "#0072B2", "#D55E00")


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Train L-ViT once; local constants of its heads, accuracy, and accuracy under noise and perturbations."""
    from geoattn.datasets.loader import load_data
    from geoattn.perturbations.attacks.gradient_sign import fgsm
    from geoattn.perturbations.paper import image_perturbations
    from geoattn.perturbations.robustness_table import robustness
    from geoattn.profiles.model_constants import model_smoothness
    from geoattn.training.loop import train
    from geoattn.training.recipe import Recipe

    settings = dict(config)
    gamma, rows = settings.pop("gamma"), settings.pop("probe_rows")
    chosen = (("lipschitz", {"gamma": gamma, "heads": 2, "tolerance": 1e-2, "seed": 0}),) if gamma else ()
    done = train(Recipe(**settings, regularisers=chosen))
    test = load_data(done.recipe.data, split="test", limit=done.recipe.test_limit, seed=done.recipe.data_seed)
    assert test.images is not None
    constants: Any = model_smoothness(done.model, test.subset(range(rows)), tolerance=1e-3, whole=False).to_pandas()
    wanted = [p for p in image_perturbations(test.images.shape[-1]) if p.name in _PERTURBATIONS]
    table = robustness(done.model, test, wanted, resamples=100, examples=0)
    attack = fgsm(done.model, test, steps=_ATTACKS, resamples=100)
    by_layer = constants.groupby("layer")["value"].mean()
    return {
        "train_accuracy": done.train_accuracy, "test_accuracy": done.test_accuracy,
        "constants": [round(float(v), 5) for v in by_layer], "largest": round(float(constants["value"].max()), 5),
        "loss": [round(float(row["loss"]), 5) for row in done.history if "loss" in row],
        "adversarial": {f"{step:g}": drop.perturbed for step, drop in zip(_ATTACKS, attack.drops, strict=True)},
        "rho": {name: drop.rho for name, drop in zip(table.names, table.drops, strict=True)},
    }  # fmt: skip


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: all of Fashion-MNIST, 3 epochs; small: 2,000 images, 4 epochs; both at a rate of 1e-3 and 3 seeds."""
    settings: dict[str, Any] = {"data": "fashion-mnist", "probe_rows": 16, "rate": 1e-3}
    if size == "paper":
        settings.update(epochs=3, test_limit=5000)
    if size == "small":
        settings.update(epochs=4, limit=2000, test_limit=500)
    if size == "smoke":
        settings.update(
            data="digits", epochs=2, limit=64, test_limit=40, probe_rows=2,
            changes={"depth": 1, "dim": 16, "dim_head": 16},
        )  # fmt: skip
    seeds = 2 if size == "smoke" else 3
    return [{**settings, "seed": s, "gamma": g} for s in range(seeds) for g in (0.0, 0.1)]


def _numbers(result: Any) -> dict[str, float]:
    return {
        "mean local constant": float(np.mean(result["constants"])), "largest local constant": result["largest"],
        "train accuracy": result["train_accuracy"], "test accuracy": result["test_accuracy"],
        "last loss": result["loss"][-1],
        **{f"accuracy, gradient sign {k}": v for k, v in result["adversarial"].items()},
        **{f"rho {k}": v for k, v in result["rho"].items()},
    }  # fmt: skip


def _by_gamma(pairs: Pairs) -> dict[float, dict[str, np.ndarray]]:
    """Numbers over seeds, by gamma and name."""
    found: dict[float, dict[str, list[float]]] = {}
    for config, result in sorted(pairs, key=lambda pair: pair[0]["seed"]):
        for name, value in _numbers(result).items():
            found.setdefault(config["gamma"], {}).setdefault(name, []).append(value)
    return {g: {name: np.array(v) for name, v in names.items()} for g, names in found.items()}


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    by, rows = _by_gamma(pairs), []
    for gamma, numbers in by.items():
        for name, values in numbers.items():
            change, low, high = interval(values - by[0.0][name])
            rows.append({
                "gamma": gamma, "measure": name, "seeds": len(values), "mean": values.mean(), "change": change,
                "change_low": low, "change_high": high,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    by, data = _by_gamma(pairs), pairs[0][0]["data"]
    found = []
    for gamma in (g for g in by if g):
        for claim, name, sign in (
            ("the Lipschitz regulariser lowers the local constant", "mean local constant", -1),
            ("the Lipschitz regulariser raises test accuracy", "test accuracy", 1),
            (
                "the Lipschitz regulariser raises accuracy under a gradient-sign attack",
                "accuracy, gradient sign 0.01",
                1,
            ),
        ):
            found.append(
                judge(
                    claim, f"{data}, gamma {gamma:g}", sign * (by[gamma][name] - by[0.0][name]),
                    measure=f"{name}, {'with' if sign > 0 else 'without'} minus"
                    f" {'without' if sign > 0 else 'with'}, one per seed",
                )
            )  # fmt: skip
    return found


def _bars(ax: Any, values: list[np.ndarray], beside: float, **style: Any) -> None:
    """Means over seeds with their ranges, moved to the side so that none hides another."""
    middle = np.array([v.mean() for v in values])
    ranges = [middle - [v.min() for v in values], [v.max() for v in values] - middle]
    ax.errorbar(np.arange(len(values)) + beside, middle, ranges, capsize=2, ms=4, **style)


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    gammas = list(dict.fromkeys(c["gamma"] for c, _ in pairs))
    by = _by_gamma(pairs)
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    names = [n for n in by[gammas[0]] if n.startswith("accuracy")]
    for place, (gamma, colour) in enumerate(zip(gammas, _COLOURS, strict=False)):
        beside = 0.1 * (place - (len(gammas) - 1) / 2)
        label = f"gamma = {gamma:g}" if gamma else "without"
        for config, result in pairs:
            if config["gamma"] == gamma:
                axes[0].plot(result["constants"], ".-", color=colour, lw=0.8, ms=4, label=label)
                label = None
        values = [by[gamma][n] for n in ("test accuracy", *names)]
        _bars(axes[1], values, beside, fmt="o-", color=colour)
        drops = [by[gamma][n] for n in by[gamma] if n.startswith("rho")]
        _bars(axes[2], drops, beside, fmt="o", color=colour)
    axes[0].set(title="local constant, a line per seed", xlabel="layer", ylim=(0, None))
    axes[0].set_xticks(range(len(pairs[0][1]["constants"])))
    axes[1].set_xticks(range(len(names) + 1), ["clean", *(n.split()[-1] for n in names)])
    axes[1].set(title="test accuracy, mean and range", xlabel="size of a gradient-sign attack")
    labels = [n.removeprefix("rho ") for n in by[gammas[0]] if n.startswith("rho")]
    axes[2].set_xticks(range(len(labels)), labels, fontsize=7)
    axes[2].set_title("accuracy lost, rho")
    axes[0].legend(fontsize="small")
    return figure


STUDY = Study(
    "lipschitz-training", 1, "geoattn.studies.smoothness.lipschitz_training:trial", _sizes, _table, _figure, _verdict,
    paper="smoothness", place="a question of ours: smoothness as a loss",
    how="L-ViT trained with the local constant of two drawn heads in the loss of each step, and without, same seeds;"
    " constants at 16 test images, accuracy at 5,000 (paper) or 500 (small): clean, attacked along the sign of the"
    " gradient, and perturbed.",
)  # fmt: skip
