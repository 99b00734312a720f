"""Figure 4 of the smoothness poster, with the norm that it is about: local constants against the number of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.study import Study

__all__ = ["STUDY", "exponents"]

Pairs = list[tuple[dict[str, Any], Any]]

_RESAMPLES = 2000
_TITLES = {"minilm": "MiniLM (encoder)", "stories260K": "stories260K (causal)"}


def _sizes(size: str) -> list[dict[str, Any]]:
    """Trials of a size. Lengths double, so that each counts the same in a fit of logarithms."""
    if size == "smoke":
        plan = [("random-bert", [4, 8, 16, 32], 2, None), ("random-llama", [4, 8, 16, 32], 2, None)]
        heads, seeds, reach = [("random-bert", 0, 0)], 2, [5, 17, 65]
    elif size == "small":
        plan = [
            ("minilm", [8, 16, 32, 64, 128], 5, None),
            ("stories260K", [8, 16, 32, 64, 128, 256], 6, None),
        ]
        heads, seeds, reach = [("minilm", k, 0) for k in range(6)], 10, [5, 17, 65, 257]
    else:
        doubling = [8, 16, 32, 64, 128, 256, 512]
        paper = [2, *range(4, 99, 8)]
        plan = [
            ("minilm", doubling, 30, None), ("stories260K", doubling, 30, None),
            ("google-bert/bert-base-uncased", paper, 10, [0, 6]), ("openai-community/gpt2", paper, 10, [0, 6]),
        ]  # fmt: skip
        heads, seeds, reach = [("minilm", k, h) for k in range(6) for h in range(12)], 30, [5, 17, 65, 257, 1025, 4097]
    texts = [
        {"kind": "text", "model": model, "text": k, "lengths": lengths, "layers": layers, "heads_up_to": 32}
        for model, lengths, count, layers in plan
        for k in range(count)
    ]
    worst = [{"kind": "adversarial", "model": m, "layer": k, "head": h, "lengths": reach} for m, k, h in heads]
    return [*texts, *worst, *({"kind": "theory", "seed": seed, "n": 16} for seed in range(seeds))]


def exponents(pairs: Pairs, model: str, layer: int, name: str = "value") -> tuple[np.ndarray, np.ndarray]:
    """Exponent of each text, and of resamplings of the texts: least squares of logarithms over all lengths."""
    slopes = []
    for config, result in pairs:
        if config["kind"] == "text" and config["model"] == model:
            rows = [r for r in result["rows"] if r["layer"] == layer and r[name] is not None]
            slopes.append(np.polyfit(np.log([r["n"] for r in rows]), np.log([r[name] for r in rows]), 1)[0])
    values = np.array(slopes)
    # every text has the same lengths, so the fit over several texts is the mean of their fits
    drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    return values, values[drawn].mean(axis=1)


def _models(pairs: Pairs) -> dict[str, list[int]]:
    """Layers by model."""
    found: dict[str, list[int]] = {}
    for config, result in pairs:
        if config["kind"] == "text":
            found.setdefault(config["model"], sorted({row["layer"] for row in result["rows"]}))
    return found


def _by_length(pairs: Pairs, model: str, layer: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(lengths,), (texts, lengths)."""
    chosen = [r["rows"] for c, r in pairs if c["kind"] == "text" and c["model"] == model]
    lengths = sorted({row["n"] for row in chosen[0]})
    grid = [[next(r[name] for r in rows if (r["layer"], r["n"]) == (layer, n)) for n in lengths] for rows in chosen]
    return np.array(lengths), np.array(grid, dtype=np.float64)


def _table(pairs: Pairs) -> Any:
    import pandas as pd

    rows = []
    for model, layers in _models(pairs).items():
        for layer in layers:
            each, drawn = exponents(pairs, model, layer)
            low, high = np.quantile(drawn, [0.025, 0.975])
            code = exponents(pairs, model, layer, "printed")[0].mean()
            for k, n in enumerate(_by_length(pairs, model, layer, "value")[0]):
                row = {"kind": "text", "model": model, "layer": layer, "n": int(n), "texts": len(each)}
                for name in ("value", "bound", "sharper", "printed", "radius", "rms"):
                    row[name] = float(np.nanmean(_by_length(pairs, model, layer, name)[1][:, k]))
                row |= {"exponent": each.mean(), "exponent_low": low, "exponent_high": high, "printed_exponent": code}
                rows.append(row)
    for config, result in pairs:
        if config["kind"] == "adversarial":
            slope = _adversarial_slope(result)
            for r in result["rows"]:
                rows.append({
                    "kind": "adversarial", "model": config["model"], "layer": config["layer"], "head": config["head"],
                    "n": r["n"], "value": r["value"], "bound": r["upper"], "sharper": r["sharper"], "lower": r["lower"],
                    "own_values": r["own"], "radius": result["radius"], "exponent": slope,
                })  # fmt: skip
    return pd.DataFrame(rows)


