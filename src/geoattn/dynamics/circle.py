"""Sums of exp(<x, y>) over points of the plane, for x on the circle, by their Fourier series."""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ive
from torch import Tensor

from geoattn.errors import GeoattnError

__all__ = ["bessel_ratios", "circle_sum", "circle_terms"]

_BLOCK = 1 << 15  # tokens in work at once
_SMALLEST = 1e-18  # of the first coefficient: what is left out
_MOST = 1 << 14


@functools.lru_cache(maxsize=256)
def circle_terms(radius: float) -> int:
    """How many modes exp(r cos t) needs for r up to ``radius``: about 9 sqrt(r) + 15.

    >>> circle_terms(1.0), circle_terms(100.0)
    (16, 94)
    """
    guess = int(10 * np.sqrt(radius) + 40)
    if guess > _MOST:
        return guess
    coefficients = ive(np.arange(guess), radius)
    small = np.flatnonzero(coefficients < _SMALLEST * coefficients[0])
    return max(2, int(small[0])) if len(small) else guess


def bessel_ratios(radius: Float[Tensor, " m"], terms: int, first: float) -> Float[Tensor, "terms m"]:
    """B_k(r) / B_0(r), k = 0 .. terms - 1, for a family with B_{k-1} - B_{k+1} = 2 (k + first) B_k / r.

    ``first`` = 0 is I_k, 1/2 the modified spherical Bessel functions. Downward continued fraction: no overflow.
    """
    ratio = torch.zeros_like(radius)
    safe = radius.clamp_min(1e-30)
    ratios = []
    for k in range(terms + 30, 0, -1):
        ratio = 1.0 / (2 * (k + first) / safe + ratio)
        if k < terms:
            ratios.append(ratio)
    return torch.cat([torch.ones_like(radius)[None], torch.stack(ratios[::-1]).cumprod(0)])[:terms]


def circle_sum(
    x: Float[Tensor, "m 2"], y: Float[Tensor, "n 2"], channels: Float[Tensor, "n c"], radius: float
) -> Float[Tensor, "m c"]:
    r""":math:`e^{-R} \sum_j e^{\langle x_i, y_j\rangle} c_j` for x on the circle and |y| at most R = ``radius``.

    .. math:: e^{r \cos(\theta - \psi)} = \sum_k I_k(r) e^{ik(\theta - \psi)}

    O((n + m) K) time, K = `circle_terms`; O(K) memory beside the points. Exact to about 1e-16 of the sum of |c_j|.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    >>> y = torch.tensor([[0.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> circle_sum(x, y, torch.ones(2, 1).double(), 2.0) * torch.e**2  # 1 + 1/e
    tensor([[1.3679]], dtype=torch.float64)
    """
    terms = circle_terms(radius)
    if terms > _MOST:
        raise GeoattnError(f"a logit of {radius:.3g} needs more than {_MOST} modes; use engine='fused'.")
    lengths = y.norm(dim=-1)
    even = bool((lengths.amax() - lengths.amin()) <= 1e-15 * lengths.amax())
    if even:  # one radius: one column of coefficients
        lengths = lengths[:1]
    moments = torch.zeros(terms, channels.shape[1], 2, dtype=torch.float64, device=x.device)
    for start in range(0, len(y), _BLOCK):
        part = slice(start, start + _BLOCK)
        r = lengths if even else lengths[part]
        coefficients = bessel_ratios(r, terms, 0.0) * torch.special.i0e(r) * (r - radius).exp()
        angles = torch.atan2(y[part, 1], y[part, 0])
        powers = _powers(angles, terms)  # e^{ik psi}
        weighted = [powers.real * coefficients, powers.imag * coefficients]
        moments += torch.stack([w @ channels[part] for w in weighted], dim=-1)
    moments[1:] *= 2.0  # k and -k
    out = torch.empty(len(x), channels.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, len(x), _BLOCK):
        part = slice(start, start + _BLOCK)
        powers = _powers(torch.atan2(x[part, 1], x[part, 0]), terms)
        out[part] = powers.real.mT @ moments[..., 0] + powers.imag.mT @ moments[..., 1]
    return out


def _powers(angles: Tensor, terms: int) -> Tensor:
    """e^{ik angle}, k = 0 .. terms - 1, by doubling: few roundings."""
    out = torch.empty(terms, len(angles), dtype=torch.complex128, device=angles.device)
    out[0] = 1.0
    done = 1
    while done < terms:
        more = min(done, terms - done)
        step = torch.polar(torch.ones_like(angles), done * angles)
        torch.mul(out[:more], step, out=out[done : done + more])
        done += more
    return out
