"""Trials of the study spectral-link: heads of a model, random maps, real value weights, and training runs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import geoattn as ga
from geoattn.datasets.loader import load_data
from geoattn.perturbations.paper import image_perturbations
from geoattn.perturbations.robustness_table import robustness
from geoattn.spectral.entropy import row_entropy
from geoattn.spectral.linear_transformer import check_assumptions, tangent_kernel_values
from geoattn.spectral.links import spectral_table
from geoattn.spectral.neural_tangent import pl_ratio, tangent_kernel
from geoattn.studies.engine.layer_curvature import PRESETS
from geoattn.training.loop import train
from geoattn.training.recipe import Recipe

__all__ = ["attention_of_tokens", "trial", "value_products"]

_STEPS = (1, 2, 3, 4)


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One trial of the kind that the configuration names: heads, random, lemma or training."""
    kinds = {"heads": _heads, "random": _random, "lemma": _lemma, "training": _training}
    settings = dict(config)
    return kinds[settings.pop("kind")](**settings)


def _heads(weights: str, seed: int, layers: int) -> dict[str, Any]:
    """All heads of L-ViT on one image: eigenvalues, curvature by preset, slack of every inequality, assumptions."""
    model = ga.load_model("lvit-digits", weights=weights, seed=seed)  # type: ignore[arg-type]
    image = ga.load_data("digits", split="test").subset([seed])
    with ga.capture(model) as record, torch.no_grad():
        model(image.pixels())
    table = spectral_table(record, steps=_STEPS, conventions=PRESETS)
    products = value_products(model)
    rows = []
    for layer, call in list(enumerate(record))[:layers]:
        maps = call.attention()[0].double().numpy()
        maps /= maps.sum(-1, keepdims=True)
        found: Any = ga.spectrum(maps, threads=1)
        entropy = row_entropy(maps, normalised=True).mean(-1)
        for h, a in enumerate(maps):
            mine = table[(table.layer == layer) & (table["head"] == h)]
            limit = ga.spectral.depth_limit(a, products[layer][h])
            holds = {c.name: c.holds for c in check_assumptions(a, products[layer][h], shared_query_key=False)}
            rows.append({
                "second": float(found.second[h]), "smallest": float(found.smallest_real[h]),
                "dobrushin": float(found.dobrushin[h]), "irreversibility": float(found.irreversibility[h]),
                "entropy": float(entropy[h]), "regime": limit.regime, "assumptions": holds,
                "slack": dict(zip(mine.inequality, mine.slack.round(12), strict=True)),
                "theorem": dict(zip(mine.inequality, map(bool, mine.theorem), strict=True)),
                "curvature": {p: _mean_curvature(a, p) for p in PRESETS},
            })  # fmt: skip
    return {"heads": rows}


def _random(n: int, width: int, scale: float, seed: int) -> dict[str, Any]:
    """A0 against A5: the smallest eigenvalue of attention with K = Q, and with K apart from Q."""
    rng = np.random.default_rng([seed, n, width])
    q, k = scale * rng.normal(size=(2, n, width))
    return {
        name: float(np.linalg.eigvals(attention_of_tokens(q, keys)).real.min())
        for name, keys in (("shared", q), ("apart", k))
    }


def _lemma(n: int, depth: int, maps: int, seed: int) -> dict[str, Any]:
    """Lemma 4.2: for maps of growing sharpness, the probability over real H that the tangent kernel is above mu."""
    rng = np.random.default_rng([seed, n])
    products = [h for layer in value_products(ga.load_model("lvit-digits")) for h in layer]
    attention = [
        attention_of_tokens(s * rng.normal(size=(n, 8)), s * rng.normal(size=(n, 8)))
        for s in np.linspace(0.5, 2.0, maps)
    ]
    low = np.array([[tangent_kernel_values(a, h, depth).min() for h in products] for a in attention])
    p = (low >= np.median(low)).mean(axis=1)
    smallest = [float(np.linalg.eigvals(a).real.min()) for a in attention]
    return {"smallest": smallest, "p": p.tolist(), "mu": float(np.median(low))}


