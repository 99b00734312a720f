"""Appendix C of the Ricci paper: curvature against the variance of weights and against clustering, by preset."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geoattn._core.errors import DegenerateCurvatureWarning
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.studies.engine.cells import Pairs, by, mean_and_half
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study

__all__ = ["STUDY", "clustered_attention", "sharpened", "trial"]

_GROUPS, _WIDTH, _BETA = 3, 16, 4.0
_NAMES = {
    "random": "softmax of Gaussian logits, scale {low:g} to {high:g}, {n} tokens",
    "lvit-digits": "attention of the embedded L-ViT on digits to the power {low:g} to {high:g}, {n} tokens",
    "clusters": "tokens in three groups, tightness {low:g} to {high:g}, {n} tokens",
}


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One attention map in several strengths: of its logits, or of the clustering of its tokens.

    For each strength the variance of the weights, the mean cosine of pairs of rows and, per preset, mean, standard
    deviation, 5 % quantile and distance to one of the curvature; for clusters also the standard deviation within the
    two kinds of edges, inside a group and between groups.
    """
    rows = []
    for strength in config["strengths"]:
        groups = None
        if config["kind"] == "clusters":
            attention, groups = clustered_attention(config["n"], strength, config["seed"])
        else:
            attention = sharpened(_start(config), strength)
        row: dict[str, Any] = {"variance": float(attention.var()), "cosine": _cosine(attention)}
        for preset in PRESETS:
            row[preset] = _numbers(attention, preset, groups)
        rows.append(row)
    return {"rows": rows}


