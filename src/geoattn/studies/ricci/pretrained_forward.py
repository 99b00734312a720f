"""Figures 3 and 8 on real pretrained models: the curvature of attention from the first layer to the last."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from geoattn._core.errors import DegenerateCurvatureWarning, GeoattnError
from geoattn.attention.session import capture
from geoattn.curvature.ollivier import ollivier_ricci
from geoattn.curvature.result import distance_to_one
from geoattn.datasets.loader import load_data
from geoattn.studies.engine.contrasts import CONVENTIONS, Number, Runs, contrast_findings
from geoattn.studies.engine.finding import Finding
from geoattn.studies.engine.pooling import t_test
from geoattn.studies.engine.pretrained import PRETRAINED, pretrained_folder
from geoattn.studies.engine.study import Pairs, Study
from geoattn.studies.ricci.adjusted_training import short

__all__ = ["STUDY", "trial"]

_IMAGES, _TEXTS = ("cifar10", "fashion-mnist", "mnist"), ("sst2", "imdb", "headlines")
_NUMBERS = ("distance_to_one", "q05", "mean")
_PIECE = 20  # samples of a trial: a run that is cut short loses little
_PIXELS = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """Run some test rows through a model: numbers of each layer's curvature under each convention, by sample.

    The rows are ``count`` of the ``samples`` drawn ones, from the one of number ``start`` on.
    ``layers[convention][number]`` is a list over layers of means over samples; ``samples[convention][number]`` has a
    list over samples for the first and for the last layer. Of each head ``edges`` edges are drawn.
    """
    model, batches = _load(config)
    rows: list[dict[str, np.ndarray]] = []
    heads = tokens = 0
    with torch.no_grad():
        for k, batch in enumerate(batches):
            with capture(model) as record:
                model(**batch)
            rows.append({c: _of_sample(record, c, config["edges"], config["start"] + k) for c in CONVENTIONS})
            heads, tokens = (int(size) for size in record[0].shape[1:3])
    found: dict[str, Any] = {"layers": {}, "samples": {}}
    for convention in CONVENTIONS:
        values = np.stack([row[convention] for row in rows])  # samples, layers, numbers
        found["layers"][convention] = dict(zip(_NUMBERS, np.nanmean(values, 0).T.tolist(), strict=True))
        found["samples"][convention] = {
            name: {"first": values[:, 0, j].tolist(), "last": values[:, -1, j].tolist()}
            for j, name in enumerate(_NUMBERS)
        }
    return short({**found, "heads": heads, "tokens": tokens})


def _of_sample(record: Any, convention: str, edges: int, seed: int) -> np.ndarray:
    """(layers, numbers) of one sample, over all heads."""
    lines = []
    for call in record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateCurvatureWarning)
            valid = call.valid[:, None].expand(call.shape[:3])
            values = ollivier_ricci(
                call.attention(), convention, edges=edges, mask=valid, threads=1, seed=seed
            ).values()  # fmt: skip
        if len(values) == 0:
            raise GeoattnError(f"no edge of {call.name} has a curvature under {convention}.")
        lines.append([distance_to_one(values), float(np.quantile(values, 0.05)), float(values.mean())])
    return np.array(lines)


def _load(config: dict[str, Any]) -> tuple[Any, Any]:
    """The model and its samples, one by one."""
    folder = pretrained_folder(config["model"])
    data = load_data(config["data"], split="test", limit=config["samples"], seed=0)
    data = data.subset(range(config["start"], config["start"] + config["count"]))
    if data.texts is None:
        from transformers import AutoModel

        mean, std = (torch.tensor(_PIXELS[name])[:, None, None] for name in ("mean", "std"))
        pixels = data.pixels()
        images = (
            (functional.interpolate(x[None], size=config["pixels"], mode="bicubic", antialias=True).clamp(0, 1) - mean)
            / std
            for x in (p.expand(3, -1, -1) for p in pixels)
        )
        return AutoModel.from_pretrained(folder).eval(), ({"pixel_values": image} for image in images)
    if (folder / "config.json").exists():
        from transformers import AutoModel, PreTrainedTokenizerFast

        model, tokenizer = (
            AutoModel.from_pretrained(folder).eval(),
            PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
        )
    else:
        from geoattn.models.llama2c import load_llama2c

        model, tokenizer = load_llama2c(folder)
    return model, (
        {"input_ids": tokenizer(t, return_tensors="pt", truncation=True, max_length=config["length"])["input_ids"]}
        for t in data.texts
    )


def _sizes(size: str) -> list[dict[str, Any]]:
    """paper: 100 samples of each model and data set, in trials of 20; small: 12; smoke: 2 of the smallest model."""
    samples = {"paper": 100, "small": 12, "smoke": 2}[size]
    common = {"samples": samples, "count": min(samples, _PIECE), "length": 128, "pixels": 224, "edges": 64}
    configs = [
        {"model": model, "data": data, "seed": 0, "start": start, **common}
        for start in range(0, samples, _PIECE)  # the first rows of all models come first
        for model in reversed(PRETRAINED)
        for data in (_IMAGES if model.startswith("dino") else _TEXTS)
    ]
    return configs if size != "smoke" else configs[:1]


def _joined(pairs: Pairs) -> Pairs:
    """One pair for each model and data set, from those of its pieces."""
    pieces: dict[tuple[str, str], Pairs] = {}
    for config, result in pairs:
        pieces.setdefault((config["model"], config["data"]), []).append((config, result))
    joined = []
    for (model, data), found in pieces.items():
        counts = [len(result["samples"]["markov"]["q05"]["first"]) for _, result in found]
        whole: dict[str, Any] = {"layers": {}, "samples": {}}
        for c in CONVENTIONS:
            whole["layers"][c] = {
                n: np.average([r["layers"][c][n] for _, r in found], axis=0, weights=counts).tolist() for n in _NUMBERS
            }
            whole["samples"][c] = {
                n: {end: [v for _, r in found for v in r["samples"][c][n][end]] for end in ("first", "last")}
                for n in _NUMBERS
            }
        joined.append(({"model": model, "data": data}, whole))
    order = list(PRETRAINED)
    return sorted(joined, key=lambda pair: order.index(pair[0]["model"]))


def _expanded(pairs: Pairs) -> Pairs:
    """A pair for each sample and end: samples take the place of seeds within a model and a data set."""
    return [
        (
            {"data": f"{config['model']} on {config['data']}", "seed": k, "layer": end},
            {c: {name: result["samples"][c][name][end][k] for name in _NUMBERS} for c in CONVENTIONS},
        )
        for config, result in _joined(pairs)
        for end in ("first", "last")
        for k in range(len(result["samples"]["markov"]["q05"][end]))
    ]


def _verdict(pairs: Pairs) -> list[Finding]:
    runs = Runs(
        _expanded(pairs), lambda c: c["layer"], cluster=lambda data: data.split(" on ")[0],
        unit=lambda data, row: (data.split(" on ")[1], row),  # several models see one row of a data set
    )  # fmt: skip
    words = {"distance_to_one": "distance of curvature to 1", "q05": "5 % quantile of curvature", "mean": "curvature"}
    numbers = {name: Number(f"{words[name]} by layer", lambda r, c, n=name: r[c][n], curved=True) for name in _NUMBERS}
    return contrast_findings(runs, numbers, (("first", "last"), ("last", "first")))


def _table(pairs: Pairs) -> Any:
    """A row for each model, data set and convention: distance to one in the first and last layer, and the shift."""
    import pandas as pd

    rows = []
    for config, result in _joined(pairs):
        for convention in CONVENTIONS:
            ends = {k: np.array(v) for k, v in result["samples"][convention]["distance_to_one"].items()}
            shift = t_test(ends["first"] - ends["last"])
            rows.append({
                "model": config["model"], "what": PRETRAINED[config["model"]], "data": config["data"],
                "convention": convention, "samples": len(ends["first"]),
                "layers": len(result["layers"][convention]["mean"]), "first": ends["first"].mean(),
                "last": ends["last"].mean(), "shift": shift.effect, "low": shift.low, "high": shift.high,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _figure(pairs: Pairs) -> Any:
    """Distance to one by depth, a panel for each convention and a line for each model: the mean over its data sets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(CONVENTIONS) + 1.6, 3.0), layout="constrained")
    axes = figure.subplots(1, len(CONVENTIONS))
    joined = _joined(pairs)
    for ax, convention in zip(axes, CONVENTIONS, strict=True):
        for name in dict.fromkeys(config["model"] for config, _ in joined):
            own = [r["layers"][convention]["distance_to_one"] for c, r in joined if c["model"] == name]
            line = np.mean(own, axis=0)
            ax.plot(np.linspace(0, 1, len(line)), line, ".-", ms=4, lw=1.2, label=name)
        if convention.startswith("grc"):  # unbounded below
            ax.set_yscale("log")
        ax.set_title(convention, fontsize=10)
        ax.set_xlabel("depth (first layer 0, last 1)")
    axes[0].set_ylabel("distance of curvature to 1")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


STUDY = Study(
    "pretrained-forward", 1, "geoattn.studies.ricci.pretrained_forward:trial", _sizes, _table, _figure, _verdict,
    paper="ricci", place="Figures 3 and 8",
    how="Six pretrained models, the first 100 drawn test rows of each data set (texts cut at 128 tokens, images at 224"
    " pixels), 64 edges of each head; differences within a sample, pooled over models.", partial=True,
    deviations="Other models than the paper's. SmolLM2-135M is the Instruct model, dequantised from 4 bits; the"
    " BERT-Tiny was fine-tuned to tell questions from statements.",
)  # fmt: skip
