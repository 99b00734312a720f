"""Trials of the study lipschitz-growth: local constants against the number of tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoattn._core.errors import GeoattnError

__all__ = ["trial"]


def trial(config: dict[str, Any]) -> dict[str, Any]:
    """One text through a model, worst-case tokens for a head of it, or a check of the bounds on small maps."""
    work = {"text": _text, "adversarial": _adversarial, "theory": _theory}
    return work[config["kind"]](config)


def _text(config: dict[str, Any]) -> dict[str, Any]:
    r"""By layer and number of tokens: the constants of the layer and of its heads at the first tokens of a text.

    ``printed`` is what the public code of the paper computes, :math:`\sqrt{\|J^\top f(X)\|}`, for the same map.
    """
    from geoattn.profiles.batches import read_batch
    from geoattn.profiles.model_constants import SmoothnessPass
    from geoattn.smoothness.layer_smoothness import layer_smoothness
    from geoattn.studies.ricci.text_models import long_text, text_model

    model, tokenizer = text_model(config["model"])
    longest = max(config["lengths"])
    text = long_text(config["text"], 12 * longest, built_in=config["model"].startswith("random-"))
    look = SmoothnessPass(model)
    rows: list[dict[str, Any]] = []
    for n in config["lengths"]:
        item = tokenizer(text, return_tensors="pt", truncation=True, max_length=n)
        batch = {key: value for key, value in item.items() if key != "token_type_ids"}
        if batch["input_ids"].shape[1] != n:
            raise GeoattnError(f"text {config['text']} gives {batch['input_ids'].shape[1]} tokens; expected {n}.")
        for layer, p in look.projections(read_batch(batch, model, 0)):
            if config.get("layers") is not None and layer not in config["layers"]:
                continue
            heads = n <= config["heads_up_to"]
            found = layer_smoothness(p, tolerance=1e-3, heads=heads)
            rows.append({
                "layer": layer, "n": n, "radius": float(found.radius[0]), "rms": float(found.rms[0]),
                "value": _plain(found.whole[0]), "residual": float(found.whole_residual[0]),
                "bound": float(found.whole_bound[0]), "sharper": float(found.whole_sharper[0]),
                "printed": _printed_code(p), "heads": [_plain(v) for v in found.heads[0]] if heads else [],
                "head_bounds": [float(v) for v in found.bound[0]] if heads else [],
                "r2_gamma": [_plain(v) for v in found.r2_gamma[0]], "causal": bool(p.causal),
            })  # fmt: skip
    if not rows:
        raise GeoattnError(f"{config['model']}: no layer could be measured: {look.skipped}.")
    return {"rows": rows}


def _printed_code(p: Any) -> float:
    from geoattn.smoothness.captured_jacobian import CapturedJacobian

    J = CapturedJacobian(p, "sum")
    return math.sqrt(float(J.adjoint(J.value()[:, None]).norm()))


def _adversarial(config: dict[str, Any]) -> dict[str, Any]:
    """Worst-case tokens in the ball of a head of a model: its logits with V = I, and with its own values."""
    import torch

    from geoattn.profiles.batches import read_batch
    from geoattn.profiles.model_constants import SmoothnessPass
    from geoattn.smoothness.adversarial import adversarial_tokens
    from geoattn.smoothness.bounds import lipschitz_bounds
    from geoattn.smoothness.local import local_lipschitz
    from geoattn.studies.ricci.text_models import long_text, text_model

    model, tokenizer = text_model(config["model"])
    text = long_text(0, 400, built_in=config["model"].startswith("random-"))
    item = tokenizer(text, return_tensors="pt", truncation=True, max_length=32)
    batch = {key: value for key, value in item.items() if key != "token_type_ids"}
    p = dict(SmoothnessPass(model).projections(read_batch(batch, model, 0)))[config["layer"]]
    radius, small = float(p.tokens.norm(dim=-1).max()), p.reduced()
    h = config["head"]  # in the coordinates that it reads
    A = (small.key[h].T @ small.query[h]).numpy()
    V = small.value[h] if small.output is None else small.output[h] @ small.value[h]
    rows, size = [], 0.0
    for n in config["lengths"]:
        tokens = adversarial_tokens(A, n, radius, configuration="opposite")
        plain = local_lipschitz(tokens, A, causal=p.causal, tolerance=1e-4)
        own = local_lipschitz(tokens, A, V, causal=p.causal, tolerance=1e-4)
        bounds = lipschitz_bounds(A, None, n, radius, causal=p.causal)
        size = float(bounds.r2_gamma[0])
        rows.append({
            "n": n, "value": plain.value, "own": own.value, "lower": bounds["discrete lower"].value,
            "upper": bounds["discrete upper"].value, "sharper": bounds["discrete upper, sharper"].value,
        })  # fmt: skip
    norm = float(torch.linalg.matrix_norm(V, 2))
    return {"rows": rows, "radius": radius, "r2_gamma": size, "norm_of_values": norm}


def _theory(config: dict[str, Any]) -> dict[str, Any]:
    """Claims on the mean-field constant, on random small maps by a seed: logarithms that should be above 0."""
    from geoattn.smoothness.adversarial import adversarial_tokens
    from geoattn.smoothness.bounds import lipschitz_bounds
    from geoattn.smoothness.local import local_lipschitz
    from geoattn.smoothness.measure_map import mean_field_constant

    rng = np.random.default_rng(config["seed"])
    d, R = 4, 1.0
    A, V = rng.standard_normal((d, d)) / 2, rng.standard_normal((d, d))
    upper = mean_field_constant(A, V, R, config["n"], trials=4, seed=config["seed"])
    gamma = np.diag([-1.0, *rng.uniform(-0.5, 0.5, d - 1)])
    wide = 1.2 + 0.1 * (config["seed"] % 5)  # n - 1 = exp(2 R^2) is 18 to 167
    n = 1 + round(math.exp(2 * wide**2))
    value = local_lipschitz(adversarial_tokens(gamma, n, wide), gamma).value
    # masked attention with almost equal weights takes running means; the printed bound is that of the unmasked map
    flat = 1e-3 * A
    masked = local_lipschitz(rng.standard_normal((config["n"], d)) / d, flat, causal=True).value
    printed = lipschitz_bounds(flat, None, config["n"], R)["mean-field upper"]
    return {
        "mean_field_upper": upper.bound.log_value - math.log(upper.value),
        "mean_field_lower": math.log(value) - math.log(wide**2 / 2 * math.exp(wide**2)),
        "masked_mean_field_upper": printed.log_value - math.log(masked),
    }


def _plain(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
