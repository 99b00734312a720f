"""Two models on the same inputs: which of them is more robust, which has the higher curvature, and do both agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoattn.studies.engine.contrasts import CONVENTIONS, Number, Runs, contrast_findings
from geoattn.studies.engine.curvature_order import HIGHER, LOWER, by_curvature
from geoattn.studies.engine.finding import Finding, interval
from geoattn.studies.engine.study import Pairs

__all__ = ["ModelPair", "packed", "unpacked"]

_PLACES = ("section_5", "appendix_e3")
_WORDS = {
    "rho": "drop of accuracy",
    "relative_drop": "relative drop of accuracy",
    "perturbed": "accuracy on perturbed {}",
    "equal": "accuracy on perturbed {} that both get right clean",
}
_BETTER_WHEN_LOW = ("rho", "relative_drop")


def packed(right: Any) -> str:
    """A bit for each row, whether it was classified right, as a hexadecimal number.

    >>> packed([True, False, False, False, True, True])
    '8c'
    """
    return np.packbits(np.asarray(right, dtype=bool)).tobytes().hex()


def unpacked(text: str) -> np.ndarray:
    """The bits of `packed`, filled up with False to a multiple of eight.

    >>> unpacked("8c")[:6].tolist()
    [True, False, False, False, True, True]
    """
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8)).astype(bool)


@dataclass(frozen=True)
class ModelPair:
    """Two models that are compared by seed on each data set.

    A result of a trial has ``test_accuracy``; ``right``, from "clean" and the name of a perturbation to the `packed`
    bits of the test rows; ``perturbed``, from the name of a perturbation to clean, perturbed, rho and relative_drop;
    and ``curvature``, the mean of the last layer by convention. ``perturbations`` are that of Section 5, which is the
    endpoint, and that of Appendix E.3. ``inputs`` says in a word what is perturbed.

    ``equal`` compares at equal clean accuracy: on the rows that both models get right when clean, how many does each
    still get right? A pair cannot show that curvature causes robustness. It shows whether both have the same order, and
    so `findings` also has each number between the model of higher and the model of lower curvature.
    """

    first: str
    second: str
    perturbations: tuple[str, str]
    inputs: str

    def with_equal(self, pairs: Pairs) -> Pairs:
        """Results with ``equal`` for each perturbation; NaN where the other model of a seed is not there yet."""
        found = []
        held = {(c["model"], c["data"], c["seed"]): r for c, r in pairs}
        for config, result in pairs:
            names = [(model, config["data"], config["seed"]) for model in (self.first, self.second)]
            equal = dict.fromkeys(self.perturbations, float("nan"))
            if config["model"] in (self.first, self.second) and all(name in held for name in names):
                both = np.logical_and(*(unpacked(held[name]["right"]["clean"]) for name in names))
                if both.any():
                    equal = {p: float(unpacked(result["right"][p])[both].mean()) for p in self.perturbations}
            found.append((config, {**result, "equal": equal}))
        return found

    def numbers(self) -> dict[str, Number]:
        """What is compared, by name."""
        numbers = {"clean": Number("accuracy", lambda r: r["test_accuracy"])}
        for place, name in zip(_PLACES, self.perturbations, strict=True):
            for part, words in _WORDS.items():
                numbers[f"{part}_{place}"] = Number(f"{words.format(self.inputs)}, {name}", _number(part, name))
        numbers["curvature"] = Number("mean curvature of the last layer", lambda r, c: _finite(r["curvature"][c]), True)
        return numbers

    def findings(self, pairs: Pairs) -> list[Finding]:
        """The second model minus the first, the first minus the second, and both ways by their curvature."""
        whole = self.with_equal(pairs)
        runs = Runs(whole, lambda c: str(c["model"]))
        numbers, both = self.numbers(), ((self.second, self.first), (self.first, self.second))
        contrasts = {
            name: (LOWER, HIGHER) if name.startswith(_BETTER_WHEN_LOW) else (HIGHER, LOWER)
            for name, number in numbers.items()
            if not number.curved and name != "clean"
        }
        ordered = by_curvature(runs, (self.first, self.second), numbers["curvature"].of, numbers, contrasts)
        return [*contrast_findings(runs, numbers, both), *ordered]

    def table(self, pairs: Pairs) -> Any:
        """A row for each model and data set: means over seeds, with half widths of 95 % intervals."""
        import pandas as pd

        runs, rows = Runs(self.with_equal(pairs), lambda c: str(c["model"])), []
        for data in runs.names():
            for model in dict.fromkeys(c["model"] for c, _ in pairs):
                row: dict[str, Any] = {"data": data, "model": model}
                row["seeds"] = len(runs.by_seed(data, model, lambda _: 0))
                if not row["seeds"]:
                    continue
                for name, number in self.numbers().items():
                    for convention in CONVENTIONS if number.curved else (None,):
                        of = number.of if convention is None else (lambda r, c=convention, n=number: n.of(r, c))
                        values = np.array(list(runs.by_seed(data, model, of).values()), dtype=float)
                        values = values[np.isfinite(values)]
                        mean, low, _ = interval(values) if len(values) else (np.nan, np.inf, np.inf)
                        column = name if convention is None else f"{name} {convention}"
                        row |= {column: mean, f"{column} half width": mean - low if np.isfinite(low) else None}
                rows.append(row)
        return pd.DataFrame(rows)

    def accuracy(self, pairs: Pairs) -> dict[str, float]:
        """Mean accuracy on clean test rows by data set and model."""
        found: dict[str, list[float]] = {}
        for config, result in pairs:
            found.setdefault(f"{config['data']}, {config['model']}", []).append(result["test_accuracy"])
        return {name: float(np.mean(values)) for name, values in found.items()}

    def figure(self, pairs: Pairs) -> Any:
        """Accuracy on clean and on perturbed inputs, a panel for each data set."""
        from matplotlib.figure import Figure

        names = list(dict.fromkeys(c["data"] for c, _ in pairs))
        columns = max(len(names), 1)  # an empty panel where no pair of models is done yet
        figure = Figure(figsize=(3.0 * columns, 2.8), layout="constrained")
        for ax, data in zip(figure.subplots(1, columns, squeeze=False)[0], names, strict=False):
            seen = set()
            for config, result in pairs:
                if config["data"] != data:
                    continue
                line = [result["test_accuracy"], *(result["perturbed"][n]["perturbed"] for n in self.perturbations)]
                colour = "tab:blue" if config["model"] == self.first else "tab:red"
                label = None if config["model"] in seen else config["model"]
                seen.add(config["model"])
                ax.plot(range(3), line, "o-", color=colour, lw=1, label=label)
            ax.set_xticks(range(3), ["clean", "Section 5", "Appendix E.3"], fontsize=7)
            ax.set_ylabel("accuracy", fontsize=8)
            ax.set_title(data, fontsize=9)
            ax.legend(fontsize=6)
        return figure


def _number(part: str, name: str) -> Callable[[Any], float]:
    if part == "equal":
        return lambda result: result["equal"][name]
    return lambda result: result["perturbed"][name][part]


def _finite(value: float | None) -> float:
    return float("nan") if value is None else float(value)
