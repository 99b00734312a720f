"""How far the heads of real models are from gradient flows: a number for each head of four models."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.study import Pairs, Study

__all__ = ["STUDY", "trial"]

_MODELS = {"lvit-digits": "digits", "minilm": "sst2", "dinov2-small": "fashion-mnist", "smollm2-135m": "sst2"}
_TITLES = {"lvit-digits": "L-ViT", "minilm": "MiniLM", "dinov2-small": "DINOv2-small", "smollm2-135m": "SmolLM2-135M"}
_NUMBERS = ("gradient_share", "metric_share", "explained", "symmetry", "alignment", "random_share", "random_metric")


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One sample through a model: the numbers of each head, and shares of matrices turned at random."""
    from geoattn.profiles.batches import read_batch
    from geoattn.profiles.lenses.gradient_flow import head_flow, head_shares
    from geoattn.profiles.model_constants import SmoothnessPass

    model, batch = _model_and_batch(config)
    look = SmoothnessPass(model)
    heads: list[list[Any]] = []
    tokens = 0
    for layer, p in look.projections(read_batch(batch, model, 0)):
        tokens = p.tokens.shape[1]
        for head in range(p.q.shape[1]):
            found = head_shares(p, 0, head, probes=config["probes"])
            random = _turned(head_flow(p, 0, head), config["probes"], seed=[config["sample"], layer, head])
            heads.append([layer, head, *(_plain(v) for v in (*found.values(), *random))])
    return {"tokens": tokens, "heads": heads, "skipped": look.skipped}


def _turned(flow: Any, probes: int, seed: list[int]) -> tuple[float, float]:
    """Shares, in both norms, after random rotations before and after D and V: what singular values alone give."""
    import torch

    from geoattn.dynamics.gradient_shares import gradient_share

    x, D, V = flow
    rng = np.random.default_rng(seed)
    a, b, c, e = (torch.linalg.qr(torch.from_numpy(rng.standard_normal((x.shape[1], x.shape[1]))))[0] for _ in range(4))
    shares = (
        gradient_share(x, a @ D @ b, c @ V @ e, probes=probes, norm=norm, fit=False).share
        for norm in ("round", "mobility")
    )
    one, two = shares
    return one, two


def _model_and_batch(config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    k = config["sample"]
    if config["model"] == "lvit-digits":
        from geoattn.datasets.loader import load_data
        from geoattn.models.loading import load_model

        return load_model("lvit-digits"), {"images": load_data("digits", split="test").subset([k]).pixels()}
    from geoattn.studies.ricci import pretrained_forward

    load = pretrained_forward._load  # pyright: ignore[reportPrivateUsage]
    model, batches = load({**config, "samples": k + 1})
    return model, list(batches)[k]


def _plain(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _sizes(size: str) -> list[dict[str, Any]]:
    """small: 3 samples of each model; paper: 16; smoke: 2 of the smallest model."""
    samples = {"smoke": 2, "small": 3, "paper": 16}[size]
    models = {"lvit-digits": "digits"} if size == "smoke" else _MODELS
    common = {"length": 48, "pixels": 112, "probes": 64}
    return [
        {"model": model, "data": data, "sample": k, **common} for model, data in models.items() for k in range(samples)
    ]


def _table(pairs: Pairs) -> Any:
    """A row for each head of each model: means over samples."""
    import pandas as pd

    rows = [
        {
            "model": config["model"],
            "tokens": result["tokens"],
            **dict(zip(("layer", "head", *_NUMBERS), row, strict=True)),
        }
        for config, result in pairs
        for row in result["heads"]
    ]
    frame: Any = pd.DataFrame(rows)
    frame[list(_NUMBERS)] = frame[list(_NUMBERS)].astype(float)
    groups = frame.groupby(["model", "layer", "head"], sort=False)
    table = groups[[*_NUMBERS, "tokens"]].mean().round(5)
    table["samples"] = groups.size()
    return table.reset_index()


def _verdict(pairs: Pairs) -> list[Finding]:
    found = []
    for model in dict.fromkeys(c["model"] for c, _ in pairs):
        rows = np.array([r["heads"] for c, r in pairs if c["model"] == model], dtype=float)  # samples, heads, numbers
        number = {name: rows[:, :, 2 + k] for k, name in enumerate(_NUMBERS)}
        for norm, own, other in (
            ("round", "gradient_share", "random_share"), ("mobility", "metric_share", "random_metric"),
        ):  # fmt: skip
            found.append(
                judge(
                    f"heads are nearer to gradient flows than random matrices ({norm} norm)", model,
                    np.nanmean(number[own] - number[other], axis=1),
                    measure="mean over heads of the gradient share minus that after random rotations of D and V, one"
                    " per sample",
                )
            )  # fmt: skip
        found.append(
            judge(
                "an interaction energy explains a part of the velocity", model,
                np.nanmean(number["explained"], axis=1),
                measure="mean over heads of the share of the velocity explained at tokens that the fit did not see, one"
                " per sample",
            )
        )  # fmt: skip
    return found


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    table = _table(pairs)
    models = list(dict.fromkeys(table["model"]))
    figure = Figure(figsize=(3.6 * len(models), 6.4), layout="constrained")
    axes = figure.subplots(2, len(models), squeeze=False)
    for (top, bottom), model in zip(axes.T, models, strict=True):
        own = table[table["model"] == model]
        for name, colour, label in (
            ("gradient_share", "#0072B2", "round norm"), ("metric_share", "#D55E00", "norm of the metric"),
        ):  # fmt: skip
            top.plot(own["layer"], own[name], ".", ms=4, color=colour, alpha=0.6)
            top.plot(own.groupby("layer")[name].mean(), color=colour, lw=1.4, label=label)
            random = float(own[{"gradient_share": "random_share", "metric_share": "random_metric"}[name]].mean())
            top.axhline(random, color=colour, lw=1, ls=":")
        top.axhline(1.0, color="black", lw=0.8)
        top.set(title=_TITLES.get(model, model), xlabel="layer", ylabel="gradient share", ylim=(0, 1.03))
        bottom.scatter(own["alignment"], own["symmetry"], c=own["explained"], s=12, vmin=0, vmax=1)
        bottom.set(xlabel="alignment of V with D", ylabel="symmetry of D", ylim=(0, 1.03))
    axes[0, 0].legend(fontsize="small", loc="lower left")
    figure.colorbar(axes[1, 0].collections[0], ax=axes[1, :], label="explained by the best energy")
    return figure


STUDY = Study(
    "gradient-heads", 1, "geoattn.studies.mean_field.gradient_heads:trial", _sizes, _table, _figure, _verdict,
    paper="mean-field", place="a question of ours: the general case of the metric",
    how="Gradient share, share explained by an energy, symmetry of D and alignment of V of every head at the"
    " tokens of 3 samples (65 or fewer), beside D and V turned at random; dotted in the figure.",
)  # fmt: skip
