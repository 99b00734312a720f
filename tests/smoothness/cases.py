"""Random attention maps of every kind, and their dense Jacobian by autograd."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoattn.smoothness.attention_map import AttentionMap
from geoattn.smoothness.inputs import read_mask, read_tokens

KINDS = ("plain", "causal", "padded", "causal padded", "heads", "heads factored", "cross", "cross padded", "around")


@dataclass
class Case:
    """Tokens and the arguments of `local_lipschitz`."""

    tokens: np.ndarray
    arguments: dict[str, Any] = field(default_factory=dict)

    def dense(self, sample: int | None = None) -> Tensor:
        """The Jacobian (outputs, inputs) of one sample by autograd of the plain map; padding left out."""
        a = dict(self.arguments)
        mask, context = a.pop("mask", None), a.pop("context", None)
        context_mask, wrt = a.pop("context_mask", None), a.pop("wrt", "both")
        f = AttentionMap.of(a.pop("A"), a.pop("V", None), a.pop("W", None), **a)
        x, valid, _ = read_tokens(self.tokens, mask)
        x, valid = x[sample or 0], None if valid is None else valid[sample or 0]
        if valid is not None:
            x = x[valid]
        if context is None:
            jacobian = torch.func.jacrev(f)(x)
            return jacobian.reshape(jacobian.shape[0] * jacobian.shape[1], -1)
        y = read_tokens(context, None, "context")[0][sample or 0]
        if context_mask is not None:
            keep = read_mask(context_mask, (1, len(y)), False, "context_mask")
            y = y if keep is None else y[keep[0]]
        parts = torch.func.jacrev(f, argnums=(0, 1))(x, y)
        flat = [p.reshape(p.shape[0] * p.shape[1], -1) for p in parts]
        return torch.cat({"tokens": flat[:1], "context": flat[1:], "both": flat}[wrt], dim=1)

    def norm(self, sample: int | None = None) -> float:
        """Spectral norm of the dense Jacobian by SVD."""
        return float(torch.linalg.matrix_norm(self.dense(sample), 2))


def draw(seed: int, kind: str | None = None, largest: int = 1000, logits: float | None = None) -> Case:
    """A case with n d (and m c) <= largest. Radius and sharpness of the attention span many orders of magnitude."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)] if kind is None else kind
    d = int(rng.integers(1, 13))
    n = int(rng.integers(1, max(2, min(largest // d, 125) + 1)))
    radius = 10.0 ** rng.choice([-8, -3, -1, 0, 0, 0, 1, 2, 4])
    tokens = rng.standard_normal((n, d)) * radius
    if rng.random() < 0.2:
        tokens = tokens * 10.0 ** rng.uniform(-4, 0, d)  # ill-conditioned cloud
    if rng.random() < 0.15:
        tokens[rng.random(n) < 0.5] = tokens[0]  # repeated tokens
    sharp = 10.0 ** (rng.uniform(3, 8) if rng.random() < 0.1 else rng.uniform(-2, 1.5))
    sharp = sharp if logits is None else logits  # typical logit
    heads = int(rng.integers(2, 5)) if kind.startswith("heads") or (kind == "around" and rng.random() < 0.5) else 1

    def matrix(*shape: int, ill: bool = False) -> np.ndarray:
        m = rng.standard_normal(shape) / np.sqrt(shape[-1])
        return m * 10.0 ** rng.uniform(-6, 0, shape[-1]) if ill else m

    ill = bool(rng.random() < 0.25)
    norm = (None, "layer", "rms")[int(rng.integers(3))] if kind == "around" else None
    norm_place = ("before", "after")[int(rng.integers(2))]
    scale = sharp / (d if norm is not None and norm_place == "before" else radius**2)
    arguments: dict[str, Any] = {"A": matrix(heads, d, d, ill=ill) * scale}
    if rng.random() < 0.6:
        arguments["V"] = matrix(heads, d, d, ill=ill and rng.random() < 0.5)
    if kind == "heads factored":
        r = int(rng.integers(1, d + 1))
        arguments["A"] = (matrix(heads, r, d) * scale, matrix(heads, r, d))
        arguments["V"], arguments["W"] = matrix(heads, r, d), matrix(heads, d, r)
        if rng.random() < 0.5:
            arguments["bias"] = rng.standard_normal((heads, r)) * scale * radius
    if "causal" in kind or (heads > 1 and rng.random() < 0.3):
        arguments["causal"] = True
    if kind in ("padded", "causal padded"):
        arguments["mask"] = rng.random(n) < 0.7
        arguments["mask"][rng.integers(n)] = True
    if kind.startswith("cross"):
        c, m = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        arguments["context"] = rng.standard_normal((m, c)) * radius
        arguments["A"] = matrix(1, c, d) * scale
        arguments["V"] = matrix(1, int(rng.integers(1, 9)), c)
        arguments["wrt"] = ("tokens", "context", "both")[int(rng.integers(3))]
        if kind == "cross padded":
            arguments["context_mask"] = rng.random(m) < 0.7
            arguments["context_mask"][rng.integers(m)] = True
    if kind == "around":
        arguments |= {"norm": norm, "norm_place": norm_place, "residual": bool(rng.random() < 0.6)}
    return Case(tokens, arguments)
