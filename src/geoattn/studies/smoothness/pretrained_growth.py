"""Figure 4 of the smoothness poster on larger models: a causal one to 2,048 tokens, a vision one by image size."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from geoattn._core.errors import GeoattnError
from geoattn.attention.session import capture
from geoattn.datasets.loader import load_data
from geoattn.models.loading import load_model, load_tokenizer
from geoattn.profiles.batches import read_batch
from geoattn.profiles.model_constants import SmoothnessPass
from geoattn.smoothness.layer_smoothness import layer_smoothness
from geoattn.studies.engine.finding import Finding, judge
from geoattn.studies.engine.pooling import Pooled, detectable, p_value, pool
from geoattn.studies.engine.pretrained import pretrained_folder
from geoattn.studies.engine.study import Pairs, Study
from geoattn.studies.ricci.adjusted_training import short
from geoattn.studies.ricci.text_models import long_text, text_model

__all__ = ["STUDY", "trial"]

_PIXELS = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_NEAR = 0.1  # from an exponent to one quarter
_PATCH = 14  # pixels of a patch of DINOv2; one more token is the class


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One sample at all lengths: by layer and number of tokens the local constant of the layer, its residual and bound.

    ``lengths`` are numbers of tokens of a text, or sizes of an image in pixels.
    """
    model, batch_of = _sample(config)
    with torch.no_grad(), capture(model) as record:
        model(**batch_of(config["lengths"][0]))
    look, rows = SmoothnessPass(model, [record[layer].name for layer in config["layers"]]), []
    for length in config["lengths"]:
        for place, p in look.projections(read_batch(batch_of(length), model, 0)):
            found = layer_smoothness(p, tolerance=1e-2, heads=False)
            rows.append({
                "layer": config["layers"][place], "n": int(p.tokens.shape[-2]), "value": float(found.whole[0]),
                "residual": float(found.whole_residual[0]), "bound": float(found.whole_bound[0]),
                "radius": float(found.radius[0]),
            })  # fmt: skip
    if look.skipped or not rows:  # the others are numbered in the order of those that can be measured
        raise GeoattnError(f"{config['model']}: layers could not be measured: {look.skipped}.")
    return short({"rows": rows})


