"""Where the tokens start: uniform, in general position at equal angles, on a ring."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geoattn._core.arguments import read_count, read_number
from geoattn._core.errors import GeoattnError

__all__ = ["equiangular_tokens", "ring_tokens", "uniform_tokens"]


def uniform_tokens(n: Any, d: Any, *, runs: Any = (), seed: Any = 0) -> Float[Tensor, "*b n d"]:
    """Independent uniform tokens on the unit sphere of dimension d - 1, float64; ``runs`` is the shape of the batch.

    Examples
    --------
    >>> from geoattn.dynamics import uniform_tokens
    >>> uniform_tokens(5, 3, runs=4).shape
    torch.Size([4, 5, 3])
    """
    n, d = read_count("n", n, least=1, most=10**18), read_count("d", d, least=2, most=10**18)
    shape = tuple(runs) if isinstance(runs, (tuple, list)) else (runs,)
    shape = tuple(read_count("runs", k, least=1) for k in shape)
    draw = torch.Generator().manual_seed(read_count("seed", seed, least=0))
    x = torch.randn(*shape, n, d, generator=draw, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


def equiangular_tokens(n: Any, cosine: Any = 0.0, *, d: Any = None) -> Float[Tensor, "n d"]:
    """Tokens with the same cosine between any two, in dimension d (default n).

    The Gram matrix (1 - c) I + c 1 1^T is positive semidefinite for c from -1/(n - 1) to 1; its square root is a start.

    Examples
    --------
    >>> x = equiangular_tokens(3, 0.5)
    >>> (x @ x.T)[0, 1].item()
    0.5
    """
    n = read_count("n", n, least=2, most=10**18)
    d = n if d is None else read_count("d", d, least=n)
    c = read_number("cosine", cosine)
    if not -1 / (n - 1) <= c <= 1:
        raise GeoattnError(f"{n} tokens can have equal cosines from {-1 / (n - 1):.6g} to 1; got {c:g}.")
    side, along = math.sqrt(1 - c), math.sqrt(max(0.0, 1 + (n - 1) * c))
    x = torch.zeros(n, d, dtype=torch.float64)
    x[:, :n] = side * torch.eye(n, dtype=torch.float64) + (along - side) / n
    return x / x.norm(dim=-1, keepdim=True)


def ring_tokens(n: Any) -> Float[Tensor, "n 2"]:
    """Tokens evenly spaced on the circle: the angles 2 pi j / n.

    Examples
    --------
    >>> ring_tokens(4)[0]
    tensor([1., 0.], dtype=torch.float64)
    """
    angles = 2 * math.pi * torch.arange(read_count("n", n, least=1, most=10**18), dtype=torch.float64) / n
    return torch.stack([angles.cos(), angles.sin()], dim=-1)
