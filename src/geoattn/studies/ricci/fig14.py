"""Figure 14 of the Ricci paper: curvature of models that were trained with masked attention edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.cells import (
    Pairs,
    by,
    judge_association,
    judge_with_trimmed,
    matched,
    mean_and_half,
    values,
)
from geoattn.studies.engine.distribution_panel import panels_by_data
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study
from geoattn.studies.engine.tasks import described
from geoattn.studies.ricci.masked_training import masked_configs
from geoattn.studies.ricci.trained_models import main_perturbation

__all__ = ["STUDY"]

_STATISTICS = (
    "distance_to_one", "trimmed_distance_to_one", "negative_share", "trimmed_negative_share", "std", "trimmed_std",
    "q05", "zero_share", "outlier_share", "dip",
)  # fmt: skip
_SHOWN = (0.0, 0.2, 0.5, 0.8)


def _number(convention: str, name: str) -> Any:
    return lambda result: result["curvature"]["last"][convention][name]


def _dip(convention: str) -> Any:
    """0 where all values are equal."""
    return lambda result: result["curvature"]["last"][convention]["dip"] or 0.0


def _rejected(cell: Pairs, convention: str) -> int:
    tests = [result["curvature"]["last"][convention]["dip_p"] for _, result in cell]
    return sum(p is not None and p < 0.05 for p in tests)


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (data, model, mask), cell in by(pairs, "data", "model", "mask").items():
        for convention in PRESETS:
            row: dict[str, Any] = {"data": data, "model": model, "mask": mask, "convention": convention}
            row["trials"] = len(cell)
            for name in _STATISTICS:
                numbers = [v for v in (_number(convention, name)(r) for _, r in cell) if v is not None]
                row[name], half = mean_and_half(np.array(numbers)) if numbers else (None, None)
                if name in ("distance_to_one", "negative_share", "std"):
                    row[f"{name}_half_width"] = half
            row["one_mode_rejected"] = _rejected(cell, convention)
            rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for (data,), cell in by(pairs, "data").items():
        rates = {mask: part for (mask,), part in by(cell, "mask").items()}
        low, high = rates[0.0], rates[top := 0.8 if 0.8 in rates else max(rates)]
        for convention in PRESETS:
            for claim, name, words in (
                (
                    "negative curvature values diminish at higher masking rates",
                    "negative_share",
                    "share of negative edges",
                ),
                ("curvature values converge to a common modal value", "std", "standard deviation of curvature"),
            ):

                def fall(prefix: str, name: str = name, low: Any = low, high: Any = high, c: str = convention) -> Any:
                    return matched(high, low, _number(c, f"{prefix}{name}"))

                measure = f"{words}, last layer, without a mask minus at rate {top}"
                findings += judge_with_trimmed(claim, described(cell[0][0]), fall, convention, measure)
            findings.append(
                judge(
                    "the distribution comes closer to one with a single mode",
                    described(cell[0][0]),
                    values(low, _dip(convention)) - values(high, _dip(convention)),
                    convention=convention,
                    measure=f"Hartigans' dip, last layer, without a mask minus at rate {top}; one mode is rejected in"
                    f" {_rejected(low, convention)} and {_rejected(high, convention)} of {len(low)} runs",
                )
            )
        rho = [r["rho"][main_perturbation(r)] for _, r in cell]
        for convention in PRESETS:
            findings.append(
                judge_association(
                    "more positive curvature goes with a smaller drop under perturbation",
                    described(cell[0][0]),
                    [_number(convention, "distance_to_one")(r) for _, r in cell],
                    rho,
                    [data] * len(cell),
                    seeds=[config["seed"] for config, _ in cell],
                    convention=convention,
                    measure="rank correlation of distance to one and rho over rates and seeds",
                )
            )
    return findings


def _figure(pairs: Pairs) -> Any:
    from matplotlib import colormaps

    def style(mask: float) -> tuple[str, Any] | None:
        return (f"{mask:g}:", colormaps["viridis"](mask)) if mask in _SHOWN else None

    return panels_by_data(pairs, "mask", style, "last layer, by mask rate")


STUDY = Study(
    "fig14",
    1,
    "geoattn.studies.ricci.masked_training:trial",
    masked_configs,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Figure 14, Appendix E.3",
    how="The models of Figure 13, with the mask off: curvature of the last layer on fixed test rows; seed by seed.",
)
