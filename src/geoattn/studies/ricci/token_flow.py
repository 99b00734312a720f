"""Do the tokens of a real model move as the flow of equation 14 says, and does curvature follow them?"""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.study import Study

__all__ = ["STUDY", "trial"]

_PRESETS = ("markov", "grc-0.5", "grc-0.6", "hop")
_CHARACTERS = {"minilm": 160, "stories260K": 70}  # about 35 tokens each
_DIGITS = 6

Pairs = list[tuple[dict[str, Any], Any]]


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One sample of one model: what `token_flow` says of each layer."""
    import torch

    from geoattn.attention.session import capture
    from geoattn.dynamics.token_flows import token_flow

    model, batch = _model_and_batch(config)
    with capture(model, inputs=True) as record, torch.no_grad():
        model(**batch)
    done = token_flow(record, convention=list(config["conventions"]))
    result: dict[str, Any] = {"layers": len(done.names), "n": done.settings["n"], "beta": _round(done.settings["beta"])}
    for kind, path in (("model", done.model), ("flow", done.flow)):
        result[kind] = {
            "mean_cosine": _rounded(path.mean_cosine), "clusters": path.clusters.tolist(),
            "histogram": [_rounded(row) for row in path.histogram],
            "curvature": {name: _rounded(values) for name, values in path.curvature.items()},
        }  # fmt: skip
    for name in ("distance", "stay", "nearest_time", "nearest"):
        result[name] = _rounded(getattr(done, name))
    return result


def _model_and_batch(config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from geoattn.studies.ricci.text_models import long_text, text_model

    if config["model"] == "lvit-digits":
        from geoattn.datasets.loader import load_data
        from geoattn.models.loading import load_model

        images = load_data("digits", split="test").subset([config["sample"]]).pixels()
        return load_model("lvit-digits"), {"images": images}
    model, tokenizer = text_model(config["model"])
    text = long_text(config["sample"], _CHARACTERS[config["model"]])
    return model, {"input_ids": tokenizer([text], return_tensors="pt")["input_ids"]}


def _round(value: float) -> float | None:
    return round(float(value), _DIGITS) if np.isfinite(value) else None


def _rounded(values: Any) -> list[float | None]:
    return [_round(v) for v in np.asarray(values).tolist()]


def _sizes(size: str) -> list[dict[str, Any]]:
    models, samples = {
        "smoke": (("lvit-digits",), 2),
        "small": (("lvit-digits", "minilm", "stories260K"), 12),
        "paper": (("lvit-digits", "minilm", "stories260K"), 100),
    }[size]
    presets = _PRESETS[:1] if size == "smoke" else _PRESETS
    return [
        {"model": model, "sample": sample, "conventions": list(presets)}
        for model in models
        for sample in range(samples)
    ]


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for config, r in pairs:
        for k in range(r["layers"]):
            row = {"model": config["model"], "sample": config["sample"], "n": r["n"], "beta": r["beta"], "layer": k}
            for kind in ("model", "flow"):
                row |= {f"{kind}_mean_cosine": r[kind]["mean_cosine"][k], f"{kind}_clusters": r[kind]["clusters"][k]}
                row |= {f"{kind}_curvature_{name}": values[k] for name, values in r[kind]["curvature"].items()}
            rows.append(row | {name: r[name][k] for name in ("distance", "stay", "nearest_time", "nearest")})
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    found = []
    for model in dict.fromkeys(c["model"] for c, _ in pairs):
        own = [r for c, r in pairs if c["model"] == model]
        gain = [r["model"]["mean_cosine"][-1] - r["model"]["mean_cosine"][0] for r in own]
        found.append(
            judge("tokens come together through a forward pass", model, gain,
                  measure="mean cosine of two tokens in the last layer minus that in the first, one per sample")
        )  # fmt: skip
        found.append(
            judge(
                "tokens follow the flow that starts at them, one unit of time per layer", model,
                [r["stay"][-1] - r["distance"][-1] for r in own],
                measure="W1 of the cosines of the last layer to those of the first minus W1 to those of the flow",
            )
        )  # fmt: skip
        for preset in own[0]["model"]["curvature"]:
            found += _about_curvature(model, own, preset)
    return found


def _about_curvature(model: str, own: list[Any], preset: str) -> list[Finding]:
    from scipy.stats import spearmanr

    found = []
    for kind, claim in (
        ("model", "curvature of attention rises through a forward pass"),
        ("flow", "curvature of attention rises along the flow from the model's tokens"),
    ):
        curves = [r[kind]["curvature"][preset] for r in own]
        change = [c[-1] - c[0] for c in curves if c[-1] is not None and c[0] is not None]
        found.append(
            judge(claim, model, change, convention=preset, measure="mean curvature, last minus first, one per sample")
        )
    together = []
    for r in own:
        x, y = (np.array(v, dtype=float) for v in (r["model"]["mean_cosine"], r["model"]["curvature"][preset]))
        if np.isfinite(y).all() and np.ptp(x) > 0 and np.ptp(y) > 0:
            together.append(float(spearmanr(x, y)[0]))  # pyright: ignore[reportArgumentType]
    if together:
        found.append(
            judge("curvature is higher in layers whose tokens are closer together", model, together, convention=preset,
                  measure="rank correlation over layers of mean cosine and mean curvature, one per sample")
        )  # fmt: skip
    return found


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(c["model"] for c, _ in pairs))
    figure = Figure(figsize=(12, 2.9 * len(models)), layout="constrained")
    axes = figure.subplots(len(models), 4, squeeze=False)
    for row, model in zip(axes, models, strict=True):
        own = [r for c, r in pairs if c["model"] == model]
        layers = np.arange(own[0]["layers"])
        preset = _PRESETS[0]
        for kind, colour in (("model", "#0072B2"), ("flow", "#D55E00")):
            for ax, values in (
                (row[0], [r[kind]["mean_cosine"] for r in own]),
                (row[1], [r[kind]["clusters"] for r in own]),
                (row[3], [r[kind]["curvature"][preset] for r in own]),
            ):
                _band(ax, layers, np.array(values, dtype=float), colour, kind)
        edges = np.linspace(-1, 1, len(own[0]["model"]["histogram"][0]) + 1)
        for kind, k, colour, label in (
            ("model", 0, "0.4", "first layer"), ("model", -1, "#0072B2", "last layer"),
            ("flow", -1, "#D55E00", "flow, same time"),
        ):  # fmt: skip
            shares = np.mean([r[kind]["histogram"][k] for r in own], axis=0)
            row[2].stairs(shares, edges, color=colour, label=label)
        row[0].set(title=f"{model}: mean cosine", xlabel="layer", ylim=(None, 1.02))
        row[1].set(title="clusters (cosine 0.9)", xlabel="layer")
        row[2].set(title="cosines", xlabel="cosine", ylabel="share of pairs", yscale="log", ylim=(1e-4, 1.2))
        row[3].set(title=f"mean curvature, {preset}", xlabel="layer")
        row[0].legend(fontsize="small")
        row[2].legend(fontsize="small")
    return figure


def _band(ax: Any, x: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    ax.plot(x, values.mean(0), color=colour, marker="o", markersize=3, label=label)
    ax.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)


STUDY = Study(
    "token-flow", 1, "geoattn.studies.ricci.token_flow:trial", _sizes, _table, _figure, _verdict,
    paper="ricci", place="Appendix B, equation 14",
    how="Token inputs of each attention layer, normalised, beside the SA flow with Q = K = V = I from the tokens of the"
    " first layer, at the beta that has the row entropy of the first layer.",
)  # fmt: skip
