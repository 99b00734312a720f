"""Curvature, spectrum, tangent kernel, speed: each link of the Ricci paper's chain on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from geoattn.spectral.entropy import gaussian_entropy_inequality
from geoattn.studies.engine.cells import Pairs, by, judge_association, mean_and_half
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.studies.engine.study import Study

__all__ = ["STUDY"]

_MODELS = {"pretrained": "L-ViT trained on digits", "random": "L-ViT with random weights"}
_RUNS = "L-ViT trained on digits, variance pushed down, up or not at all"
_ROUNDING = 1e-7  # of eigenvalues of maps that are nearly defective
_NUMBERS = ("second", "smallest", "dobrushin", "irreversibility", "entropy")


def _sizes(size: str) -> list[dict[str, Any]]:
    """small: 20 images and weights, 200 random maps, 10 seeds x 3 directions of training (480 rows, 4 epochs)."""
    images, maps, lemmas, seeds, layers = {
        "smoke": (2, 4, 2, 2, 1), "small": (20, 200, 20, 10, 8), "paper": (360, 2000, 200, 30, 8),
    }[size]  # fmt: skip
    recipe: dict[str, Any] = {"data": "digits", "limit": 480, "test_limit": 360, "epochs": 4, "rate": 2e-3}
    if size == "smoke":
        recipe |= {"limit": 64, "test_limit": 40, "epochs": 2, "changes": {"depth": 1, "dim": 16, "dim_head": 16}}
    elif size == "paper":
        recipe = {"data": "mnist"}
    directions = ("none",) if size == "smoke" else ("decrease", "none", "increase")
    return [
        *({"kind": "heads", "weights": w, "seed": s, "layers": layers} for w in _MODELS for s in range(images)),
        *({"kind": "random", "n": 17, "width": 8, "scale": 1.5, "seed": s} for s in range(maps)),
        *({"kind": "lemma", "n": 17, "depth": 4, "maps": 12, "seed": s} for s in range(lemmas)),
        *(
            {"kind": "training", "seed": s, "direction": d, "gamma": 1.0, "a": 100.0, "kernel_rows": 4, **recipe}
            for s in range(seeds)
            for d in directions
        ),
    ]


def _kind(pairs: Pairs, kind: str) -> Pairs:
    return [(config, result) for config, result in pairs if config["kind"] == kind]


def _correlation(x: Any, y: Any) -> float:
    """Spearman's, 0 where one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    found: Any = spearmanr(x, y)
    return float(found.statistic)


def _always(claim: str, data: str, slack: list[float], convention: str | None = None) -> Finding:
    """The finding for an inequality that is to hold everywhere: mean, least and largest slack."""
    values = np.array(slack)
    share = float(np.mean(values >= -_ROUNDING))
    return Finding(
        claim, data, float(values.mean()), float(values.min()), float(values.max()), len(values),
        "replicated" if share == 1 else "contradicted", convention,
        f"slack, from the least to the largest; holds in {share:.1%} of {len(values)} cases",
    )  # fmt: skip


def _verdict(pairs: Pairs) -> list[Finding]:
    return [*_of_heads(_kind(pairs, "heads")), *_of_theory(pairs), *_of_runs(_kind(pairs, "training"))]


def _of_heads(pairs: Pairs) -> list[Finding]:
    findings = []
    for (weights,), cell in by(pairs, "weights").items():
        data = _MODELS[weights]
        per_image = [result["heads"] for _, result in cell]
        for preset in PRESETS:
            gaps = [
                _correlation([h["curvature"][preset] for h in heads], [1 - h["second"] for h in heads])
                for heads in per_image
            ]
            findings.append(judge(
                "heads with higher curvature have a larger spectral gap", data, gaps, convention=preset,
                measure="rank correlation over the heads of an image",
            ))  # fmt: skip
        for preset in PRESETS:
            slack = [h["slack"][f"assumed under {preset}"] for heads in per_image for h in heads]
            findings.append(_always(
                "the smallest curvature of an edge bounds the spectral gap from below", data, slack, convention=preset,
            ))  # fmt: skip
        slack = [s for heads in per_image for h in heads for name, s in h["slack"].items() if h["theorem"][name]]
        findings.append(_always(
            "no eigenvalue passes a bound that is a theorem (contraction, Bauer-Jost-Liu t = 1 to 4)", data, slack,
        ))  # fmt: skip
        for name, says in (
            ("A1", "A1: A is positive and invertible with real eigenvalues"),
            ("A2", "A2: the eigenvalues of H are positive"),
            ("A3", "A3: the largest eigenvalue of H is below 1 / |smallest of A|"),
            ("A5", "A5: the smallest eigenvalue of A is negative"),
        ):
            shares = [np.mean([bool(h["assumptions"][name]) for h in heads]) - 0.5 for heads in per_image]
            findings.append(judge(says, data, shares, measure="share of heads, minus one half"))
        smooth = [np.mean([h["regime"] == "oversmoothing" for h in heads]) - 0.5 for heads in per_image]
        findings.append(judge(
            "identical layers oversmooth: the eigenvalue 1 of A dominates in depth", data, smooth,
            measure="share of heads, minus one half",
        ))  # fmt: skip
    return findings


