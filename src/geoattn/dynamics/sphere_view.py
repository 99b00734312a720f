"""Tokens of any dimension as points of the sphere in three dimensions, to look at."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn.dynamics.inputs import read_tokens

__all__ = ["sphere_view"]


def sphere_view(*paths: Any) -> tuple[list[Float[Tensor, "t n 3"]], float]:
    """Each path of tokens (time, n, d) as directions in the three main axes of all of them, and what these axes hold.

    Two dimensions get a third coordinate 0 and three stay as they are. Of more, the tokens are projected to the three
    eigenvectors of the second moment of all tokens with the largest eigenvalues, and divided by their norms: a picture,
    not the flow. The number is the share of the squared length of the tokens that these axes hold, 1 for d <= 3.

    Examples
    --------
    >>> import torch
    >>> (points,), share = sphere_view(torch.eye(4)[None])
    >>> points.shape, share
    (torch.Size([1, 4, 3]), 0.75)
    """
    tokens = [read_tokens(path).double() for path in paths]
    d = tokens[0].shape[-1]
    if d <= 3:
        return [torch.nn.functional.pad(x, (0, 3 - d)) for x in tokens], 1.0
    together = torch.cat([x.reshape(-1, d) for x in tokens])
    values, vectors = torch.linalg.eigh(together.T @ together / len(together))
    axes = vectors[:, -3:].flip(-1)
    axes = axes * torch.where(axes.sum(0) < 0, -1.0, 1.0)  # a sign of its own, whatever the solver gives
    seen = [x @ axes for x in tokens]
    norms = [y.norm(dim=-1, keepdim=True) for y in seen]
    points = [y / torch.where(r > 1e-9, r, 1.0) for y, r in zip(seen, norms, strict=True)]
    return points, float(values[-3:].sum() / values.sum())
