"""Do heads with low curvature amplify more? Local Lipschitz constants and curvature of the same heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.study import Study

__all__ = ["STUDY", "trial"]

Pairs = list[tuple[dict[str, Any], Any]]

CONVENTIONS = ("markov", "grc-0.5", "grc-0.6", "hop")
_TOKENS = 32  # of a text, at most


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Mean curvature by convention, variance of the weights and mean local constant of each head, on a few samples."""
    from geoattn.profiles.model_constants import model_smoothness
    from geoattn.profiles.profiling import profile

    model, batches = _inputs(config)
    made = profile(model, batches, convention=CONVENTIONS, lenses=["weights"], examples=0, resamplings=2, threads=1)
    smooth: Any = model_smoothness(model, batches, whole=False, tolerance=1e-3).summary()
    constants = {(row.layer, row.head): float(row.value) for row in smooth.itertuples()}
    t = made.table
    heads = t[t["head"].notna() & t["layer"].notna()]
    rows = []
    for k, count in enumerate(made.settings["heads"]):
        for h in range(count):
            mine = heads[(heads["layer"] == k) & (heads["head"] == h)]
            row: dict[str, Any] = {"layer": k, "head": h}
            for convention in CONVENTIONS:
                row[convention] = _value(mine, "curvature", convention, "mean")
            row["variance"] = _value(mine, "weights", "", "variance")
            constant = constants.get((k, h), math.nan)
            row["constant"] = constant if math.isfinite(constant) else None
            rows.append(row)
    return {"rows": rows}


def _value(rows: Any, lens: str, convention: str, statistic: str) -> float | None:
    found = rows[(rows["lens"] == lens) & (rows["convention"] == convention) & (rows["statistic"] == statistic)]
    value = float(found["value"].iloc[0]) if len(found) else math.nan
    return value if math.isfinite(value) else None


def _inputs(config: dict[str, Any]) -> tuple[Any, Any]:
    from geoattn.datasets.loader import load_data
    from geoattn.models.loading import load_model
    from geoattn.studies.ricci.text_models import text_model

    rows = range(config["first"], config["first"] + config["samples"])
    if config["model"] == "lvit-digits":
        return load_model("lvit-digits"), load_data("digits", split="test").subset(rows)
    model, tokenizer = text_model(config["model"])
    texts = load_data(config["data"], split="test", limit=rows.stop, seed=0).texts
    assert texts is not None
    items = (tokenizer(texts[k], return_tensors="pt", truncation=True, max_length=_TOKENS) for k in rows)
    return model, [{key: value for key, value in item.items() if key != "token_type_ids"} for item in items]


def _sizes(size: str) -> list[dict[str, Any]]:
    if size == "smoke":
        plan = [("lvit-digits", "digits", 1, 2)]
    elif size == "small":
        plan = [("lvit-digits", "digits", 2, 32), ("minilm", "sst2", 2, 6), ("stories260K", "sst2", 2, 8)]
    else:
        plan = [("lvit-digits", "digits", 11, 32), ("minilm", "sst2", 25, 8), ("stories260K", "sst2", 25, 8)]
    return [
        {"model": model, "data": data, "first": k * samples, "samples": samples}
        for model, data, count, samples in plan
        for k in range(count)
    ]


def _heads(pairs: Pairs) -> dict[tuple[str, str], Any]:
    """A table of heads by model and data: means over the trials."""
    import pandas as pd

    found: dict[tuple[str, str], list[Any]] = {}
    for config, result in pairs:
        found.setdefault((config["model"], config["data"]), []).extend(result["rows"])
    tables: dict[tuple[str, str], Any] = {}
    for key, rows in found.items():
        frame: Any = pd.DataFrame(rows).astype(float)
        tables[key] = frame.groupby(["layer", "head"]).mean().reset_index()
    return tables


def _links(pairs: Pairs) -> list[dict[str, Any]]:
    """Rank correlations over heads, of curvature and of the variance of the weights with the constant."""
    from geoattn.statistics.association import rank_correlation

    rows = []
    for (model, data), table in _heads(pairs).items():
        several = bool((table.groupby("layer").size() > 1).all())
        for name in (*CONVENTIONS, "variance"):
            good = table[[name, "constant"]].notna().all(axis=1)
            x, y = table[name][good].to_numpy(), table["constant"][good].to_numpy()
            for within in (False, True) if several else (False,):
                groups = table["layer"][good].to_numpy() if within else None
                if len(x) < 4 or np.ptp(x) == 0:
                    continue
                link = rank_correlation(x, y, groups)
                rows.append({
                    "model": model, "data": data, "number": name, "within_layers": within, "heads": int(good.sum()),
                    "correlation": link.correlation, "low": link.low, "high": link.high, "p_value": link.p_value,
                })  # fmt: skip
    return rows


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    return pd.DataFrame(_links(pairs))


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for row in _links(pairs):
        if row["number"] == "variance":
            continue
        value, low, high = -row["correlation"], -row["high"], -row["low"]
        verdict = "replicated" if low > 0 else "contradicted" if high < 0 else "not replicated"
        where = " (ranks within layers)" if row["within_layers"] else ""
        findings.append(
            Finding(
                "heads with low curvature amplify more", f"{row['model']} on {row['data']}{where}", value, low, high,
                row["heads"], verdict, row["number"],
                "minus the rank correlation of mean curvature and local Lipschitz constant over heads",
            )
        )  # fmt: skip
    return findings


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    tables = _heads(pairs)
    links = {(r["model"], r["number"]): r for r in _links(pairs) if not r["within_layers"]}
    figure = Figure(figsize=(3.0 * len(CONVENTIONS), 2.8 * len(tables)), layout="constrained")
    grid = figure.subplots(len(tables), len(CONVENTIONS), squeeze=False)
    for axes, ((model, _), table) in zip(grid, tables.items(), strict=True):
        points: Any = None
        for ax, name in zip(axes, CONVENTIONS, strict=True):
            points = ax.scatter(table[name], table["constant"], c=table["layer"], s=14, cmap="viridis")
            link = links.get((model, name))
            if link is not None:
                words = f"{link['correlation']:+.2f} [{link['low']:+.2f}, {link['high']:+.2f}]"
                ax.set_title(f"{name}: {words}", fontsize=8)
            ax.set_xlabel("mean curvature", fontsize=8)
            ax.tick_params(labelsize=7)
        axes[0].set_ylabel(f"{model}\nlocal constant of a head", fontsize=8)
        figure.colorbar(points, ax=axes[-1], label="layer")
    return figure


STUDY = Study(
    "smoothness-curvature", 1, "geoattn.studies.smoothness.smoothness_curvature:trial", _sizes, _table, _figure,
    _verdict,
    paper="smoothness", place="a question of ours: the link to curvature",
    how="Mean curvature and mean local Lipschitz constant of each head on the same samples; Spearman's rank correlation"
    " over heads with a bootstrap over heads, over all heads and with ranks within layers.",
)  # fmt: skip