def _of_theory(pairs: Pairs) -> list[Finding]:
    random, lemma = _kind(pairs, "random"), _kind(pairs, "lemma")
    maps = f"softmax attention of {len(random)} random sets of tokens"
    entropies = [
        gaussian_entropy_inequality((0.0, 1.0), (m, s), k=k, at=t).slack
        for m in (0.0, 1.0, 3.0) for s in (0.5, 1.0, 2.0) for k in (0.3, 1.0) for t in (0.25, 0.5)
    ]  # fmt: skip
    return [
        judge(
            "A0 and A5 hold together: attention with K = Q has a negative eigenvalue", maps,
            [-r["shared"] - 1e-12 for _, r in random],
            measure="minus the smallest eigenvalue, less what rounding may give",
        ),
        judge(
            "A5 without A0: attention with K apart from Q has a negative eigenvalue", maps,
            [-r["apart"] for _, r in random], measure="minus the smallest eigenvalue",
        ),
        judge(
            "Lemma 4.2: the probability of the PL condition grows with the smallest eigenvalue of A",
            "random maps, H of the heads of the trained L-ViT", [_correlation(r["smallest"], r["p"]) for _, r in lemma],
            measure="rank correlation over twelve maps",
        ),
        _always(
            "Equation 3: entropy is concave along geodesics by as much as the curvature says",
            "Gaussians on the weighted line, where it is a theorem; on a graph it is not defined", entropies,
        ),
    ]  # fmt: skip


