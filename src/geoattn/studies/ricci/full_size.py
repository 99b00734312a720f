"""The studies at the paper's size: what is compared in them, their tables and their figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geoattn.studies.engine.contrasts import CONVENTIONS, Number, Runs, contrast_findings
from geoattn.studies.engine.curvature_order import HIGHER, LOWER, by_curvature
from geoattn.studies.engine.finding import Finding, interval
from geoattn.studies.engine.study import Pairs, Study
from geoattn.studies.ricci.adjusted_training import LEVELS
from geoattn.studies.ricci.dose_figure import dose_figure
from geoattn.studies.ricci.full_size_figure import losses_of, summary_figure
from geoattn.studies.ricci.plans import PLANS

__all__ = [
    "ADJUSTED_HEADLINES",
    "ADJUSTED_LVIT",
    "CURVATURE_LVIT",
    "DOSE_RESPONSE",
    "FORGETTING_LVIT",
    "MASKED_LVIT",
    "STRENGTH_PILOT",
]

_ONE_MODE = 0.05  # wide: a narrower distribution has one mode
_DIRECTIONS = (("decrease", "increase"), ("decrease", "none"), ("none", "increase"), ("increase", "decrease"))


def _shape(result: Any, convention: str) -> dict[str, Any]:
    return result["distribution"]["end"][convention]


def _quantile(level: float) -> Callable[[Any, str], float]:
    def of(result: Any, convention: str) -> float:
        quantiles = _shape(result, convention)["quantiles"]
        return float("nan") if quantiles is None else float(np.interp(level, LEVELS, quantiles))

    return of


def _curved(name: str) -> Callable[[Any, str], float]:
    def of(result: Any, convention: str) -> float:
        value = _shape(result, convention)[name]
        return float("nan") if value is None else float(value)

    return of


def _dip(result: Any, convention: str) -> float:
    """The dip of values that are nearly all alike is that of their rounding."""
    width = _quantile(0.98)(result, convention) - _quantile(0.02)(result, convention)
    return 0.0 if width < _ONE_MODE else _curved("dip")(result, convention)


def _perturbed(beginning: str, name: str) -> Callable[[Any], float]:
    """Of the perturbation whose name begins so; the last of them, which is the strongest."""
    return lambda result: [v for k, v in sorted(result["perturbed"].items()) if k.startswith(beginning)][-1][name]


_SECTION_5 = {"relative_drop": "relative drop of accuracy", "rho": "rho", "perturbed": "accuracy"}
_NUMBERS: dict[str, Number] = {
    "mean_loss": Number("mean training loss over all epochs", lambda r: float(np.mean(losses_of(r)))),
    "final_loss": Number("training loss of the last epoch", lambda r: losses_of(r)[-1]),
    "test_accuracy": Number("test accuracy", lambda r: r["test_accuracy"]),
    "running_accuracy": Number("training accuracy in training mode", lambda r: r["running_accuracy"]),
    "train_accuracy": Number("training accuracy in evaluation mode", lambda r: r["train_accuracy"]),
    "running_gap": Number("training accuracy in training mode less test accuracy", lambda r: r["running_gap"]),
    "gap": Number("training accuracy in evaluation mode less test accuracy", lambda r: r["gap"]),
    "variance": Number("variance of attention after training", lambda r: r["history"][-1]["variance"]),
    "curvature_mean": Number("mean curvature of the last layer", _curved("mean"), curved=True),
    "curvature_q05": Number("5 % quantile of curvature of the last layer", _quantile(0.05), curved=True),
    "curvature_q95": Number("95 % quantile of curvature of the last layer", _quantile(0.95), curved=True),
    "curvature_spread": Number(
        "spread of curvature, 95 % less 5 % quantile", lambda r, c: _quantile(0.95)(r, c) - _quantile(0.05)(r, c), True
    ),
    "curvature_dip": Number(f"Hartigans' dip of curvature, 0 where 96 % of it lie within {_ONE_MODE}", _dip, True),
}
_IMAGES = {
    **_NUMBERS,
    **{
        f"{name}_section_5": Number(f"{words} on flipped, blurred and rotated images", _perturbed("flip", name))
        for name, words in _SECTION_5.items()
    },
    **{
        f"{name}_appendix_e3": Number(f"{words} on elastic and perspective images", _perturbed("elastic", name))
        for name, words in _SECTION_5.items()
    },
}
_TEXTS = {
    **_NUMBERS,
    **{
        f"{name}_section_5": Number(f"{words} on texts with words swapped", _perturbed("word swap", name))
        for name, words in _SECTION_5.items()
    },
}
_FORGETTING = {
    "forgotten_share": Number(
        "area under the forgetting curve over the accuracy before", lambda r: r["area"] / r["before"]["accuracy"]
    ),
    "forgotten_area": Number("area under the forgetting curve", lambda r: r["area"]),
    "lost": Number("accuracy lost on the first task", lambda r: r["lost"]),
    "first_accuracy": Number("accuracy on the first task before the second", lambda r: r["before"]["accuracy"]),
    "variance": Number("variance of attention after the first task", lambda r: r["before"]["variance"]),
    "curvature_mean": Number(
        "mean curvature after the first task", lambda r, c: float(r["before"]["curvature"][c]["mean"]), True
    ),
}


#: What is compared between the arms of lower and of higher curvature.
_DROPS = {f"{name}_{where}": (HIGHER, LOWER) if name == "perturbed" else (LOWER, HIGHER)
          for where in ("section_5", "appendix_e3") for name in _SECTION_5}  # fmt: skip


def _direction(config: dict[str, Any]) -> str:
    return str(config["direction"])


def _mask(config: dict[str, Any]) -> str:
    return f"mask {config['mask']:g}"


def _dose(config: dict[str, Any]) -> str:
    return "none" if config["direction"] == "none" else f"{config['direction']} {config['strength']:g}"


def _study(
    name: str, place: str, how: str, numbers: dict[str, Number], contrasts: tuple[tuple[str, str], ...],
    arm: Callable[[dict[str, Any]], str] = _direction, data: Callable[[dict[str, Any]], str] = lambda c: c["data"],
    shown: tuple[str, ...] = ("mean_loss", "test_accuracy", "running_gap"), deviations: str = "",
    ordered: dict[str, tuple[str, str]] | None = None, doses: bool = False,
) -> Study:  # fmt: skip
    version, trial, plan = PLANS[name]

    def sizes(size: str) -> list[dict[str, Any]]:
        return plan() if size == "paper" else _small(plan(), size)

    def runs(pairs: Pairs) -> Runs:
        return Runs(pairs, arm, data)

    return Study(
        name, version, trial, sizes, lambda pairs: _table(runs(pairs), numbers),
        lambda pairs: (dose_figure if doses else _figure)(runs(pairs), numbers, shown),
        lambda pairs: _findings(runs(pairs), numbers, contrasts, ordered or {}),
        paper="ricci", place=place, how=how, partial=True, deviations=deviations,
        accuracy=lambda pairs: _accuracy(runs(pairs), numbers),
    )  # fmt: skip


def _findings(
    runs: Runs, numbers: dict[str, Number], contrasts: tuple[tuple[str, str], ...], ordered: dict[str, tuple[str, str]]
) -> list[Finding]:
    arms, curvature = ("decrease", "increase"), numbers["curvature_mean"].of
    return [*contrast_findings(runs, numbers, contrasts), *by_curvature(runs, arms, curvature, numbers, ordered)]


def _small(configs: list[dict[str, Any]], size: str) -> list[dict[str, Any]]:
    """smoke: the first seed on few rows, one epoch. small: on 6,400 rows, two epochs."""
    first = [config for config in configs if config["seed"] == configs[0]["seed"]]
    rows = {"limit": 96, "test_limit": 40} if size == "smoke" else {"limit": 6400, "test_limit": 2000}
    return [{**config, **rows, "epochs": 1 if size == "smoke" else 2} for config in first]


def _accuracy(runs: Runs, numbers: dict[str, Number]) -> dict[str, float]:
    """Mean accuracy on test rows (of forgetting: on the first task before the second), by data set and arm."""
    number = numbers["test_accuracy" if "test_accuracy" in numbers else "first_accuracy"]
    found = {(data, arm): runs.by_seed(data, arm, number.of) for data in runs.names() for arm in _arms(runs)}
    return {f"{data}, {arm}": float(np.mean(list(by.values()))) for (data, arm), by in found.items() if by}


def _arms(runs: Runs) -> list[str]:
    return list(dict.fromkeys(runs.arm(config) for config, _ in runs.pairs))


def _table(runs: Runs, numbers: dict[str, Number]) -> Any:
    """A row for each data set and arm: mean and half width of the 95 % interval over seeds of each number."""
    import pandas as pd

    rows = []
    for data in runs.names():
        for arm in _arms(runs):
            row: dict[str, Any] = {"data": data, "arm": arm, "trials": len(runs.by_seed(data, arm, lambda _: 0))}
            if not row["trials"]:
                continue
            for name, number in numbers.items():
                for convention in CONVENTIONS if number.curved else (None,):
                    of = number.of if convention is None else (lambda r, c=convention, n=number: n.of(r, c))
                    values = np.array(list(runs.by_seed(data, arm, of).values()), dtype=float)
                    mean, low, _ = interval(values)
                    column = name if convention is None else f"{name} {convention}"
                    row |= {column: mean, f"{column} half width": mean - low if np.isfinite(low) else None}
            rows.append(row)
    return pd.DataFrame(rows)


def _figure(runs: Runs, numbers: dict[str, Number], shown: tuple[str, ...]) -> Any:
    return summary_figure(runs, _arms(runs), numbers, shown, curves="mean_loss" in numbers)


_HOW = (
    "L-ViT of Appendix D (8 layers, width 64, Adam, rate 5e-4, batches of 64) on the full data set; paired differences"
    " by seed, each seed its own initialisation and order; pooled over data sets by a random-effects mean."
)
_OPEN = (
    "The paper gives no gamma, a and b. The strength is fixed by a pilot: the largest one that keeps the test accuracy"
    " on Fashion-MNIST within one point, so that sizes of effects hold for this strength alone."
)
_ROWS = "Perturbed accuracy is that of the first 2,000 test rows under one draw of the perturbations."
_DRAWN = "Perturbed accuracy is that of 2,000 test rows, drawn for each seed with their perturbations."
_DOSED = ("variance", "mean_loss", "test_accuracy", "curvature_mean")
STRENGTH_PILOT = _study(
    "strength-pilot", "how to choose the strength", "One seed, 12,800 rows, 3 epochs.", _IMAGES, (), _dose,
    shown=_DOSED, doses=True,
)  # fmt: skip
ADJUSTED_LVIT = _study(
    "adjusted-lvit", "Table 1, Figures 4 and 5, Section 5", _HOW, _IMAGES, _DIRECTIONS, ordered=_DROPS,
    deviations=f"5 or 6 seeds in place of 30; CIFAR-10 from a JPEG copy. {_ROWS} {_OPEN}",
)  # fmt: skip
ADJUSTED_HEADLINES = _study(
    "adjusted-headlines", "Table 1, Figures 9 and 10",
    "BERT-Tiny from random weights on Headlines, 10 epochs at rate 1e-4 (in one run without a regulariser 20 epochs at"
    " the paper's 5e-6).", _TEXTS, _DIRECTIONS,
    lambda c: _direction(c) if c["rate"] == 1e-4 else "none at the paper's rate",
    deviations=f"3 seeds in place of 30; a learning rate 20 times the paper's for half as many epochs. {_OPEN}",
)  # fmt: skip
MASKED_LVIT = _study(
    "masked-lvit", "Figures 13 and 14",
    f"{_HOW} Edges masked while training, stopped at a validation accuracy of 0.87.", _IMAGES,
    tuple(pair for m in ("0.2", "0.5", "0.8") for pair in ((f"mask {m}", "mask 0"), ("mask 0", f"mask {m}"))), _mask,
    shown=("test_accuracy", "relative_drop_appendix_e3"),
    deviations="4 seeds; one data set. Training stops at the end of an epoch, so that accuracies agree to about a"
    f" point. {_DRAWN}",
)  # fmt: skip
CURVATURE_LVIT = _study(
    "curvature-lvit", "Section 4.1", f"{_HOW} The exact curvature is the penalty; 5 epochs.", _IMAGES, _DIRECTIONS,
    deviations=f"The paper has no such experiment: it uses the variance as a proxy. One data set. {_DRAWN}",
    ordered={"mean_loss": (HIGHER, LOWER), **_DROPS},
)  # fmt: skip
FORGETTING_LVIT = _study(
    "forgetting-lvit", "Figures 7 and 11", "L-ViT on Fashion-MNIST with the variance pushed, then on MNIST without.",
    _FORGETTING, _DIRECTIONS, data=lambda c: f"{c['first']}, then {c['second']}",
    shown=("forgotten_area", "lost", "first_accuracy"),
    deviations="L-ViT with the variance pushed in place of pairs of pretrained models; 3 seeds. Each quarter of an"
    f" epoch of the second task has an optimiser of its own. {_OPEN}",
    ordered={"forgotten_share": (LOWER, HIGHER), "forgotten_area": (LOWER, HIGHER), "lost": (LOWER, HIGHER)},
)  # fmt: skip
DOSE_RESPONSE = _study(
    "dose-response", "how to choose the strength", f"{_HOW} 7 epochs.", _IMAGES,
    tuple((f"{d} {s:g}", "none") for s in (0.03, 0.1, 0.3, 1.0) for d in ("decrease", "increase")), _dose,
    shown=_DOSED, doses=True,
)  # fmt: skip