def sharpened(attention: Float[np.ndarray, "n n"], power: float) -> Float[np.ndarray, "n n"]:
    r"""Rows proportional to :math:`A_{ij}^t`: the softmax of t times the logits.

    >>> import numpy as np
    >>> sharpened(np.array([[0.2, 0.8], [0.5, 0.5]]), 0.0).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    logits = power * np.log(np.maximum(attention, 1e-300))
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def clustered_attention(n: int, tightness: float, seed: int) -> tuple[Float[np.ndarray, "n n"], Int[np.ndarray, " n"]]:
    """Softmax of beta times the cosines of tokens that lie about three centres, and the group of each token.

    Tightness 0: the centres play no part; 1: the tokens of a group are one point.
    """
    rng = np.random.default_rng([seed, n])
    centres, noise = rng.normal(size=(_GROUPS, _WIDTH)), rng.normal(size=(n, _WIDTH))
    groups = np.arange(n) % _GROUPS
    x = tightness * centres[groups] + (1 - tightness) * noise
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    weights = np.exp(_BETA * (x @ x.T - 1))
    return weights / weights.sum(1, keepdims=True), groups


def _start(config: dict[str, Any]) -> np.ndarray:
    """The map of power 1."""
    if config["kind"] == "random":
        logits = np.random.default_rng([config["seed"], config["n"]]).normal(size=(config["n"],) * 2)
        return sharpened(np.exp(logits - logits.max()), 1.0)
    import torch

    import geoattn as ga

    model, digits = ga.load_model("lvit-digits"), ga.load_data("digits", split="test")
    with ga.capture(model) as record, torch.no_grad():
        model(digits.subset([config["seed"]]).pixels())
    return record[-1].attention()[0, 0].double().numpy()


def _cosine(attention: np.ndarray) -> float:
    unit = attention / np.linalg.norm(attention, axis=1, keepdims=True)
    return float((unit @ unit.T)[np.triu_indices(len(unit), 1)].mean())


def _numbers(attention: np.ndarray, preset: str, groups: np.ndarray | None) -> dict[str, float | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateCurvatureWarning)  # part of what is to be seen
        found = ollivier_ricci(attention, preset, threads=1)
    kappa, place = found.column("kappa"), found.places()
    good = np.isfinite(kappa)
    kappa, place = kappa[good], place[good]
    numbers: dict[str, float | None] = {
        "mean": float(kappa.mean()), "std": float(kappa.std()), "q05": float(np.quantile(kappa, 0.05)),
        "negative_share": float((kappa < 0).mean()), "distance_to_one": float(np.abs(1 - kappa).mean()),
    }  # fmt: skip
    if groups is not None:
        same = groups[place[:, 0]] == groups[place[:, 1]]
        parts = [kappa[same], kappa[~same]]
        numbers["std_within"] = float(np.sqrt(sum(((p - p.mean()) ** 2).sum() for p in parts) / len(kappa)))
    return numbers


def _sizes(size: str) -> list[dict[str, Any]]:
    powers, tightness = [0.25, 0.5, 1.0, 2.0, 4.0], [0.0, 0.2, 0.4, 0.6, 0.8, 0.95]
    if size == "smoke":
        plan = [("random", 8, 3, [0.5, 1.0, 4.0]), ("lvit-digits", 17, 2, [1.0, 2.0]), ("clusters", 9, 3, [0.0, 0.8])]
    elif size == "small":
        plan = [("random", 17, 20, powers), ("random", 50, 20, powers), ("lvit-digits", 17, 20, powers),
                ("clusters", 24, 20, tightness)]  # fmt: skip
    else:
        plan = [("random", 17, 30, powers), ("random", 50, 30, powers), ("random", 197, 30, powers),
                ("lvit-digits", 17, 360, powers), ("clusters", 24, 30, tightness),
                ("clusters", 96, 30, tightness)]  # fmt: skip
    return [
        {"kind": kind, "n": n, "seed": seed, "strengths": strengths}
        for kind, n, seeds, strengths in plan
        for seed in range(seeds)
    ]


def _change(cell: Pairs, preset: str, name: str, first: int = 0, last: int = -1) -> np.ndarray:
    """Number at one strength minus that at another, per trial."""
    return np.array([r["rows"][last][preset][name] - r["rows"][first][preset][name] for _, r in cell])


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (kind, n), cell in by(pairs, "kind", "n").items():
        for k, strength in enumerate(cell[0][0]["strengths"]):
            for preset in PRESETS:
                row: dict[str, Any] = {"kind": kind, "n": n, "strength": strength, "convention": preset}
                row["trials"] = len(cell)
                for name in ("variance", "cosine"):
                    row[name] = float(np.mean([r["rows"][k][name] for _, r in cell]))
                for name in cell[0][1]["rows"][k][preset]:
                    row[name], half = mean_and_half(np.array([r["rows"][k][preset][name] for _, r in cell]))
                    if name in ("mean", "std"):
                        row[f"{name}_half_width"] = half
                rows.append(row)
    return pd.DataFrame(rows)


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for (kind, n), cell in by(pairs, "kind", "n").items():
        strengths = cell[0][0]["strengths"]
        data = _NAMES[kind].format(low=strengths[0], high=strengths[-1], n=n)
        for preset in PRESETS:
            options: dict[str, Any] = {"convention": preset}
            if kind == "clusters":
                for name, words in (("std", "all edges"), ("std_within", "within edges of one kind")):
                    findings.append(
                        judge(
                            "clustering gathers curvature values in groups of similar ones",
                            data,
                            -_change(cell, preset, name),
                            **options,
                            measure=f"standard deviation of curvature ({words}), loose tokens minus tight ones",
                        )
                    )
                findings.append(
                    judge(
                        "clustering goes with more positive curvature",
                        data,
                        _change(cell, preset, "mean"),
                        **options,
                        measure="mean curvature, tight tokens minus loose ones",
                    )
                )
                continue
            for name, words in (("mean", "mean curvature"), ("q05", "5 % quantile of curvature")):
                turns = _turn(cell, preset, name)
                findings.append(
                    judge(
                        "a higher variance of the weights goes with smaller curvature",
                        data,
                        -_change(cell, preset, name),
                        **options,
                        measure=f"{words}, lowest variance minus highest{turns}",
                    )
                )
    return findings


def _turn(cell: Pairs, preset: str, name: str) -> str:
    """Between which strengths the mean over trials changes its direction, in words."""
    means = np.mean([[row[preset][name] for row in r["rows"]] for _, r in cell], axis=0)
    strengths, steps = cell[0][0]["strengths"], np.sign(np.diff(means))
    turns = [f"{strengths[k + 1]:g}" for k in range(len(steps) - 1) if steps[k] != steps[k + 1]]
    return f"; turns at {', '.join(turns)}" if turns else ""


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    cells = by(pairs, "kind", "n")
    figure = Figure(figsize=(3.1 * len(PRESETS), 2.3 * len(cells)), layout="constrained")
    axes = figure.subplots(len(cells), len(PRESETS), squeeze=False)
    for row, ((kind, n), cell) in zip(axes, cells.items(), strict=True):
        x_name = "cosine" if kind == "clusters" else "variance"
        x = np.mean([[r[x_name] for r in result["rows"]] for _, result in cell], axis=0)
        for ax, preset in zip(row, PRESETS, strict=True):
            names = ("mean", "std", "std_within") if kind == "clusters" else ("mean", "q05")
            for name, colour in zip(names, ("tab:blue", "tab:orange", "tab:green"), strict=False):
                lines = np.array([[r[preset][name] for r in result["rows"]] for _, result in cell])
                found = [mean_and_half(column) for column in lines.T]
                halves = [half or 0.0 for _, half in found]
                label = {"mean": "mean", "q05": "5 % quantile", "std": "std", "std_within": "std within a kind"}[name]
                ax.errorbar(x, [m for m, _ in found], halves, fmt="o-", ms=3, lw=1.2, color=colour, label=label)
            if kind != "clusters":
                ax.set_xscale("log")
                ax.set_xticks([], minor=True)
            ax.set_xlabel("mean cosine of rows" if kind == "clusters" else "variance of the weights", fontsize=8)
            ax.tick_params(labelsize=7)
        row[0].set_ylabel(f"{kind}, n = {n}", fontsize=8)
        row[0].legend(fontsize=7, frameon=False)
    for ax, preset in zip(axes[0], PRESETS, strict=True):
        ax.set_title(preset, fontsize=9)
    figure.suptitle(
        "curvature; the paper expects it to fall with the variance, and its values to gather with clustering",
        fontsize=8,
    )
    return figure


STUDY = Study(
    "appendix-c",
    1,
    "geoattn.studies.ricci.appendix_c:trial",
    _sizes,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Appendix C",
    how="One attention map in several strengths of its logits or of the clustering of its tokens, random maps and those"
    " of the embedded L-ViT; differences within a map, interval over maps.",
)