def _sample(config: dict[str, Any]) -> tuple[Any, Any]:
    """The model, and the batch of the sample at a length."""
    if config["kind"] == "image":
        from transformers import AutoModel

        mean, std = (torch.tensor(_PIXELS[name])[:, None, None] for name in ("mean", "std"))
        pixels = load_data("cifar10", split="test", limit=100, seed=0).pixels()[config["sample"]][None]

        def image(size: int) -> dict[str, Any]:
            grown = functional.interpolate(pixels, size=size, mode="bicubic", antialias=True).clamp(0, 1)
            return {"pixel_values": (grown - mean) / std}

        return AutoModel.from_pretrained(pretrained_folder(config["model"])).eval(), image
    random = config["model"].startswith("random-")
    if random:
        model, tokenizer = text_model(config["model"])
    else:
        folder = pretrained_folder(config["model"])
        model, tokenizer = load_model(folder).base_model, load_tokenizer(folder)  # no logits of 49,152 words
    text = long_text(config["sample"], 12 * max(config["lengths"]), built_in=random)

    def words(length: int) -> dict[str, Any]:
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=length)["input_ids"]
        if ids.shape[1] != length:
            raise GeoattnError(f"text {config['sample']} gives {ids.shape[1]} tokens; expected {length}.")
        return {"input_ids": ids}

    return model, words


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: 3 texts and 3 images; small: 2; smoke: a model of random weights."""
    if size == "smoke":
        return [
            {"kind": "text", "model": "random-llama", "sample": k, "layers": [0], "lengths": [8, 16]} for k in (0, 1)
        ]
    return [
        {"model": model, "kind": kind, "sample": k, "layers": layers, "lengths": lengths}
        for k in range(3 if size == "paper" else 2)
        for model, kind, layers, lengths in (
            ("dinov2-small", "image", [0, 3, 6, 9, 11], [_PATCH * side for side in (8, 11, 16, 22, 32)]),
            ("smollm2-135m", "text", [0, 10, 20, 29], [32, 64, 128, 256, 512, 1024, 2048]),
        )
    ]


def _slopes(pairs: Pairs) -> dict[tuple[str, int], np.ndarray]:
    """By model and layer: the exponent of each sample, by least squares of logarithms over its lengths."""
    found: dict[tuple[str, int], list[float]] = {}
    for config, result in pairs:
        for layer in config["layers"]:
            rows = [r for r in result["rows"] if r["layer"] == layer]
            slope = np.polyfit(np.log([r["n"] for r in rows]), np.log([r["value"] for r in rows]), 1)[0]
            found.setdefault((config["model"], layer), []).append(float(slope))
    return {key: np.array(values) for key, values in found.items()}


def _verdict(pairs: Pairs) -> list[Finding]:
    found, slopes = [], _slopes(pairs)
    for (model, layer), each in slopes.items():
        place = f"{model}, layer {layer}"
        found.append(judge("the local constant at real data grows with n", place, each, measure="fitted exponent"))
    models = dict.fromkeys(model for model, _ in slopes)
    samples = {
        model: np.mean([each for (name, _), each in slopes.items() if name == model], axis=0) for model in models
    }
    pooled = pool({model: {(model, k): v for k, v in enumerate(each.tolist())} for model, each in samples.items()})
    count = sum(map(len, samples.values()))
    return [*found, _grows(pooled, count), _near_a_quarter(pooled, count)]


def _grows(pooled: Pooled, count: int) -> Finding:
    """The exponent, averaged over the layers of a model for each sample, then over models."""
    return Finding(
        "the local constant at real data grows with n", "pooled", pooled.effect, pooled.low, pooled.high, count,
        _side(pooled.low, pooled.high), measure="fitted exponent, mean over layers", number="exponent", more="exponent",
        less="0", p=pooled.p, detectable=detectable(pooled.error, pooled.freedom), freedom=pooled.freedom,
    )  # fmt: skip


def _near_a_quarter(pooled: Pooled, count: int) -> Finding:
    """Equivalence: the interval of the mean exponent lies within `_NEAR` of 1/4, or wholly outside."""
    ends = np.abs(np.array([pooled.low, pooled.high]) - 0.25)
    nearest = 0.0 if pooled.low <= 0.25 <= pooled.high else float(ends.min())
    effect = _NEAR - abs(pooled.effect - 0.25)
    low, high = _NEAR - float(ends.max()), _NEAR - nearest
    p = 1.0 if pooled.freedom < 1 else p_value(effect, (pooled.high - pooled.low) / 2, pooled.freedom)
    return Finding(
        "the local constant at real data grows like n^(1/4)", "pooled", effect, low, high, count, _side(low, high),
        measure=f"{_NEAR:g} - |mean exponent - 1/4|: above 0 within {_NEAR:g} of 1/4", number="near_a_quarter",
        more="exponent", less="1/4", p=p, detectable=detectable(pooled.error, pooled.freedom), freedom=pooled.freedom,
    )  # fmt: skip


def _side(low: float, high: float) -> Literal["replicated", "contradicted", "not replicated"]:
    return "replicated" if low > 0 else "contradicted" if high < 0 else "not replicated"


def _table(pairs: Pairs) -> Any:
    """A row for each model, layer and number of tokens: means over samples, and the exponent with its interval."""
    import pandas as pd

    from geoattn.studies.engine.finding import interval

    rows = []
    for (model, layer), each in _slopes(pairs).items():
        exponent, low, high = interval(each)
        chosen = [r for c, result in pairs if c["model"] == model for r in result["rows"] if r["layer"] == layer]
        for n in sorted({r["n"] for r in chosen}):
            here = [r for r in chosen if r["n"] == n]
            row = {"model": model, "layer": layer, "n": n, "samples": len(here)}
            row |= {name: float(np.mean([r[name] for r in here])) for name in ("value", "bound", "radius")}
            rows.append({**row, "exponent": exponent, "exponent_low": low, "exponent_high": high})
    return pd.DataFrame(rows)


def _figure(pairs: Pairs) -> Any:
    """A panel per model: the constants of each layer against n, with the slopes 1/4 and 1/2."""
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(c["model"] for c, _ in pairs))
    figure = Figure(figsize=(3.6 * len(models), 3.0), layout="constrained")
    for ax, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        rows = [r for c, result in pairs if c["model"] == model for r in result["rows"]]
        for layer in sorted({r["layer"] for r in rows}):
            lengths = sorted({r["n"] for r in rows})
            logs = [np.mean([np.log(r["value"]) for r in rows if (r["layer"], r["n"]) == (layer, n)]) for n in lengths]
            ax.loglog(lengths, np.exp(logs), "o-", ms=3, lw=1, label=f"layer {layer}")
        x = np.array([min(r["n"] for r in rows), max(r["n"] for r in rows)])
        for power, style in ((0.25, "--"), (0.5, ":")):
            ax.loglog(x, min(r["value"] for r in rows) * (x / x[0]) ** power, style, color="black", lw=0.8)
        ax.set(title=model, xlabel="tokens n (dashed: n^(1/4), dotted: n^(1/2))", ylabel="local Lipschitz constant")
        ax.legend(fontsize=6)
    return figure


STUDY = Study(
    "pretrained-growth", 1, "geoattn.studies.smoothness.pretrained_growth:trial", _sizes, _table, _figure, _verdict,
    paper="smoothness", place="Figure 4",
    how="Spectral norm of the derivative of attention layers of SmolLM2-135M (32 to 2,048 tokens of film reviews) and"
    " of DINOv2 ViT-S/14 (CIFAR-10 images of 112 to 448 pixels: 65 to 1,025 tokens), by Lanczos with a certificate;"
    " exponents by least squares of logarithms, one per sample.", partial=True,
    deviations="The poster measures BERT and GPT-2 to about 100 tokens; SmolLM2 is the Instruct model, dequantised from"
    " 4 bits.",
)  # fmt: skip