def _training(seed: int, direction: str, gamma: float, a: float, kernel_rows: int, **recipe: Any) -> dict[str, Any]:
    """Train L-ViT; tangent kernel, PL ratio, spectrum, curvature and entropy per epoch, and rho at the end."""
    chosen = () if direction == "none" else (("variance", {"direction": direction, "gamma": gamma, "a": a}),)
    plan = Recipe(seed=seed, regularisers=chosen, **recipe)
    rows = load_data(plan.data, split="train", limit=plan.limit, seed=plan.data_seed)
    pixels, labels = rows.pixels()[:64], torch.tensor(rows.labels[:64])

    def probe(model: Any, _test: Any) -> dict[str, Any]:
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(model(pixels), labels)
            ratio = pl_ratio(loss, list(model.parameters()))
        kernel = tangent_kernel(model, pixels[:kernel_rows])
        return {
            "kernel": kernel.smallest,
            "pl_ratio": ratio,
            "probe_loss": float(loss.detach()),
            **_seen(model, pixels),
        }

    done = train(plan, probe=probe)
    test = load_data(plan.data, split="test", limit=plan.test_limit, seed=plan.data_seed)
    assert test.images is not None
    wanted = [p for p in image_perturbations(test.images.shape[-1]) if "0.4" in p.name]
    table = robustness(done.model, test, wanted, resamples=100, examples=0)
    names = ("epoch", "loss", "kernel", "pl_ratio", "probe_loss", "second", "entropy", "curvature")
    return {
        "history": [{name: row[name] for name in names if name in row} for row in done.history],
        "test_accuracy": done.test_accuracy,
        "rho": {name: drop.rho for name, drop in zip(table.names, table.drops, strict=True)},
    }  # fmt: skip


def _seen(model: Any, pixels: torch.Tensor) -> dict[str, Any]:
    """Second eigenvalue, row entropy and mean curvature by preset, over the layers and heads of eight samples."""
    with ga.capture(model) as record, torch.no_grad():
        model(pixels[:8])
    maps = np.concatenate([call.attention().double().numpy() for call in record])
    maps = (maps / maps.sum(-1, keepdims=True)).reshape(-1, *maps.shape[-2:])
    return {
        "second": float(np.mean(ga.spectrum(maps, threads=1).second)),
        "entropy": float(row_entropy(maps, normalised=True).mean()),
        "curvature": {preset: _mean_curvature(maps, preset) for preset in PRESETS},
    }


def _mean_curvature(attention: np.ndarray, preset: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.DegenerateCurvatureWarning)  # a small spread is part of what is measured
        return float(ga.ollivier_ricci(attention, preset, threads=1).values().mean())


def attention_of_tokens(q: Float[np.ndarray, "n d"], k: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    r"""softmax(q k^T / sqrt d).

    >>> import numpy as np
    >>> attention_of_tokens(np.zeros((2, 3)), np.ones((2, 3))).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    logits = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def value_products(model: Any) -> list[list[Float[np.ndarray, "d d"]]]:
    r"""H = W_p^T W_V^T of each layer and head of an L-ViT: what a head adds to a token, as a matrix on its width."""
    products = []
    for attention, _ in model.transformer.layers:
        values = attention.to_qkv.weight.detach().double().chunk(3)[2]  # (heads x dim_head, dim)
        if isinstance(attention.to_out, torch.nn.Identity):  # one head as wide as the tokens
            products.append([values.numpy()])
            continue
        out = attention.to_out[0].weight.detach().double()  # (dim, heads x dim_head)
        parts = zip(values.chunk(attention.heads), out.chunk(attention.heads, dim=1), strict=True)
        products.append([(w @ v).numpy() for v, w in parts])
    return products