def _of_runs(pairs: Pairs) -> list[Finding]:
    directions = [config["direction"] for config, _ in pairs]
    histories = [result["history"] for _, result in pairs]
    within = {
        name: [
            _correlation([row[name] for row in h[:-1]], -np.diff(np.log([row["probe_loss"] for row in h])))
            for h in histories
        ]
        for name in ("kernel", "pl_ratio")
    }
    speed = [float(np.log(h[0]["probe_loss"] / h[-1]["probe_loss"])) for h in histories]
    mean_kernel = [float(np.mean([row["kernel"] for row in h])) for h in histories]
    rho = [float(np.mean(list(result["rho"].values()))) for _, result in pairs]
    last = [h[-1] for h in histories]
    seeds = [config["seed"] for config, _ in pairs]
    by_seed = {name: [float(np.mean([v for v, s in zip(values, seeds, strict=True) if s == seed])) for seed in
                      dict.fromkeys(seeds)] for name, values in within.items()}  # fmt: skip
    findings = [
        judge(
            "Theorem 4.1: the larger the smallest eigenvalue of the tangent kernel, the faster the loss falls", _RUNS,
            by_seed["kernel"], measure="rank correlation over the epochs of a run, mean over the directions of a seed",
        ),
        judge(
            "Theorem 4.1: the larger the PL ratio, the faster the loss falls", _RUNS, by_seed["pl_ratio"],
            measure="rank correlation over the epochs of a run, mean over the directions of a seed",
        ),
        judge_association(
            "Theorem 4.1: runs with a larger smallest eigenvalue of the tangent kernel learn faster", _RUNS,
            mean_kernel, speed, directions, seeds=seeds, convention=None,
            measure="rank correlation over runs within a direction",
        ),
        judge_association(
            "higher row entropy, more robust", _RUNS, [row["entropy"] for row in last], [-r for r in rho], directions,
            seeds=seeds, convention=None, measure="rank correlation over runs within a direction",
        ),
    ]  # fmt: skip
    for preset in PRESETS:
        curvature = [row["curvature"][preset] for row in last]
        for claim, numbers in (
            ("higher curvature, higher row entropy", [row["entropy"] for row in last]),
            ("higher curvature, more robust", [-r for r in rho]),
            ("higher curvature, slower training", [-s for s in speed]),
        ):
            findings.append(judge_association(
                claim, _RUNS, curvature, numbers, directions, seeds=seeds, convention=preset,
                measure="rank correlation over runs within a direction",
            ))  # fmt: skip
    return findings


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for (weights,), cell in by(_kind(pairs, "heads"), "weights").items():
        layers = cell[0][0]["layers"]
        for layer in range(layers):
            row: dict[str, Any] = {"data": _MODELS[weights], "layer": layer, "images": len(cell)}
            per_image = [r["heads"][layer * len(r["heads"]) // layers : (layer + 1) * len(r["heads"]) // layers]
                         for _, r in cell]  # fmt: skip
            for name in _NUMBERS:
                row[name], row[f"{name}_half_width"] = mean_and_half(
                    np.array([np.mean([h[name] for h in heads]) for heads in per_image])
                )
            for preset in PRESETS:
                values = [h["curvature"][preset] for heads in per_image for h in heads]
                slack = [h["slack"][f"assumed under {preset}"] for heads in per_image for h in heads]
                row[f"curvature {preset}"] = float(np.mean(values))
                row[f"assumed bound holds, {preset}"] = float(np.mean(np.array(slack) >= -_ROUNDING))
            rows.append(row)
    return pd.DataFrame(rows)


def _figure(pairs: Pairs) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    gap, assumed, kernel, lemma = figure.subplots(1, 4)
    heads = [h for c, r in _kind(pairs, "heads") if c["weights"] == "pretrained" for h in r["heads"]]
    for preset, colour in zip(PRESETS, ("tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True):
        gaps = [1 - h["second"] for h in heads]
        gap.plot([h["curvature"][preset] for h in heads], gaps, ".", ms=3, alpha=0.5, color=colour, label=preset)
        slack = np.sort([h["slack"][f"assumed under {preset}"] for h in heads])
        assumed.plot(slack, np.linspace(0, 1, len(slack)), color=colour, label=preset)
    gap.set(xlabel="mean curvature of a head", ylabel="spectral gap", title="curvature and gap")
    gap.legend(fontsize=7, markerscale=3, loc="lower left", handletextpad=0.2)
    assumed.axvline(0, color="grey", lw=0.8)
    assumed.set(xlabel="gap minus smallest curvature", ylabel="share of heads at most",
                title="the assumed bound fails left of 0")  # fmt: skip
    for config, result in _kind(pairs, "training"):
        h = result["history"]
        colour = {"decrease": "tab:blue", "none": "tab:grey", "increase": "tab:red"}[config["direction"]]
        fall = -np.diff(np.log([row["probe_loss"] for row in h]))
        kernel.plot([row["kernel"] for row in h[:-1]], fall, ".-", ms=3, lw=0.5, alpha=0.6, color=colour)
    kernel.set(xlabel="smallest eigenvalue of the kernel", ylabel="fall of log loss, next epoch",
               title="tangent kernel and speed", xscale="log")  # fmt: skip
    for _, result in _kind(pairs, "lemma"):
        lemma.plot(result["smallest"], result["p"], ".", ms=4, alpha=0.5, color="tab:purple")
    lemma.set(xlabel="smallest eigenvalue of A", ylabel="P[PL condition]", title="Lemma 4.2")
    return figure


STUDY = Study(
    "spectral-link",
    1,
    "geoattn.studies.ricci.spectral_trials:trial",
    _sizes,
    _table,
    _figure,
    _verdict,
    paper="ricci",
    place="Section 4.1, Appendix A, equation 3",
    how="Each link by itself: heads of L-ViT on digits (curvature, eigenvalues, every inequality, A1 to A5), random"
    " maps (A0 against A5), value weights of the trained model (Lemma 4.2), and training runs with the tangent kernel,"
    " the PL ratio, entropy and robustness.",
)