def _adversarial_slope(result: dict[str, Any], name: str = "value") -> float:
    """In n - 1."""
    rows = result["rows"]
    return float(np.polyfit(np.log([r["n"] - 1 for r in rows]), np.log([r[name] for r in rows]), 1)[0])


def _verdict(pairs: Pairs) -> list[Finding]:
    findings = []
    for model, layers in _models(pairs).items():
        texts = [r["rows"] for c, r in pairs if c["kind"] == "text" and c["model"] == model]
        masked = any(row["causal"] for row in texts[0])
        holds = [min(np.log(b / v) for r in rows for b, v in _measured(r)) for rows in texts]
        kind = "masked " if masked else ""
        findings.append(
            judge(
                f"the discrete upper bound holds for {kind}self-attention at real tokens", model, holds,
                measure="log of bound over local constant, the least over layers, heads and lengths of a text",
            )
        )  # fmt: skip
        for layer in layers:
            each, _ = exponents(pairs, model, layer)
            place = f"{model}, layer {layer}"
            findings.append(
                judge("the local constant at real data grows with n", place, each, measure="fitted exponent of a text")
            )
            findings.append(
                judge(
                    "the local constant at real data grows like n^(1/4)", place, 0.1 - np.abs(each - 0.25),
                    measure="0.1 - |exponent - 1/4| of a text: above 0 within 0.1 of 1/4",
                )
            )  # fmt: skip
        sizes = [np.median([g for r in rows for g in r["r2_gamma"] if g is not None]) for rows in texts]
        findings.append(
            judge(
                "R^2 gamma is 100 to 1,000 in practical Transformers", model, 0.5 - np.abs(np.log10(sizes) - 2.5),
                measure="0.5 - |log10 of the median head's R^2 gamma - 2.5| of a text: above 0 inside the range",
            )
        )  # fmt: skip
    worst = [r for c, r in pairs if c["kind"] == "adversarial"]
    heads = (
        f"{len(worst)} heads of {', '.join(dict.fromkeys(c['model'] for c, _ in pairs if c['kind'] == 'adversarial'))}"
    )
    findings.append(
        judge(
            "adversarial tokens grow like n^(1/2)", heads, [0.001 - abs(_adversarial_slope(r) - 0.5) for r in worst],
            measure="0.001 - |exponent in n - 1, minus 1/2| for V = I",
        )
    )  # fmt: skip
    findings.append(
        judge(
            "adversarial tokens reach the discrete lower bound", heads,
            [min(np.log(row["value"] / row["lower"]) for row in r["rows"]) + 1e-6 for r in worst],
            measure="log of local constant over lower bound, the least over n, plus 1e-6 for rounding",
        )
    )  # fmt: skip
    theory = [r for c, r in pairs if c["kind"] == "theory"]
    for name, claim in (
        ("mean_field_upper", "the mean-field upper bound holds"),
        ("mean_field_lower", "the mean-field constant reaches gamma/2 R^2 exp(gamma R^2) at n ~ exp(2 gamma R^2)"),
        ("masked_mean_field_upper", "the mean-field upper bound holds for masked self-attention, too"),
    ):
        side = "constant over bound" if name.endswith("lower") else "bound over constant"
        findings.append(judge(claim, "random small maps", [r[name] for r in theory], measure=f"log of {side}"))
    return findings


def _measured(row: dict[str, Any]) -> list[tuple[float, float]]:
    """(bound, value) of the layer and its heads."""
    both = [(row["bound"], row["value"]), *zip(row["head_bounds"], row["heads"], strict=True)]
    return [(b, v) for b, v in both if v]


def _figure(pairs: Pairs) -> Any:
    from geoattn.studies.smoothness.growth_figure import draw

    return draw(pairs, _models(pairs), _by_length, exponents, _TITLES)


STUDY = Study(
    "lipschitz-growth", 1, "geoattn.studies.smoothness.growth_trials:trial", _sizes, _table, _figure, _verdict,
    paper="smoothness", place="Figure 4, contributions 1 to 3",
    how="Spectral norm of the derivative of each attention layer (with output projection, without residual and norm) at"
    " the first n tokens of film reviews, by Lanczos with a certificate; exponents by least squares of logarithms,"
    " resampled over texts. Adversarial tokens for heads of MiniLM; mean-field claims on random small maps.",
)  # fmt: skip
