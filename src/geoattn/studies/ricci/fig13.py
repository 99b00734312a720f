"""Figure 13 of the Ricci paper: accuracy drop of models that were trained with masked attention edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.cells import Pairs, by, matched, mean_and_half, values
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described, title_of
from geoattn.studies.ricci.masked_training import masked_configs
from geoattn.studies.ricci.trained_models import main_perturbation

__all__ = ["STUDY"]

_MARGIN = 0.05  # a loss of accuracy below it is "low"


def _rho(result: Any) -> float:
    return result["rho"][main_perturbation(result)]


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (data, model, mask), cell in by(pairs, "data", "model", "mask").items():
        row: dict[str, Any] = {"data": data, "model": model, "mask": mask, "trials": len(cell)}
        for name in ("test_accuracy", "epochs"):
            row[name], row[f"{name}_half_width"] = mean_and_half(values(cell, lambda r, n=name: r[n]))
        for name in cell[0][1]["rho"]:
            row[f"rho {name}"], row[f"rho {name} half width"] = mean_and_half(
                values(cell, lambda r, n=name: r["rho"][n])
            )
        rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for cell in by(pairs, "data").values():
        rates = {mask: part for (mask,), part in by(cell, "mask").items()}
        middle = [rate for rate in rates if 0.2 <= rate <= 0.5]
        for kind, number in (("", _rho), (" (FGSM)", lambda r: r["rho"]["FGSM"])):
            gains = np.mean([matched(rates[rate], rates[0.0], number) for rate in middle], axis=0)
            findings.append(
                judge(
                    "masking edges at rates from 0.2 to 0.5 makes the model more robust",
                    described(cell[0][0]),
                    gains,
                    measure=f"rho{kind} without a mask minus mean rho at {', '.join(map(str, middle))}",
                )
            )
        top = max(rates)
        kept = matched(rates[0.0], rates[top], lambda r: r["test_accuracy"]) + _MARGIN
        findings.append(
            judge(
                "low degradation of accuracy even at very high masking rates",
                described(cell[0][0]),
                kept,
                measure=f"accuracy at rate {top} minus accuracy without a mask, plus {_MARGIN} (what counts as low)",
            )
        )
    return findings


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    cells = by(pairs, "data")
    figure = Figure(figsize=(2.5 * len(cells) + 0.4, 4.4), layout="constrained")
    axes = figure.subplots(2, len(cells), squeeze=False)
    for column, ((data,), cell) in zip(axes.T, cells.items(), strict=True):
        rates = by(cell, "mask")
        places = [rate for (rate,) in rates]
        names = [main_perturbation(cell[0][1]), "FGSM"]
        for name, colour in zip(names, ("tab:blue", "tab:red"), strict=True):
            found = [mean_and_half(values(part, lambda r, n=name: r["rho"][n])) for part in rates.values()]
            heights, halves = [m for m, _ in found], [h or 0 for _, h in found]
            column[0].errorbar(places, heights, halves, fmt="o-", ms=3, lw=1, color=colour, label=name)
        found = [mean_and_half(values(part, lambda r: r["test_accuracy"])) for part in rates.values()]
        column[1].errorbar(places, [m for m, _ in found], [h or 0 for _, h in found], fmt="o-", ms=3, lw=1, color="0.3")
        column[0].set_title(title_of(data), fontsize=9)
        column[0].legend(fontsize=6, frameon=False)
        column[1].set_xlabel("mask rate in training")
    axes[0, 0].set_ylabel("rho (smaller: more robust)")
    axes[1, 0].set_ylabel("clean test accuracy")
    return figure


STUDY = Study(
    "fig13",
    1,
    "geoattn.studies.ricci.masked_training:trial",
    masked_configs,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Figure 13, Appendix E.3",
    how="L-ViT and BERT-Tiny trained from random weights with a Bernoulli mask on the logits, tested without it;"
    " accuracy drop under elastic and perspective changes, or characters and words substituted; seed by seed.",
)
